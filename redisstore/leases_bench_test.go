package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/redisstore"
)

// BenchmarkLease takes of limits so large that nearly all is spent in the process.
func BenchmarkLease(b *testing.B) {
	const most = bounds.MaxPermits
	limits := map[string]stint.Limit{
		"token_bucket": stint.TokenBucket(most, stint.PerSecond(most)),
		"fixed_window": stint.FixedWindow(most, 366*24*bounds.MinPeriod*1000),
	}
	for name, limit := range limits {
		for _, keys := range []int{1, 64} {
			b.Run(fmt.Sprintf("alg=%s/keys=%d", name, keys), func(b *testing.B) {
				store := newStore(b, redisstore.Options{})
				limiter, err := stint.New(store, "test", limit.WithLease(stint.LeaseAuto))
				if err != nil {
					b.Fatal(err)
				}
				names := make([]string, keys)
				for i := range names {
					names[i] = fmt.Sprintf("user:%d", i)
				}
				before, ctx := store.Stats(), b.Context()
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if d, err := limiter.Allow(ctx, names[i%keys]); err != nil || !d.Allowed {
							b.Errorf("%+v, %v", d, err)
							return
						}
					}
				})
				calls := store.Stats().Batches - before.Batches
				b.ReportMetric(float64(b.N)/float64(max(1, calls)), "decisions/call")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}
