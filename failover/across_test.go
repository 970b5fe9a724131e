package failover_test

import (
	"math/big"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// counting makes a fixture of a process that counts so many, and the count.
func counting(t testing.TB, processes int) (*fixture, *atomic.Int64) {
	n := new(atomic.Int64)
	n.Store(int64(processes))
	return newFixture(t, func(c *failover.Config) {
		c.Mode, c.Instances = failover.Local, func() int { return int(n.Load()) }
	}), n
}

// However often the store goes away in a day: all outages together give a client one share.
func TestShareIsSpentAcrossOutages(t *testing.T) {
	for name, limit := range map[string]stint.Limit{
		"window": stint.FixedWindow(10, 24*time.Hour), "log": stint.SlidingWindowLog(10, 24*time.Hour),
		"counter": stint.SlidingWindowCounter(10, 24*time.Hour), "bucket": stint.TokenBucket(10, stint.Per(1, 30*24*time.Hour)),
		"without debt": stint.FixedWindow(10, 24*time.Hour).WithMaxDebt(stint.NoDebt),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFixture(t, local(2)), policy(t, "", limit)
				other := policy(t, "other", stint.FixedWindow(1000, time.Hour))
				admitted := 0
				hammer := func() {
					for range 20 {
						if f.must("k", p).Allowed {
							admitted++
						}
					}
				}
				hammer()
				for range 15 {
					f.lose(other)
					hammer()
					f.regain()
					hammer()
				}
				if admitted != 10+5 {
					t.Errorf("%d admitted, want the limit's 10 and the share's 5", admitted)
				}
			})
		})
	}
}

// What was admitted by the share of one of few processes counts, though there are more
// now; and a process that has gone counts for as long as it may have spent its share.
func TestInstancesChangeInAnOutage(t *testing.T) {
	day := 24 * time.Hour
	for name, limit := range map[string]stint.Limit{
		"window": stint.FixedWindow(100, 300*day), "log": stint.SlidingWindowLog(100, 300*day),
		"counter": stint.SlidingWindowCounter(100, 300*day), "bucket": stint.TokenBucket(100, stint.Per(1, 10*day)),
		"leaky": stint.LeakyBucket(100, stint.Per(1, 10*day)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, row := range []struct{ before, after, want int }{{1, 4, 100}, {4, 1, 25}, {4, 2, 25}, {2, 4, 50}} {
				synctest.Test(t, func(t *testing.T) {
					f, n := counting(t, row.before)
					p, other := policy(t, "", limit), policy(t, "other", stint.FixedWindow(1000, time.Hour))
					f.lose(other)
					admitted := 0
					hammer := func() {
						for range 150 {
							if f.must("k", p).Allowed {
								admitted++
							}
						}
					}
					hammer()
					n.Store(int64(row.after))
					hammer()
					if admitted != row.want {
						t.Errorf("%d to %d instances: %d admitted, want %d", row.before, row.after, admitted, row.want)
					}
				})
			}
		})
	}
}

// A number that fell counts for the shares of a policy once the policy's longest life is
// over; one that rose does at once.
func TestLostInstancesCountOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, n := counting(t, 4)
		brief, long := policy(t, "brief", stint.FixedWindow(100, time.Minute)), policy(t, "long", stint.SlidingWindowLog(100, time.Hour))
		f.lose(policy(t, "other", stint.FixedWindow(1000, time.Hour)))
		check := func(what string, of, ofLong int64) {
			t.Helper()
			if got := f.must("k", brief).Limit; got != of {
				t.Errorf("%s: a share of %d of 100 a minute, want %d", what, got, of)
			}
			if got := f.must("k", long).Limit; got != ofLong {
				t.Errorf("%s: a share of %d of 100 an hour, want %d", what, got, ofLong)
			}
		}
		check("four", 25, 25)
		n.Store(2)
		check("two are lost", 25, 25)
		<-time.After(time.Minute + time.Second)
		check("a minute later", 50, 25)
		n.Store(5)
		check("three come", 20, 20)
		n.Store(1)
		<-time.After(time.Minute + time.Second)
		check("four are lost", 20, 20) // until now five were seen last a minute ago, by nobody
		<-time.After(time.Minute + time.Second)
		check("a minute later", 100, 20)
		<-time.After(time.Hour)
		check("an hour later", 100, 100)
		for _, none := range []int64{0, -3} { // this process is one
			n.Store(none)
			check("none", 100, 100)
		}
	})
}

// An admission is how much was admitted, and when.
type admission struct {
	at      time.Time
	permits int64
}

