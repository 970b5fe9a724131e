package failover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// remaining is what is left of a key in a store.
func remaining(t testing.TB, store stint.Store, key string, policy *stint.Policy) int64 {
	t.Helper()
	d := must.Get(store.Decide(t.Context(), op(stint.VerbPeek, key, policy, 1)))(t)
	return d.Remaining
}

// While the store is unreachable nothing is reset. Afterwards the store and this process's shares
// are; of another policy they are not, unless all are reset.
func TestResets(t *testing.T) {
	for name, row := range map[string]struct {
		reset               func(f *fixture) error
		otherIn, otherLocal int64 // remain of the other policy, in the store and of the share
	}{
		"a policy": {func(f *fixture) error { return f.ResetAll(f.t.Context(), stint.Scope{Policy: "rule/a"}) }, 95, 97},
		"all":      {func(f *fixture) error { return f.ResetAll(f.t.Context(), stint.Scope{All: true}) }, 100, 100},
		"a client": {func(f *fixture) error {
			_, err := f.Decide(f.t.Context(), op(stint.VerbReset, "k", policy(f.t, "rule/a", stint.FixedWindow(100, time.Hour)), 0))
			return err
		}, 95, 97},
		"a client in a batch": {func(f *fixture) error {
			results := make([]stint.Result, 1)
			f.DecideAll(f.t.Context(), []stint.Op{op(stint.VerbReset, "k", policy(f.t, "rule/a", stint.FixedWindow(100, time.Hour)), 0)}, results)
			return results[0].Err
		}, 95, 97},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
				spent, other := policy(t, "rule/a", stint.FixedWindow(100, time.Hour)), policy(t, "rule/b", stint.FixedWindow(100, time.Hour))
				spend := func(n int) {
					for range n {
						f.must("k", spent)
						f.must("k", other)
					}
				}
				spend(5)
				f.lose(minutely(t))
				spend(3)
				if err := row.reset(f); !errors.Is(err, stint.ErrUnavailable) {
					t.Errorf("while the store is away: %v, want %v", err, stint.ErrUnavailable)
				}
				if inner, local := remaining(t, f.inner, "k", spent), remaining(t, f.local, "k", spent); inner != 95 || local != 97 {
					t.Errorf("%d remain in the store and %d locally, want 95 and 97", inner, local)
				}
				f.regain()
				must.Do(t, row.reset(f))
				if inner, local := remaining(t, f.inner, "k", spent), remaining(t, f.local, "k", spent); inner != 100 || local != 100 {
					t.Errorf("%d remain in the store and %d locally, want 100", inner, local)
				}
				if inner, local := remaining(t, f.inner, "k", other), remaining(t, f.local, "k", other); inner != row.otherIn || local != row.otherLocal {
					t.Errorf("of the other policy %d remain in the store and %d locally, want %d and %d", inner, local, row.otherIn, row.otherLocal)
				}
			})
		})
	}
}

// Closing does not wait for the reset of a store that takes its time.
func TestCloseWhileResetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
		reset := make(chan struct{})
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			if c.Reset {
				<-reset
			}
			return storetest.Fault{}
		})
		done := make(chan error, 1)
		go func() { done <- f.ResetAll(t.Context(), stint.Scope{Policy: "rule/a"}) }()
		synctest.Wait() // it is under way
		start := time.Now()
		f.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %s", took)
		}
		close(reset)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// slow is a store whose resets take their time.
type slow struct {
	stint.Store
	takes time.Duration
}

func (s slow) ResetAll(ctx context.Context, _ stint.Scope) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.takes):
		return nil
	}
}

// A reset has the deadline of a call, or the caller's, which speaks against no store.
func TestResetDeadlines(t *testing.T) {
	for name, row := range map[string]struct {
		takes  time.Duration
		caller time.Duration // its deadline; 0 for none
		err    error         // or nil
		took   time.Duration
		probes uint64
	}{
		"in time":               {timeout - 1, 0, nil, timeout - 1, 0},
		"too long":              {time.Hour, 0, stint.ErrUnavailable, timeout, 1},
		"the caller's deadline": {timeout, timeout / 2, context.DeadlineExceeded, timeout / 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := must.Get(failover.New(slow{memstore.New(memstore.Config{}), row.takes}, failover.Config{}))(t)
				t.Cleanup(store.Close)
				ctx := t.Context()
				if row.caller > 0 {
					ctx = within(t, row.caller)
				}
				start := time.Now()
				err := store.ResetAll(ctx, stint.Scope{Policy: "rule/a"})
				if !errors.Is(err, row.err) || err != nil && row.err == nil {
					t.Errorf("got %v, want %v", err, row.err)
				}
				if row.caller > 0 && errors.Is(err, stint.ErrUnavailable) {
					t.Errorf("got %v, which blames the store", err)
				}
				if took := time.Since(start); took != row.took {
					t.Errorf("it took %s, want %s", took, row.took)
				}
				synctest.Wait()
				if probes := store.Stats().Probes; probes != row.probes {
					t.Errorf("%d probes, want %d", probes, row.probes)
				}
			})
		})
	}
}

// What a store fails with makes it unavailable, and the shares stay spent; an operation that it can't do is invalid.
func TestResetFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
		spent := policy(t, "rule/a", stint.FixedWindow(100, 24*time.Hour).FromFirst())
		f.lose(minutely(t))
		for range 3 {
			f.must("k", spent)
		}
		f.regain()
		broken, before := errors.New("broken"), f.Stats().Errors
		f.faulty.Inject(func(c storetest.Call) storetest.Fault {
			if c.Reset {
				return storetest.Fault{Err: broken}
			}
			return storetest.Fault{}
		})
		for i, of := range []string{"", "rule/a"} {
			err := f.ResetAll(t.Context(), stint.Scope{Policy: of})
			if !errors.Is(err, stint.ErrUnavailable) || !errors.Is(err, broken) {
				t.Errorf("got %v, want %v of %v", err, stint.ErrUnavailable, broken)
			}
			if n := f.Stats().Errors - before; n != uint64(i+1) {
				t.Errorf("%d errors, want %d", n, i+1)
			}
		}
		if local := remaining(t, f.local, "k", spent); local != 97 {
			t.Errorf("%d remain of the share, want 97", local)
		}
		f.faulty.Inject(failWith(stint.Invalid("scope", "all", "single clients")))
		if err := f.ResetAll(t.Context(), stint.Scope{All: true}); !errors.Is(err, stint.ErrInvalid) || errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, stint.ErrInvalid)
		}
	})
}

func (slow) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }
