package enforce_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// verbs are the ways to decide at once by rules that don't wait.
var verbs = map[string]func(*enforce.Limiter, context.Context, *rules.Request, *enforce.Verdict) error{
	"Decide": (*enforce.Limiter).Decide, "DecideNow": (*enforce.Limiter).DecideNow,
}

// A turn that comes after the context's deadline is left to others; rules in shadow see the request
// once. One that comes before is the caller's to hold for.
func TestLateTurns(t *testing.T) {
	for name, verb := range verbs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shadow := per("shadow", stint.FixedWindow(3, 24*365*time.Hour))
				shadow.OnExceed = rules.Shadow
				limiter, _ := newLimiter(t, per("turns", stint.LeakyBucket(5, stint.PerSecond(1))), per("wide", stint.TokenBucket(3, stint.PerHour(1))), shadow)
				decide(t, limiter, alice)
				for i, test := range []struct {
					last    time.Duration
					allowed bool
				}{{999 * time.Millisecond, false}, {999 * time.Millisecond, false}, {time.Second, true}} {
					ctx, cancel := context.WithTimeout(t.Context(), test.last)
					defer cancel()
					var v enforce.Verdict
					must.Do(t, verb(limiter, ctx, &alice, &v))
					if v.Allowed != test.allowed || test.allowed && (v.Decision.Delay != time.Second || v.Turn != 0) {
						t.Errorf("request %d: %+v, want it admitted: %t", i, v.Decision, test.allowed)
					}
					if !test.allowed && (v.Turn != time.Second || v.Rule.ID != "turns" || v.Decision.RetryAfter != time.Second || v.Decision.Limit != 5 || v.Decision.Delay != 0) {
						t.Errorf("request %d: turn %s by %s, %+v", i, v.Turn, v.Rule.ID, v.Decision)
					}
					if (len(passed(&v)) == 1) != (i < 2) || (len(v.Shadowed) == 1) != (i == 2) {
						t.Errorf("request %d passed %v, not %v", i, passed(&v), v.Shadowed)
					}
				}
			})
		})
	}
}

// The look costs a call of the store, and only where a turn and a deadline can miss each other.
func TestLooksOnlyForTurns(t *testing.T) {
	for _, test := range []struct {
		name    string
		limit   stint.Limit
		bounded bool
		calls   int64
	}{
		{"a turn and a deadline", stint.LeakyBucket(5, stint.PerSecond(1)), true, 2},
		{"no deadline", stint.LeakyBucket(5, stint.PerSecond(1)), false, 1},
		{"no turn", stint.TokenBucket(5, stint.PerSecond(1)), true, 1},
	} {
		limiter, store := newLimiter(t, per("a", test.limit))
		ctx, cancel := context.WithCancel(t.Context())
		if test.bounded {
			ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		}
		var v enforce.Verdict
		if err := limiter.Decide(ctx, &alice, &v); err != nil || !v.Allowed || store.Calls() != test.calls {
			t.Errorf("%s: %d calls of the store, want %d (%+v, %v)", test.name, store.Calls(), test.calls, v.Decision, err)
		}
		cancel()
	}
}

// crowded is a store where somebody takes the same before each Take.
type crowded struct{ stint.Store }

func (c crowded) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if op.Verb == stint.VerbTake {
		if d, err := c.Store.Decide(ctx, op); err != nil {
			return d, err
		}
	}
	return c.Store.Decide(ctx, op)
}

// A request that gets a later turn than its preview is denied, and the turn stays taken. There is no preview
// while the store is unreachable, so that this may happen to a request that is alone, too.
func TestTurnsTakenInBetween(t *testing.T) {
	away := storetest.NewFaulty(memstore.New(memstore.Config{}))
	away.Inject(func(call storetest.Call) storetest.Fault {
		if call.Ops[0].Verb == stint.VerbPeek {
			return storetest.Fault{Err: stint.ErrUnavailable}
		}
		return storetest.Fault{}
	})
	for name, store := range map[string]stint.Store{"crowded": crowded{memstore.New(memstore.Config{})}, "away": crowded{away}} {
		limiter, err := enforce.New(enforce.Config{Store: store, Set: setOf(t, nil, per("a", stint.LeakyBucket(5, stint.PerHour(1))))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var v enforce.Verdict
		if err := limiter.Decide(ctx, &alice, &v); err != nil || v.Allowed || v.Turn <= time.Minute || v.Decision.RetryAfter != v.Turn {
			t.Errorf("%s: %+v, turn %s (%v)", name, v.Decision, v.Turn, err)
		}
	}
}