// The bound of the package's documentation, over random outages, numbers of processes,
// clocks and requests, in exact arithmetic.
func TestBoundOverOutages(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for name, limitOf := range map[string]func(capacity int64) stint.Limit{
		"window":       func(c int64) stint.Limit { return stint.FixedWindow(c, time.Minute) },
		"log":          func(c int64) stint.Limit { return stint.SlidingWindowLog(c, time.Minute) },
		"counter":      func(c int64) stint.Limit { return stint.SlidingWindowCounter(c, time.Minute) },
		"bucket":       func(c int64) stint.Limit { return stint.TokenBucket(c, stint.PerMinute(7)) },
		"leaky bucket": func(c int64) stint.Limit { return stint.LeakyBucket(c, stint.PerMinute(7)) },
	} {
		t.Run(name, func(t *testing.T) {
			for round := range rounds {
				synctest.Test(t, func(t *testing.T) {
					random := rand.New(rand.NewPCG(uint64(round), 8))
					limit := limitOf(1 + random.Int64N(30))
					if random.IntN(3) == 0 {
						limit = limit.WithMaxDebt(stint.NoDebt)
					}
					admitted, shares := outages(t, random, limit)
					checkBound(t, limit, shares, admitted)
				})
			}
		})
	}
}

// outages has processes decide about one client, while each of them loses the store now
// and then. It returns what was admitted, and the sum of the processes' largest shares.
func outages(t *testing.T, random *rand.Rand, limit stint.Limit) (admitted []admission, shares int64) {
	inner := memstore.New(memstore.Config{Now: time.Now})
	type process struct {
		*failover.Store
		faulty *storetest.Faulty
		count  atomic.Int64
		least  int
	}
	p := policy(t, "", limit)
	processes := make([]*process, 1+random.IntN(4))
	changes := random.IntN(2) == 0
	for i := range processes {
		one := &process{faulty: storetest.NewFaulty(inner), least: len(processes)}
		one.count.Store(int64(one.least))
		store := must.Get(failover.New(one.faulty, failover.Config{
			Local: memstore.New(memstore.Config{Now: time.Now}), Mode: failover.Local,
			Instances: func() int { return int(one.count.Load()) },
		}))(t)
		defer store.Close()
		one.Store, processes[i] = store, one
	}
	faults := []storetest.Fault{{}, {Err: errRefused}, {Block: true}, {Block: true, After: true}, {Err: errRefused, After: true}}
	pauses := []time.Duration{0, time.Millisecond, 30 * time.Millisecond, time.Second, 10 * time.Second, time.Minute}
	for range 600 {
		one := processes[random.IntN(len(processes))]
		switch random.IntN(20) {
		case 0, 1: // its store comes and goes, more often than not it is there
			fault := storetest.Fault{}
			if random.IntN(2) == 0 {
				fault = faults[random.IntN(len(faults))]
			}
			one.faulty.Inject(func(storetest.Call) storetest.Fault { return fault })
		case 2, 3:
			if wait := pauses[random.IntN(len(pauses))]; wait > 0 {
				<-time.After(time.Duration(random.Int64N(int64(wait))).Truncate(time.Microsecond))
			}
		case 4:
			if changes {
				n := 1 + random.IntN(5)
				one.count.Store(int64(n))
				one.least = min(one.least, n)
			}
		default:
			n := 1 + random.Int64N(min(3, limit.Capacity))
			d := must.Get(one.Decide(t.Context(), op(stint.VerbTake, "k", p, n)))(t)
			if d.Allowed {
				admitted = append(admitted, admission{time.Now(), n})
			}
		}
	}
	for _, one := range processes {
		shares += max(1, limit.Capacity/int64(one.least))
	}
	return admitted, shares
}

// checkBound checks that in no span more was admitted than the limit and the shares allow.
func checkBound(t *testing.T, limit stint.Limit, shares int64, admitted []admission) {
	t.Helper()
	for first := range admitted {
		var sum int64
		for _, a := range admitted[first:] {
			span := a.at.Sub(admitted[first].at)
			switch limit.Algorithm {
			case stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowCounter:
				if !a.at.Truncate(limit.Window).Equal(admitted[first].at.Truncate(limit.Window)) {
					continue
				}
			case stint.AlgorithmSlidingWindowLog:
				if span >= limit.Window {
					continue
				}
			default: // of a bucket every span counts
			}
			sum += a.permits
			most := big.NewRat(limit.Capacity+shares, 1)
			if limit.IsBucket() {
				refill := big.NewRat(2*limit.Rate.Permits*span.Microseconds(), limit.Rate.Period.Microseconds())
				most.Add(most, refill)
			}
			if most.Cmp(new(big.Rat).SetInt64(sum)) < 0 {
				t.Fatalf("%s: %d admitted within %s, want at most %s, %d of them the shares'", limit.Algorithm, sum, span, most.FloatString(3), shares)
			}
		}
	}
}
