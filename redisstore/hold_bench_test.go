package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/testredis"
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

// BenchmarkLockPerBucket is a pair as limiters do it that keep a bucket as a value behind a lock: whoever wants the bucket
// asks for the lock until it is free, reads the bucket, writes it, and lets go; once to reserve and once to settle. The
// callers are those of BenchmarkHold.
func BenchmarkLockPerBucket(b *testing.B) {
	for _, clients := range []int{512, 1} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			conn, ctx := newConn(b), b.Context()
			must := func(args ...string) string {
				reply, err := conn.Do(ctx, args...)
				if err != nil {
					b.Error(err)
				}
				return reply
			}
			change := func(key string, by int) {
				for must("SET", "lock:"+key, "1", "NX", "PX", "5000") == "" {
					_ = sleep.Jittered(ctx, time.Millisecond)
				}
				level, _ := strconv.Atoi(must("GET", "bucket:"+key)) // "" of a new one
				must("SET", "bucket:"+key, strconv.Itoa(level+by), "PX", "60000")
				must("DEL", "lock:"+key)
			}
			var done atomic.Int64
			var group sync.WaitGroup
			b.ResetTimer()
			for caller := range 512 {
				group.Go(func() {
					for done.Add(1) <= int64(b.N) {
						key := strconv.Itoa(caller % clients)
						change(key, 2)
						change(key, -1)
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per_s")
		})
	}
}

// BenchmarkRelease is how long after a place was freed in one process somebody has it who waits in another.
func BenchmarkRelease(b *testing.B) {
	holder, prefix := storeOn(b, newConn(b), redisstore.Options{})
	waiter := another(b, newConn(b), redisstore.Options{KeyPrefix: prefix})
	until(b, "announcements are heard", func() bool { return waiter.Stats().Announcing })
	policy := policyOf(b, "p", stint.Concurrency(1))
	limiters := make([]*stint.Limiter, 2)
	for i, store := range []stint.Store{holder, waiter} {
		l, err := stint.NewLimiter(stint.Config{Store: store, Policy: policy})
		if err != nil {
			b.Fatal(err)
		}
		limiters[i] = l
	}
	var waits []time.Duration
	for i := range b.N {
		mine, others := limiters[i%2], limiters[(i+1)%2]
		held, _, err := mine.ReserveWait(b.Context(), "k", 1, stint.Hold{})
		if err != nil {
			b.Fatal(err)
		}
		admitted := make(chan *stint.Reservation)
		go func() {
			r, _, err := others.ReserveWait(b.Context(), "k", 1, stint.Hold{})
			if err != nil {
				b.Error(err)
			}
			admitted <- r
		}()
		_ = sleep.For(b.Context(), 10*time.Millisecond) // until it waits
		released := time.Now()
		if _, err := held.Commit(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
		next := <-admitted
		waits = append(waits, time.Since(released))
		if _, err := next.Cancel(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "us/median")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "us/p99")
}

// BenchmarkHoldBytes is what the server's memory grows by for each hold, and for each end that is remembered, of as many
// as there are iterations; 10 holds a client.
func BenchmarkHoldBytes(b *testing.B) {
	server := testredis.Start(b)
	store, _ := storeOn(b, dial(b, server.URL()), redisstore.Options{})
	used := func() int {
		info, err := server.Info("memory")
		if err != nil {
			b.Fatal(err)
		}
		n, err := strconv.Atoi(info["used_memory"])
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	policy := policyOf(b, "p", stint.SlidingWindowCounter(1_000_000, time.Hour))
	each := func(verb stint.Verb) {
		var group sync.WaitGroup
		for worker := range 256 {
			group.Go(func() {
				for i := worker; i < b.N; i += 256 {
					h := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprintf("7f3c9a52-0b1e-4f5d-9c3a-%012d", i), TTL: time.Hour}}
					claim := stint.Claim{Key: fmt.Sprintf("user:%d", i/10), Policy: policy, Permits: 2}
					mustDecide(b, store, stint.Op{Verb: verb, Claim: claim, Extra: &stint.Extra{Hold: &h}})
				}
			})
		}
		group.Wait()
	}
	empty := used()
	each(stint.VerbReserve)
	held := used()
	each(stint.VerbCommit)
	ended := used()
	b.ReportMetric(float64(held-empty)/float64(b.N), "B/hold")
	b.ReportMetric(float64(ended-empty)/float64(b.N), "B/end_and_tenth_of_a_client")
}
