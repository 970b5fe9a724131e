package failover_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// remaining is what is left of a key in a store.
func remaining(t testing.TB, store stint.Store, key string, policy *stint.Policy) int64 {
	t.Helper()
	d, err := store.Decide(t.Context(), op(stint.Peek, key, policy, 1))
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// While the store is away nothing is forgotten. Afterwards the store and what was spent
// locally are, and nothing of it is charged; of another policy it is.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
		gone, kept := policy(t, "rule/a", stint.FixedWindow(100, time.Hour)), policy(t, "rule/b", stint.FixedWindow(100, time.Hour))
		spend := func(n int) {
			for range n {
				f.must("k", gone)
				f.must("k", kept)
			}
		}
		spend(5)
		f.lose(minutely(t))
		spend(3)
		if err := f.ForgetPolicy(t.Context(), "rule/a", nil); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("while the store is away: %v, want %v", err, stint.ErrUnavailable)
		}
		if inner, local := remaining(t, f.inner, "k", gone), remaining(t, f.local, "k", gone); inner != 95 || local != 97 {
			t.Errorf("%d remain in the store and %d locally, want 95 and 97", inner, local)
		}
		f.regain()                                      // and before the first charge
		if touched := f.Stats().Touched; touched != 3 { // one is of losing it
			t.Fatalf("the spending of %d clients is to be charged, want 3", touched)
		}
		var last stint.ForgetProgress
		if err := f.ForgetPolicy(t.Context(), "rule/a", func(p stint.ForgetProgress) { last = p }); err != nil {
			t.Fatal(err)
		}
		if last.States != 1 || last.Done != last.Total {
			t.Errorf("the progress was %+v, want 1 state of the store", last)
		}
		<-time.After(time.Minute) // charges are made
		synctest.Wait()
		if inner, local := remaining(t, f.inner, "k", gone), remaining(t, f.local, "k", gone); inner != 100 || local != 100 {
			t.Errorf("%d remain in the store and %d locally, want 100", inner, local)
		}
		if inner := remaining(t, f.inner, "k", kept); inner != 92 {
			t.Errorf("%d of the other policy remain, want 92", inner)
		}
	})
}

// If the store fails to forget, what was spent locally is charged as if nothing had been
// asked; nothing is charged meanwhile.
func TestForgetFailsBeforeCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
		spent := policy(t, "rule/a", stint.FixedWindow(100, 24*time.Hour))
		f.lose(minutely(t))
		for range 3 {
			f.must("k", spent)
		}
		f.regain() // and before the first charge
		var charges atomic.Int64
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			if c.Batch {
				charges.Add(1)
			}
			if !c.Forget {
				return storetest.Fault{}
			}
			<-time.After(timeout / 2) // charges would be made
			if local := remaining(t, f.local, "k", spent); charges.Load() != 0 || local != 97 {
				t.Errorf("%d charges; %d remain locally, want none and 97", charges.Load(), local)
			}
			return storetest.Fault{Err: errors.New("broken")}
		})
		if err := f.ForgetPolicy(t.Context(), "rule/a", nil); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, stint.ErrUnavailable)
		}
		f.settled()
		if inner := remaining(t, f.inner, "k", spent); inner != 97 {
			t.Errorf("%d remain in the store, want 97", inner)
		}
	})
}

// Closing does not wait for the forgetting of a store that takes its time.
func TestCloseWhileForgetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
		f.lose(minutely(t))
		f.must("k", policy(t, "rule/b", stint.FixedWindow(100, time.Hour)))
		f.regain()
		forget := make(chan struct{})
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			if c.Forget {
				<-forget
			}
			return storetest.Fault{}
		})
		done := make(chan error, 1)
		go func() { done <- f.ForgetPolicy(t.Context(), "rule/a", nil) }()
		<-time.After(timeout / 2) // a batch of charges waits
		start := time.Now()
		f.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %s", took)
		}
		close(forget)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A charge that is under way is waited for, so that it does not come after.
