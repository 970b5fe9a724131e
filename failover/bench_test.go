package failover_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// BenchmarkHealthy is what a failover store costs on top of the store it wraps.
func BenchmarkHealthy(b *testing.B) {
	p := policy(b, "", stint.TokenBucket(bounds.MaxPermits, stint.PerSecond(bounds.MaxPermits)))
	inner := memstore.New(memstore.Config{})
	wrapped := must.Get(failover.New(inner, failover.Config{}))(b)
	defer wrapped.Close()
	for _, row := range []struct {
		name  string
		store stint.Store
	}{{"bare", inner}, {"failover", wrapped}} {
		o := op(stint.VerbTake, "k", p, 1)
		b.Run("verb=take/store="+row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = row.store.Decide(b.Context(), o)
			}
		})
		b.Run("verb=take/parallel/store="+row.name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = row.store.Decide(b.Context(), o)
				}
			})
		})
	}
}

// BenchmarkAway is what a decision takes while the store is unreachable, with 512 callers at
// once: each measures its own, and the median and the 99th percentile are reported.
func BenchmarkAway(b *testing.B) {
	for _, mode := range []failover.Mode{failover.Open, failover.Closed, failover.Local} {
		b.Run("mode="+mode.String()+"/goroutines=512", func(b *testing.B) {
			store, err := failover.New(silent{}, failover.Config{
				Timeout: time.Millisecond, Mode: mode, Local: memstore.New(memstore.Config{}),
				Instances: func() int { return 1 },
			})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			p := policy(b, "", stint.TokenBucket(1000, stint.PerSecond(1000)))
			_, _ = store.Decide(b.Context(), op(stint.VerbTake, "k", p, 1))
			const callers = 512
			var left atomic.Int64
			left.Store(int64(b.N))
			took := make([][]time.Duration, callers)
			var group sync.WaitGroup
			b.ResetTimer()
			for i := range callers {
				group.Go(func() {
					for left.Add(-1) >= 0 {
						start := time.Now()
						_, _ = store.Decide(b.Context(), op(stint.VerbTake, "k", p, 1))
						took[i] = append(took[i], time.Since(start))
					}
				})
			}
			group.Wait()
			b.StopTimer()
			all := slices.Sorted(func(yield func(time.Duration) bool) {
				for _, list := range took {
					for _, d := range list {
						if !yield(d) {
							return
						}
					}
				}
			})
			b.ReportMetric(float64(all[len(all)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(all[int(math.Ceil(float64(len(all))*0.99))-1].Nanoseconds()), "p99-ns")
		})
	}
}

// silent never answers.
type silent struct{}

func (silent) Decide(_ context.Context, op stint.Op) (stint.Decision, error) {
	<-time.After(op.Timeout)
	return stint.Decision{}, fmt.Errorf("%w: %w", stint.ErrUnavailable, context.DeadlineExceeded)
}

func (s silent) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (silent) ResetAll(context.Context, stint.Scope) error { return stint.ErrUnavailable }

func (s silent) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for i := range ops {
		_, err := s.Decide(ctx, ops[i])
		results[i] = stint.Result{Err: err}
	}
}

func (silent) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }
