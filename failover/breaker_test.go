package failover_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/storetest"
)

var errRefused = errors.New("connection refused")

// One caller pays one deadline for a store that has gone silent; later callers pay
// nothing.
func TestSilenceCostsOneDeadline(t *testing.T) {
	for name, take := range map[string]func(*fixture, *stint.Policy) (stint.Decision, error){
		"Decide": func(f *fixture, p *stint.Policy) (stint.Decision, error) { return f.take("k", p) },
		"DecideAll": func(f *fixture, p *stint.Policy) (stint.Decision, error) {
			results := make([]stint.Result, 3)
			f.DecideAll(f.t.Context(), []stint.Op{op(0, "j", p, 1), op(0, "k", p, 1), op(0, "l", p, 1)}, results)
			return results[1].Decision, results[1].Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
				if d := f.must("k", p); d.Degraded || d.Remaining != 99 {
					t.Fatalf("a store that is well: %+v", d)
				}
				f.faulty.Inject(silence)
				for i, want := range []time.Duration{timeout, 0, 0} {
					start := time.Now()
					d, err := take(f, p)
					if took := time.Since(start); err != nil || !d.Allowed || !d.Degraded || d.Source != stint.SourceFailurePolicy || took != want {
						t.Fatalf("call %d took %s, want %s: %+v, %v", i, took, want, d, err)
					}
				}
				down := f.Down()
				if len(down) != 1 || !errors.Is(down[0].Cause, watchdog.ErrSilent) {
					t.Errorf("down: %+v", down)
				}
				if took := f.regain(); took > 2*time.Second {
					t.Errorf("back after %s, want at most 2s", took)
				}
				if d := f.must("k", p); d.Degraded || d.Remaining != 98 {
					t.Errorf("back again: %+v", d)
				}
				changes := f.seen()
				if len(changes) != 2 || changes[0].Up || !changes[1].Up {
					t.Errorf("changes %+v", changes)
				}
			})
		})
	}
}

// The calls under way when the store falls silent wait for their deadlines and no
// longer, and count once.
func TestManyCallersAtTheSilence(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		f.faulty.Inject(silence)
		var group sync.WaitGroup
		for range 512 {
			group.Go(func() {
				start := time.Now()
				for range 5 {
					if d, err := f.take("k", p); err != nil || !d.Degraded {
						t.Errorf("%+v, %v", d, err)
					}
				}
				if took := time.Since(start); took > timeout {
					t.Errorf("five calls took %s, want a deadline", took)
				}
			})
		}
		group.Wait()
		if n := len(f.seen()); n != 1 {
			t.Errorf("%d changes, want 1", n)
		}
	})
}

// With answers in between, a call that runs into its deadline is but a failure.
func TestTimeoutsAmongAnswers(t *testing.T) {
	for name, answered := range map[string]func(*fixture, *stint.Policy) stint.Decision{
		"Decide": func(f *fixture, p *stint.Policy) stint.Decision { return f.must("k", p) },
		"DecideAll": func(f *fixture, p *stint.Policy) stint.Decision {
			results := make([]stint.Result, 2)
			f.DecideAll(f.t.Context(), []stint.Op{op(0, "k", p, 1), op(0, "l", p, 1)}, results)
			return results[0].Decision
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
				f.faulty.Inject(func(c storetest.Call) storetest.Fault { return storetest.Fault{Block: c.Ops[0].Key == "slow"} })
				for range 10 {
					var group sync.WaitGroup
					group.Go(func() {
						if d, err := f.take("slow", p); err != nil || !d.Degraded {
							t.Errorf("%+v, %v", d, err)
						}
					})
					<-time.After(timeout / 2)
					for range 2 {
						if d := answered(f, p); d.Degraded {
							t.Error("a call that the store answers is degraded")
						}
					}
					group.Wait()
				}
				if down := f.Down(); down != nil {
					t.Errorf("down: %+v", down)
				}
				if s := f.Stats(); s.Timeouts != 10 || s.Errors != 0 || s.Open != 10 {
					t.Errorf("%+v, want 10 timeouts", s)
				}
			})
		})
	}
}

