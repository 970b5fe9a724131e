package enforce_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// withoutStore makes a limiter whose store is unreachable, so that the mode answers.
func withoutStore(t *testing.T, mode failover.Mode, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	away := storetest.NewFaulty(memstore.New(memstore.Config{Now: steady}))
	away.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: errors.New("away")} })
	store := must.Get(failover.New(away, failover.Config{
		Mode: mode, Local: memstore.New(memstore.Config{Now: steady}), Instances: func() int { return 1 },
	}))(t)
	t.Cleanup(store.Close)
	return must.Get(enforce.New(enforce.Config{Store: store, Set: setOf(t, nil, list...)}))(t)
}

// The failure policy answers for rules that wait for turns as for all others.
func TestTurnsWhileTheStoreIsAway(t *testing.T) {
	patient := waiting("a", 2500*time.Millisecond, 0, stint.LeakyBucket(10, stint.PerSecond(1)))
	for mode, held := range map[failover.Mode][]time.Duration{
		failover.Open:  {0, 0, 0, 0, 0},
		failover.Local: {0, time.Second, 2 * time.Second, -1, -1}, // the last turns come too late
	} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ends := arrive(withoutStore(t, mode, patient), always(len(held), alice), t.Context())
				for _, end := range ends {
					want := held[end.number]
					after := end.after.Round(100 * time.Millisecond)
					if end.err != nil || end.allowed != (want >= 0) || after != max(want, 0) || !end.allowed && end.retry <= 0 {
						t.Errorf("%+v, want it admitted: %t, after %s", end, want >= 0, max(want, 0))
					}
				}
			})
		})
	}
	t.Run("closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			limiter := withoutStore(t, failover.Closed, patient)
			var v enforce.Verdict
			for range 5 {
				if err := limiter.Decide(t.Context(), &alice, &v); !errors.Is(err, stint.ErrUnavailable) || len(v.Claims()) != 1 {
					t.Errorf("%+v (%v), want no decision", v, err)
				}
			}
		})
	})
}

// A request that waits keeps its place while the store can't decide, and is admitted when it can; it fails when its rule
// would hold it no longer.
func TestWaitingOutlastsAnOutage(t *testing.T) {
	for outage, want := range map[time.Duration]struct {
		err    error
		lasted time.Duration // at least; a second later at most
	}{
		3 * time.Second: {nil, 4 * time.Second},
		time.Minute:     {stint.ErrOverloaded, 9 * time.Second},
	} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(memstore.New(memstore.Config{}))
				limiter, err := enforce.New(enforce.Config{
					Store: store, Set: setOf(t, nil, waiting("a", 10*time.Second, 5, stint.TokenBucket(1, stint.Every(2*time.Second)))),
				})
				if err != nil {
					t.Fatal(err)
				}
				var v enforce.Verdict
				if err := limiter.Decide(t.Context(), &alice, &v); err != nil || !v.Allowed {
					t.Fatal(v, err)
				}
				time.AfterFunc(time.Second, func() {
					store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrOverloaded} })
				})
				time.AfterFunc(time.Second+outage, func() { store.Inject(nil) })
				start := time.Now()
				err = limiter.Decide(t.Context(), &alice, &v)
				took := time.Since(start)
				if !errors.Is(err, want.err) || v.Allowed != (want.err == nil) || took < want.lasted || took > want.lasted+time.Second {
					t.Errorf("%t, %v after %v, want %v after %v", v.Allowed, err, took, want.err, want.lasted)
				}
				if n := store.Calls(); n < 5 || n > 30 {
					t.Errorf("the store was asked %d times", n)
				}
			})
		})
	}
}

// Once the store is unreachable, the failure policy also answers requests that arrive while others wait.
func TestGivingUpWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := storetest.NewFaulty(memstore.New(memstore.Config{Now: steady}))
		store := must.Get(failover.New(away, failover.Config{}))(t)
		defer store.Close()
		limiter := must.Get(enforce.New(enforce.Config{
			Store: store, Set: setOf(t, nil, waiting("a", time.Minute, 1, stint.TokenBucket(1, stint.PerSecond(1)))),
		}))(t)
		decide(t, limiter, alice)
		first := make(chan error, 1)
		go func() {
			var v enforce.Verdict
			r := alice
			first <- limiter.Decide(t.Context(), &r, &v)
		}()
		synctest.Wait() // it waits for the next permit, and the line is full
		away.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: errors.New("away")} })
		var v enforce.Verdict
		if err := limiter.Decide(t.Context(), &alice, &v); err != nil || !v.Allowed || !v.Decision.Degraded {
			t.Errorf("%+v (%v), want it admitted by the failure policy", v, err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}
