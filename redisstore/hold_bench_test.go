package redisstore_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
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
				store, _ := storeOn(b, newConn(b), redisstore.Options{MaxHolds: bounds.MaxHolds})
				policy := policyOf(b, "p", limit)
				var done atomic.Int64
				var group sync.WaitGroup
				before, own := serverTime(b), ownTime(b)
				b.ResetTimer()
				for caller := range 512 {
					group.Go(func() {
						claim := stint.Claim{Key: "client-" + strconv.Itoa(caller%clients), Policy: policy, Permits: 2}
						for i := 0; done.Add(1) <= int64(b.N); i++ {
							if name == "take" {
								mustDecide(b, store, stint.Op{Verb: stint.VerbTake, Claim: claim})
								continue
							}
							h := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprintf("caller-%d-request-%d", caller, i)}}
							mustDecide(b, store, stint.Op{Verb: stint.VerbReserve, Claim: claim, Extra: &stint.Extra{Hold: &h}})
							claim := claim
							claim.Permits = 1
							mustDecide(b, store, stint.Op{Verb: stint.VerbCommit, Claim: claim, Extra: &stint.Extra{Hold: &h}})
						}
					})
				}
				group.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per_s")
				b.ReportMetric((serverTime(b)-before)/float64(b.N), "us_of_server")
				b.ReportMetric((ownTime(b)-own)/float64(b.N), "us_of_client")
			})
		}
	}
}

// ownTime is for how many microseconds this process has had a processor.
func ownTime(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e3
}

// serverTime is for how many microseconds the server has had a processor, which a busy machine changes less than its clock.
func serverTime(b *testing.B) (us float64) {
	used, err := server.Info("cpu")
	if err != nil {
		b.Fatal(err)
	}
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(used[field], 64)
		if err != nil {
			b.Fatal(err)
		}
		us += 1e6 * seconds
	}
	return us
}

func mustDecide(b *testing.B, store stint.Store, op stint.Op) {
	if d, err := store.Decide(b.Context(), op); err != nil || !d.Allowed {
		b.Errorf("%v: %v", d, err)
	}
}