func TestFailuresInARow(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		for range 5 { // two in a row, again and again
			f.faulty.Inject(failWith(errRefused))
			f.must("k", p)
			f.must("k", p)
			f.faulty.Inject(nil)
			f.must("k", p)
			f.must("k", p)
			f.must("k", p)
		}
		if down := f.Down(); down != nil {
			t.Fatalf("down: %+v", down)
		}
		f.faulty.Inject(failWith(errRefused))
		for range 3 {
			if f.Down() != nil {
				t.Error("down after fewer than three in a row")
			}
			f.must("k", p)
		}
		if down := f.Down(); len(down) != 1 || !errors.Is(down[0].Cause, errRefused) {
			t.Errorf("after three in a row: %+v", down)
		}
		f.must("k", p)
		if s := f.Stats(); s.Errors != 13 || s.Timeouts != 0 || s.Unreachable != 1 || s.Reachable != 0 {
			t.Errorf("%+v, want 13 errors", s)
		}
	})
}

// Failures that lie far apart take nothing away.
func TestFailuresAreForgotten(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		for range 30 {
			f.faulty.Inject(failWith(errRefused))
			f.must("k", p)
			f.faulty.Inject(nil)
			for range 3 {
				f.must("k", p)
				<-time.After(5 * time.Second)
			}
		}
		if n := len(f.seen()); n != 0 {
			t.Errorf("%d changes, want none", n)
		}
	})
}

// What the caller does to itself is returned as it is, and is no failure.
func TestCallersFaults(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		bad := op(stint.VerbTake, "", p, 1)
		for range 10 {
			if _, err := f.Decide(t.Context(), bad); !errors.Is(err, stint.ErrInvalid) {
				t.Errorf("an invalid operation: %v", err)
			}
		}
		f.faulty.Inject(func(c storetest.Call) storetest.Fault { return storetest.Fault{Block: c.Ops[0].Key == "k"} })
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(timeout/2, cancel)
			if _, err := f.Decide(ctx, op(0, "k", p, 1)); !errors.Is(err, context.Canceled) || errors.Is(err, stint.ErrUnavailable) {
				t.Errorf("a caller that goes: %v", err)
			}
			if _, err := f.Decide(within(t, timeout/2), op(0, "k", p, 1)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stint.ErrUnavailable) {
				t.Errorf("a caller with a deadline of its own: %v", err)
			}
			results := make([]stint.Result, 1)
			f.DecideAll(within(t, time.Microsecond), []stint.Op{op(0, "k", p, 1)}, results)
			if err := results[0].Err; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stint.ErrUnavailable) {
				t.Errorf("a batch with a deadline of its own: %v", err)
			}
		}
		// A store that gives up when the caller does.
		f.faulty.Inject(func(storetest.Call) storetest.Fault {
			<-time.After(timeout / 2)
			return storetest.Fault{Err: fmt.Errorf("%w: %w", stint.ErrUnavailable, watchdog.Late(errors.New("late")))}
		})
		for range 5 {
			if _, err := f.Decide(within(t, timeout/2), op(0, "k", p, 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller with a deadline of its own: %v", err)
			}
		}
		f.faulty.Inject(nil)
		<-time.After(time.Second)
		if s := f.Stats(); len(f.seen()) != 0 || s.Timeouts+s.Errors+s.Open != 0 {
			t.Errorf("changes %+v, %+v", f.seen(), s)
		}
	})
}

// The deadline of a context of the store's own is not taken for the caller's: the operation's Timeout has passed, or the
// process was too busy.
func TestStoresOwnDeadline(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{
		"the Timeout":       {Block: true},
		"the store's own":   {Err: fmt.Errorf("%w: %w", stint.ErrUnavailable, context.DeadlineExceeded)},
		"after the Timeout": {Block: true, Err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Closed })
				f.faulty.Inject(func(storetest.Call) storetest.Fault { return fault })
				_, err := f.Decide(t.Context(), op(0, "k", minutely(t), 1))
				late, is := errors.AsType[interface {
					error
					Timeout() bool
				}](err)
				if !is || !late.Timeout() || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want a Timeout that is no context's", err)
				}
				if !errors.Is(err, stint.ErrUnavailable) && !errors.Is(err, stint.ErrOverloaded) {
					t.Errorf("%v, want unavailable or overloaded", err)
				}
			})
		})
	}
}

