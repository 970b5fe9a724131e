package failover_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/storetest"
)

// settled waits until nothing is left to charge.
func (f *fixture) settled() {
	f.t.Helper()
	for start := time.Now(); f.Stats().Touched > 0; {
		if time.Since(start) > time.Minute {
			f.t.Fatalf("%d clients are not charged", f.Stats().Touched)
		}
		<-time.After(time.Millisecond)
	}
	<-time.After(20 * time.Millisecond) // the last batch is under way
	synctest.Wait()
}

// peek is what the store has left, by limit.
func (f *fixture) peek(store stint.Store, key string, p *stint.Policy) []int64 {
	f.t.Helper()
	o := op(stint.Peek, key, p, 1)
	o.Each = make([]stint.Outcome, p.Len())
	if _, err := store.Decide(f.t.Context(), o); err != nil {
		f.t.Fatal(err)
	}
	var left []int64
	for _, out := range o.Each {
		left = append(left, out.Remaining)
	}
	return left
}

// What was spent locally is charged to the store once, each limit for itself, and the
// local states are as new.
func TestChargesWhatWasSpent(t *testing.T) {
	hour := time.Hour
	limits := []stint.Limit{
		stint.TokenBucket(40, stint.PerHour(1)), stint.LeakyBucket(40, stint.PerHour(1)), stint.FixedWindow(40, 100*hour),
		stint.SlidingWindowLog(40, hour), stint.SlidingWindowCounter(40, 100*hour),
	}
	policies := map[string][]stint.Limit{"all": limits}
	for _, l := range limits {
		policies[l.Algorithm.String()] = []stint.Limit{l}
	}
	for name, limits := range policies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFixture(t, local(2)), policy(t, name, limits...)
				f.must("k", p)
				f.lose(p) // the first decision, on another key
				for i := range int64(5) {
					if d := f.must("k", p); !d.Allowed || d.Remaining != 19-i {
						t.Fatalf("request %d: %+v", i, d)
					}
				}
				f.regain()
				f.settled()
				for i, left := range f.peek(f.inner, "k", p) {
					if left != 34 {
						t.Errorf("%s: %d left, want 34 of 40, after one and five", limits[i].Algorithm, left)
					}
				}
				for i, left := range f.peek(f.inner, "lose", p) {
					if left != 39 {
						t.Errorf("%s: %d left of the other, want 39", limits[i].Algorithm, left)
					}
				}
				if s := f.Stats(); s.Charged != uint64(6*len(limits)) || s.Dropped != 0 {
					t.Errorf("%+v, want %d charged", s, 6*len(limits))
				}
				// The next time it starts with a full share, and nothing is charged twice.
				f.lose(policy(t, "other", limits...))
				if d := f.must("k", p); d.Remaining != 19 {
					t.Errorf("away again: %+v", d)
				}
				f.regain()
				f.settled()
				for i, left := range f.peek(f.inner, "k", p) {
					if left != 33 {
						t.Errorf("%s: %d left, want 33", limits[i].Algorithm, left)
					}
				}
			})
		})
	}
}

// What has refilled by the time the store is back is not charged.
func TestChargesOnlyWhatStillCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local(2))
		p := policy(t, "", stint.TokenBucket(40, stint.PerSecond(2)), stint.FixedWindow(40, time.Second), stint.SlidingWindowLog(40, time.Hour))
		f.lose(policy(t, "other", stint.FixedWindow(4, time.Hour)))
		for range 10 {
			f.must("k", p)
		}
		<-time.After(4 * time.Second) // 4 of 10 come back
		f.regain()
		f.settled()
		left := f.peek(f.inner, "k", p)
		if left[0] < 34 || left[0] > 36 || left[1] != 40 || left[2] != 30 {
			t.Errorf("left %v, want some 35, 40 and 30", left)
		}
	})
}

