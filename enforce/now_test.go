package enforce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Where nothing can be held, what rules would hold is denied at once, and nobody is admitted before
// those who wait.
func TestDecideNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costs := waiting("a", time.Minute, 0, stint.TokenBucket(4, stint.PerSecond(1)))
		costs.Cost = rules.Cost{Attribute: "cost"}
		limiter, _ := newLimiter(t, costs)
		request := func(cost string) rules.Request {
			r := alice
			r.Attributes = map[string]string{"cost": cost}
			return r
		}
		now := func(cost string, allowed bool, retry time.Duration) {
			t.Helper()
			start, r := time.Now(), request(cost)
			var v enforce.Verdict
			must.Do(t, limiter.DecideNow(t.Context(), &r, &v))
			if v.Allowed != allowed || v.Decision.RetryAfter != retry || v.Held != 0 || time.Since(start) != 0 {
				t.Errorf("cost %s: allowed %t, retry after %s, held %s until %s; want %t, %s and no wait",
					cost, v.Allowed, v.Decision.RetryAfter, v.Held, time.Since(start), allowed, retry)
			}
		}
		now("3", true, 0)
		now("3", false, 2*time.Second)

		ctx, cancel := context.WithCancel(t.Context())
		var held enforce.Verdict
		ended := make(chan error, 1)
		go func() {
			r := request("2")
			ended <- limiter.Decide(ctx, &r, &held)
		}()
		synctest.Wait()
		now("1", false, time.Minute) // there is a permit, but somebody waits for two
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		now("1", true, 0)
	})
}

// A turn of a leaky bucket that lies ahead can't be waited for either.
func TestDecideNowTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, waiting("a", time.Minute, 0, stint.LeakyBucket(3, stint.PerSecond(5))))
		for _, allowed := range []bool{true, false, false} {
			var v enforce.Verdict
			if err := limiter.DecideNow(t.Context(), &alice, &v); err != nil || v.Allowed != allowed || v.Decision.Delay != 0 {
				t.Errorf("allowed %t, delay %s (%v); want %t", v.Allowed, v.Decision.Delay, err, allowed)
			}
		}
		<-time.After(200 * time.Millisecond) // nobody took the next turn
		var v enforce.Verdict
		if err := limiter.DecideNow(t.Context(), &alice, &v); err != nil || !v.Allowed {
			t.Errorf("when the turn has come: %+v (%v)", v.Decision, err)
		}
	})
}

// slow is a store whose calls take time.
type slow struct {
	stint.Store
	takes time.Duration
}

func (s slow) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	<-time.After(s.takes)
	return s.Store.Decide(ctx, op)
}

// A turn that has come is not waited for, however little time is left to ask for it.
func TestTurnsOfASlowStore(t *testing.T) {
	for _, test := range []struct {
		name   string
		decide func(*enforce.Limiter, context.Context, *rules.Request, *enforce.Verdict) error
	}{{"Decide", (*enforce.Limiter).Decide}, {"DecideNow", (*enforce.Limiter).DecideNow}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := must.Get(enforce.New(enforce.Config{
					Store: slow{memstore.New(memstore.Config{Now: steady}), 2 * time.Millisecond},
					Set:   setOf(t, nil, waiting("a", time.Millisecond, 0, stint.LeakyBucket(3, stint.PerSecond(100)))),
				}))(t)
				for i, allowed := range []bool{true, false, true} { // the turns are 10ms apart
					var v enforce.Verdict
					if err := test.decide(limiter, t.Context(), &alice, &v); err != nil || v.Allowed != allowed || v.Held != 0 {
						t.Errorf("request %d: allowed %t, held %s (%v); want %t and no wait", i, v.Allowed, v.Held, err, allowed)
					}
					if !allowed {
						<-time.After(10 * time.Millisecond)
					}
				}
			})
		})
	}
}