// Callers with deadlines shorter than the store's don't take it away, but have it asked;
// so a dead store is noticed.
func TestHastyCallersRaiseSuspicion(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		f.faulty.Inject(silence)
		if _, err := f.Decide(within(t, timeout/2), op(0, "k", p, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.Down() != nil {
			t.Error("a caller's own deadline has taken the store away")
		}
		<-time.After(timeout + time.Millisecond)
		if f.Down() == nil {
			t.Error("nobody noticed that the store is dead")
		}
		if took := f.regain(); took > 2*time.Second {
			t.Errorf("back after %s", took)
		}
	})
}

// Calls that were sent before the store came back say nothing about what it is now.
func TestLateFailuresDoNotCount(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		f.faulty.Inject(silence)
		var group sync.WaitGroup
		group.Go(func() { f.must("first", p) })
		<-time.After(timeout - time.Millisecond)
		for range 10 { // they end when the store has long been back
			group.Go(func() { f.must("late", p) })
		}
		synctest.Wait()
		<-time.After(time.Millisecond)
		synctest.Wait()
		f.regain()
		group.Wait()
		if n := len(f.seen()); n != 2 {
			t.Errorf("%d changes, want 2: %+v", n, f.seen())
		}
	})
}

// There is one probe at a time, however many callers there are, and it writes.
func TestProbes(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		f.lose(p)
		var under, most, calls atomic.Int64
		var at []time.Duration
		start := time.Now()
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			most.Store(max(most.Load(), under.Add(1)))
			calls.Add(1)
			at = append(at, time.Since(start))
			if o := c.Ops[0]; o.Policy.Name() != "failover.probe" || o.Verb != stint.VerbTake || c.Batch {
				t.Errorf("the store is asked for %+v", o)
			}
			time.AfterFunc(timeout, func() { under.Add(-1) })
			return storetest.Fault{Block: true}
		})
		var group sync.WaitGroup
		for range 512 {
			group.Go(func() {
				for range 100 {
					f.must("k", p)
					<-time.After(100 * time.Millisecond)
				}
			})
		}
		group.Wait()
		took := time.Since(start)
		if most.Load() != 1 {
			t.Errorf("%d probes at a time", most.Load())
		}
		// A deadline and 250 to 750 ms apart, after the first few.
		if n := calls.Load(); n < int64(took/(850*time.Millisecond)) || n > int64(took/(350*time.Millisecond))+4 {
			t.Errorf("%d probes in %s, at %v", n, took, at)
		}
		if at[0] < 25*time.Millisecond || at[0] > 75*time.Millisecond {
			t.Errorf("the first probe after %s", at[0])
		}
	})
}

// A server that answers, but can't write, is not back.
func TestProbesNeedAWrite(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		f.lose(p)
		f.faulty.Inject(failWith(errors.New("READONLY You can't write against a read only replica")))
		<-time.After(10 * time.Second)
		if f.Down() == nil {
			t.Error("a read-only server is taken for back")
		}
		f.regain()
	})
}

// A store that has policies of its own, such as a service, is back when it refuses the probe's.
func TestProbeIsRefused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		refuse := func(c storetest.Call) storetest.Fault {
			if c.Ops[0].Policy.Name() == "failover.probe" {
				return storetest.Fault{Err: stint.Invalid("policy", "failover.probe", "minutely")}
			}
			return storetest.Fault{}
		}
		f.lose(p)
		f.faulty.Inject(refuse)
		<-time.After(time.Second)
		if f.Down() != nil {
			t.Errorf("it is still unreachable: %v", f.Down())
		}
		before := f.Stats().Open
		for range 10 {
			f.must("k", p)
		}
		if n := f.Stats().Open - before; n != 0 {
			t.Errorf("%d of 10 calls were not decided by the store", n)
		}
	})
}

