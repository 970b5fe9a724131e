package stint_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

var (
	errAway = fmt.Errorf("%w: %w", stint.ErrUnavailable, watchdog.Late(errors.New("no answer")))
	errBusy = fmt.Errorf("%w: too many wait", stint.ErrOverloaded)
)

// anOutage is a limiter on a store that fails as told.
func anOutage(t *testing.T, limit stint.Limit) (*storetest.Faulty, *stint.Limiter) {
	t.Helper()
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	limiter := must.Get(stint.New(store, "p", limit))(t)
	return store, limiter
}

// waits are the ways to wait for a permit.
var waits = map[string]struct {
	limit stint.Limit
	wait  func(ctx context.Context, l *stint.Limiter) error
}{
	"Wait": {stint.TokenBucket(1, stint.PerMinute(1)), func(ctx context.Context, l *stint.Limiter) error {
		_, err := l.Wait(ctx, "k")
		return err
	}},
	"Wait for a turn": {stint.LeakyBucket(2, stint.PerSecond(10)), func(ctx context.Context, l *stint.Limiter) error {
		_, err := l.Wait(ctx, "k")
		return err
	}},
	"ReserveWait": {stint.Concurrency(1), func(ctx context.Context, l *stint.Limiter) error {
		_, _, err := l.ReserveWait(ctx, "k", 1, stint.Hold{})
		return err
	}},
}

// "A store that can't decide for a while, and a process too busy to ask, end no wait: it is tried again, with backoff".
func TestWaitOutlastsAnOutage(t *testing.T) {
	for name, way := range waits {
		for _, cause := range []error{errAway, errBusy} {
			for _, bounded := range []bool{false, true} {
				t.Run(fmt.Sprint(name, ", ", cause, ", ", bounded), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						store, limiter := anOutage(t, way.limit)
						store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: cause} })
						const outage = 10 * time.Second
						time.AfterFunc(outage, func() { store.Inject(nil) })
						ctx, start := t.Context(), time.Now()
						if bounded {
							ctx = deadline(t, time.Hour)
						}
						must.Do(t, way.wait(ctx, limiter))
						if took := time.Since(start); took < outage || took > outage+time.Second {
							t.Errorf("it took %v", took)
						}
						if n := store.Calls(); n < 10 || n > 60 { // a pause is between a half and the whole of a second
							t.Errorf("the store was asked %d times", n)
						}
					})
				})
			}
		}
	}
}

// "until the context ends; the error then has the last cause".
func TestWaitEndsWithItsContext(t *testing.T) {
	for name, way := range waits {
		for _, fault := range []storetest.Fault{{Err: errAway}, {Err: errBusy}, {Err: errAway, After: true}} {
			t.Run(fmt.Sprint(name, ", ", fault), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, limiter := anOutage(t, way.limit)
					store.Inject(func(storetest.Call) storetest.Fault { return fault })
					start := time.Now()
					err := way.wait(deadline(t, 5*time.Second), limiter)
					if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fault.Err) || errors.Is(err, stint.ErrDeadline) {
						t.Errorf("%v, want the deadline and %v", err, fault.Err)
					}
					if took := time.Since(start); took != 5*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// What is wrong with the question, and what a caller's deadline does not allow, ends a wait at once, also after an
// outage.
func TestWaitThatIsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limiter := anOutage(t, stint.TokenBucket(1, stint.PerMinute(1)))
		start := time.Now()
		refused := errors.Join(stint.ErrUnavailable, stint.ErrInvalid)
		store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: refused} })
		if _, err := limiter.Wait(t.Context(), "k"); !errors.Is(err, stint.ErrInvalid) || time.Since(start) > 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		store.Inject(nil)
		must.Get(limiter.Allow(t.Context(), "k"))(t)
		store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: errAway} })
		time.AfterFunc(time.Second, func() { store.Inject(nil) })
		_, err := limiter.Wait(deadline(t, 30*time.Second), "k")
		if took := time.Since(start); !errors.Is(err, stint.ErrDeadline) || took > 3*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// Tries whose answers were lost hold once, also with a random ID; and not at all once nobody waits.
func TestReserveWaitHoldsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limiter := anOutage(t, stint.Concurrency(5))
		lost := func(c storetest.Call) storetest.Fault {
			if c.Ops[0].Verb != stint.VerbReserve {
				return storetest.Fault{}
			}
			return storetest.Fault{Err: errAway, After: true}
		}
		held := func() int {
			live := must.Get(limiter.Holds(t.Context(), "k"))(t)
			return len(live)
		}
		store.Inject(lost)
		time.AfterFunc(time.Second, func() { store.Inject(nil) })
		r, _, err := limiter.ReserveWait(t.Context(), "k", 1, stint.Hold{})
		if err != nil || !r.Replayed() || held() != 1 {
			t.Fatalf("%d are held, %v", held(), err)
		}
		must.Get(r.Commit(t.Context(), 1))(t)
		store.Inject(lost)
		for id, want := range map[string]int{"": 0, "mine": 1} {
			if _, _, err := limiter.ReserveWait(deadline(t, time.Second), "k", 1, stint.Hold{ID: id}); !errors.Is(err, errAway) {
				t.Error(err)
			}
			synctest.Wait()
			if n := held(); n != want {
				t.Errorf("%q: %d are held, want %d", id, n, want)
			}
			must.Do(t, limiter.Reset(t.Context(), "k"))
		}
	})
}

// deadline is a context that ends so much later.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