func TestForgetWaitsForCharges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
		gone := policy(t, "rule/a", stint.FixedWindow(100, time.Hour))
		f.lose(minutely(t))
		f.must("k", gone)
		charging, charge := make(chan struct{}), make(chan struct{})
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			if c.Batch {
				close(charging)
				<-charge
			}
			return storetest.Fault{}
		})
		<-charging
		done := make(chan error, 1)
		go func() { done <- f.ForgetPolicy(t.Context(), "rule/a", nil) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it did not wait for the charge: %v", err)
		default:
		}
		close(charge)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if inner := remaining(t, f.inner, "k", gone); inner != 100 {
			t.Errorf("%d of 100 remain", inner)
		}
	})
}

// slow is a store that takes its time for each step of forgetting.
type slow struct {
	stint.Store
	steps int
	takes func(step int) time.Duration
}

func (s slow) ForgetPolicy(ctx context.Context, _ string, progress func(stint.ForgetProgress)) error {
	for step := range s.steps {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.takes(step)):
		}
		progress(stint.ForgetProgress{Done: int64(step + 1), Total: int64(s.steps)})
	}
	return nil
}

// The deadline of a call is that of each step. What the caller does in between is not
// the store's time.
func TestForgetDeadlines(t *testing.T) {
	const steps = 50
	for name, row := range map[string]struct {
		takes    func(step int) time.Duration
		caller   time.Duration // takes after each step
		deadline time.Duration // of the caller's; 0 for none
		err      error         // or nil
		within   time.Duration
		probes   uint64
	}{
		"long":          {func(int) time.Duration { return timeout - 1 }, 0, 0, nil, steps * timeout, 0},
		"a slow caller": {func(int) time.Duration { return timeout / 2 }, time.Minute, 0, nil, steps * 2 * time.Minute, 0},
		"a long step": {func(step int) time.Duration {
			if step == 3 {
				return time.Hour
			}
			return 0
		}, 0, 0, stint.ErrUnavailable, timeout, 1},
		"the caller's deadline": {func(int) time.Duration { return timeout / 2 }, 0, 10 * timeout, context.DeadlineExceeded, 10 * timeout, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := failover.New(failover.Config{Store: slow{memstore.New(memstore.Config{}), steps, row.takes}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(store.Close)
				ctx := t.Context()
				if row.deadline > 0 {
					ctx = within(t, row.deadline)
				}
				start, told := time.Now(), 0
				err = store.ForgetPolicy(ctx, "rule/a", func(stint.ForgetProgress) {
					told++
					<-time.After(row.caller)
				})
				if !errors.Is(err, row.err) || err != nil && row.err == nil {
					t.Errorf("got %v, want %v", err, row.err)
				}
				if row.deadline > 0 && errors.Is(err, stint.ErrUnavailable) {
					t.Errorf("got %v, which blames the store", err)
				}
				if took := time.Since(start); took > row.within {
					t.Errorf("it took %s, want %s at most", took, row.within)
				}
				if row.err == nil && told != steps {
					t.Errorf("%d steps were told of %d", told, steps)
				}
				synctest.Wait()
				if probes := store.Stats().Probes; probes != row.probes {
					t.Errorf("%d probes, want %d", probes, row.probes)
				}
			})
		})
	}
}

// What a store fails with makes it unavailable; stores that can't are invalid.
func TestForgetFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		f := newFixture(t, nil)
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			if c.Forget && c.Number > 5 {
				return storetest.Fault{Err: broken}
			}
			return storetest.Fault{}
		})
		if err := f.ForgetPolicy(t.Context(), "", nil); !errors.Is(err, stint.ErrUnavailable) || !errors.Is(err, broken) {
			t.Errorf("got %v, want %v of %v", err, stint.ErrUnavailable, broken)
		}
		if s := f.Stats(); s.Errors != 1 {
			t.Errorf("%+v, want an error", s)
		}
	})
	memory := memstore.New(memstore.Config{})
	mute := struct{ stint.Store }{memory}
	for want, config := range map[string]failover.Config{
		"store is": {Store: mute}, "local store is": {Store: memory, Local: mute},
	} {
		store, err := failover.New(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.ForgetPolicy(t.Context(), "", nil); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		store.Close()
	}
}