// Close ends the probing; TestMain sees to it that nothing is left.
func TestClose(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		f.lose(p)
		<-time.After(time.Second)
		start := time.Now()
		f.Close()
		f.Close()
		if took := time.Since(start); took > timeout {
			t.Errorf("Close took %s", took)
		}
		probes := f.Stats().Probes
		<-time.After(10 * time.Second)
		if d := f.must("k", p); !d.Degraded || f.Stats().Probes != probes {
			t.Errorf("after Close: %+v, %d further probes", d, f.Stats().Probes-probes)
		}
	})
}

// A store that is in use is not probed; one that is idle is, so that an outage is told though nobody calls.
func TestIdleStoreIsProbed(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		for range 600 { // a minute
			f.must("k", p)
			<-time.After(100 * time.Millisecond)
		}
		if probes := f.Stats().Probes; probes != 0 {
			t.Errorf("%d probes while the store is in use", probes)
		}
		f.faulty.Inject(silence)
		<-time.After(2*failover.IdleProbe + 2*timeout)
		synctest.Wait()
		if len(f.Down()) != 1 || len(f.seen()) != 1 || f.seen()[0].Up {
			t.Errorf("a silent store that nobody asks: down %+v, told %+v", f.Down(), f.seen())
		}
		f.regain()
		probes := f.Stats().Probes
		<-time.After(time.Minute)
		if n := f.Stats().Probes - probes; n < uint64(time.Minute/failover.IdleProbe) || n > 2*uint64(time.Minute/failover.IdleProbe)+1 {
			t.Errorf("%d probes in an idle minute, want one every %s, or a little sooner", n, failover.IdleProbe)
		}
	})
}

// Whatever goes wrong: no call takes longer than a deadline, each is answered, and
// only a probe contacts an unreachable store.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			f, p := newFixture(t, nil), policy(t, "", stint.TokenBucket(1000, stint.PerSecond(1000)))
			chance := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			var kind int // of what goes wrong now
			f.faulty.Inject(func(c storetest.Call) storetest.Fault {
				mu.Lock()
				defer mu.Unlock()
				if len(f.Down()) > 0 && c.Ops[0].Policy == p {
					// A call may have been on its way when the store was taken away, at this instant.
					if since := time.Since(f.Down()[0].Since); since > 0 {
						t.Errorf("seed %d: the store is asked %s after it was taken away", seed, since)
					}
				}
				switch n := chance.IntN(10); {
				case kind == 0, kind == 3 && n < 5:
					return storetest.Fault{}
				case kind == 1 || n < 3:
					return storetest.Fault{Block: true, After: n < 2}
				default:
					return storetest.Fault{Err: errRefused, After: n < 6}
				}
			})
			var group sync.WaitGroup
			for caller := range 20 {
				own := rand.New(rand.NewPCG(seed, uint64(caller)))
				group.Go(func() {
					for range 200 {
						<-time.After(time.Duration(own.Int64N(int64(20 * time.Millisecond))))
						start := time.Now()
						d, err := f.take("k", p)
						if took := time.Since(start); err != nil || took > timeout {
							t.Errorf("seed %d: a call took %s: %+v, %v", seed, took, d, err)
						}
					}
				})
			}
			for range 10 {
				<-time.After(300 * time.Millisecond)
				mu.Lock()
				kind = chance.IntN(4)
				mu.Unlock()
			}
			group.Wait()
			f.regain()
			if d := f.must("k", p); d.Degraded {
				t.Errorf("seed %d: degraded although the store is back", seed)
			}
			for i, c := range f.seen() {
				if c.Up == (i%2 == 0) {
					t.Errorf("seed %d: changes %+v", seed, f.seen())
				}
			}
		})
	}
}

// A probe out of suspicion that is not answered, while others are, proves nothing: the
// store is not silent.
func TestSuspicionAmongAnswers(t *testing.T) {
	bubble(t, nil, func(t *testing.T, f *fixture, p *stint.Policy) {
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			return storetest.Fault{Block: c.Ops[0].Policy != p}
		})
		f.Probe()
		synctest.Wait()
		f.must("k", p)
		<-time.After(2 * timeout)
		if d := f.must("k", p); d.Degraded || len(f.Down()) > 0 {
			t.Errorf("a store that answers is away: %+v, %+v", d, f.Down())
		}
		if n := f.Stats().Probes; n != 1 {
			t.Errorf("%d probes, want 1", n)
		}
	})
}
