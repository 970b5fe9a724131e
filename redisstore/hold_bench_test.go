package redisstore_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
)

// BenchmarkHold is what a reserve and its commit cost beside a take, at 512 callers, of one client each or of one client
// together: one iteration is one take, or one pair.
func BenchmarkHold(b *testing.B) {
	rate := stint.SlidingWindowCounter(1_000_000_000, time.Minute)
	for _, clients := range []int{512, 1} {
		for name, limit := range map[string]stint.Limit{
			"take": rate, "pair": rate, "pair of a bucket": stint.TokenBucket(1_000_000_000, stint.PerSecond(1_000_000)),
			"place": stint.Concurrency(10_000),
		} {
			b.Run(fmt.Sprintf("clients=%d/%s", clients, name), func(b *testing.B) {
				store, _ := storeOn(b, newConn(b), redisstore.Options{MaxHolds: stint.MaxHolds})
				policy := policyOf(b, "p", limit)
				var done atomic.Int64
				var group sync.WaitGroup
				b.ResetTimer()
				for caller := range 512 {
					group.Go(func() {
						claim := stint.Claim{Key: "client-" + strconv.Itoa(caller%clients), Policy: policy, Permits: 2}
						for i := 0; done.Add(1) <= int64(b.N); i++ {
							if name == "take" {
								mustDecide(b, store, stint.Op{Verb: stint.Take, Claim: claim})
								continue
							}
							h := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprintf("caller-%d-request-%d", caller, i)}}
							mustDecide(b, store, stint.Op{Verb: stint.Reserve, Claim: claim, Hold: &h})
							claim := claim
							claim.Permits = 1
							mustDecide(b, store, stint.Op{Verb: stint.Commit, Claim: claim, Hold: &h})
						}
					})
				}
				group.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per_s")
			})
		}
	}
}

func mustDecide(b *testing.B, store stint.Store, op stint.Op) {
	if d, err := store.Decide(b.Context(), op); err != nil || !d.Allowed {
		b.Errorf("%v: %v", d, err)
	}
}