// A store that goes away while it is charged is charged the rest when it is back.
func TestChargingIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 2000
		f, p := newFixture(t, local(1)), policy(t, "", stint.FixedWindow(10, 1000*time.Hour))
		f.lose(p)
		for i := range clients {
			f.must(fmt.Sprint("client", i), p)
		}
		var batches atomic.Int64
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			if c.Batch && len(c.Ops) > 256 {
				t.Errorf("a batch of %d", len(c.Ops))
			}
			return storetest.Fault{Block: c.Batch && batches.Add(1) == 3}
		})
		for start := time.Now(); batches.Load() < 3; {
			if time.Since(start) > time.Minute {
				t.Fatal("nothing is charged")
			}
			<-time.After(time.Millisecond)
		}
		<-time.After(timeout)
		synctest.Wait()
		s := f.Stats()
		if s.Unreachable != 1 || s.Touched != clients+1-3*256 || s.Dropped != 256 || s.Charged != 2*256 {
			t.Errorf("interrupted: %+v", s)
		}
		f.regain()
		f.settled()
		charged := 0
		for i := range clients {
			if f.peek(f.inner, fmt.Sprint("client", i), p)[0] == 9 {
				charged++
			}
		}
		if s := f.Stats(); s.Dropped != 256 || s.Charged != clients+1-256 || charged < clients-256 {
			t.Errorf("%+v, %d clients are charged", s, charged)
		}
	})
}

// Batches of clients with nothing to charge don't end the charging.
func TestChargingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, local(1))
		brief := policy(t, "brief", stint.FixedWindow(10, time.Millisecond))
		lasting := policy(t, "lasting", stint.FixedWindow(10, 1000*time.Hour))
		f.lose(brief)
		const clients = 1500
		for i := range clients {
			f.must(fmt.Sprint(i), brief)
		}
		f.must("k", lasting)
		<-time.After(time.Millisecond)
		f.regain()
		f.settled()
		if s := f.Stats(); s.Charged != 1 || s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
		f.lose(lasting) // nothing of the last time is in the way
		f.regain()
		f.settled()
		if s := f.Stats(); s.Charged != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Clients beyond the bound are not remembered, and counted.
func TestTouchedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFixture(t, local(1)), policy(t, "", stint.FixedWindow(10, 1000*time.Hour))
		f.lose(p)
		for i := range failover.MaxTouched + 10 {
			f.must(fmt.Sprint(i), p)
		}
		if s := f.Stats(); s.Touched != failover.MaxTouched || s.Dropped != 11 {
			t.Errorf("%+v", s)
		}
		f.regain()
		f.settled()
		if s := f.Stats(); s.Charged != failover.MaxTouched {
			t.Errorf("%+v", s)
		}
	})
}

// A call that fails while the store stays up is decided locally, and charged when the
// store has answered another.
func TestSingleFailureIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFixture(t, local(1)), policy(t, "", stint.FixedWindow(10, 1000*time.Hour))
		f.must("k", p)
		f.faulty.Inject(failWith(errRefused))
		if d := f.must("k", p); !d.Degraded || !d.Allowed {
			t.Fatalf("%+v", d)
		}
		<-time.After(time.Minute)
		if d := f.must("k", p); !d.Degraded || d.Remaining != 8 {
			t.Errorf("a minute later, nothing having been heard: %+v", d)
		}
		f.faulty.Inject(nil)
		f.must("other", p)
		f.settled()
		if left := f.peek(f.inner, "k", p)[0]; left != 7 || f.Down() != nil {
			t.Errorf("%d left, want 7; down: %+v", left, f.Down())
		}
	})
}

// Around an outage a client gets at most what the limit and the shares admit, and
// when it has been charged, the limit alone counts again.
func TestBoundAcrossAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, processes = 60, 3
		var fs [processes]*fixture
		for i := range fs {
			fs[i] = newFixture(t, local(processes))
		}
		// The processes share the first one's store.
		shared := fs[0].faulty
		for i := range fs {
			store, err := failover.New(failover.Config{
				Store: shared, Local: fs[i].local, Mode: failover.Local, Instances: func() int { return processes },
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Close)
			fs[i].Store = store
		}
		p := policy(t, "", stint.FixedWindow(limit, 1000*time.Hour))
		admitted := 0
		hammer := func(times int) {
			for range times {
				for _, f := range fs {
					if f.must("k", p).Allowed {
						admitted++
					}
				}
			}
		}
		shared.Inject(silence)
		hammer(2 * limit)
		if admitted != limit {
			t.Errorf("%d admitted while away, want the shares' %d", admitted, limit)
		}
		shared.Inject(nil)
		for _, f := range fs {
			f.regain()
			f.settled()
		}
		hammer(limit)
		if admitted != limit {
			t.Errorf("%d admitted in all, want %d once it is charged", admitted, limit)
		}
	})
}
