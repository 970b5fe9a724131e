package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// A queue stays that of its client when the first waiter has left, and uses the memory of the
// key for another.
func TestQueuesOfBorrowedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		patient := waiting("a", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1)))
		limiter, _ := newLimiter(t, patient)
		decide(t, limiter, alice)
		memory := []byte(alice.Address)
		borrowed := rules.Request{Path: "/x", Address: unsafe.String(&memory[0], len(memory))} //nolint:gosec // it is about strings that change
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		wait := func(ctx context.Context, r rules.Request) {
			go func() {
				var v enforce.Verdict
				ended <- limiter.Decide(ctx, &r, &v)
			}()
			synctest.Wait()
		}
		wait(ctx, borrowed)
		wait(t.Context(), alice)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		copy(memory, "198.51.1.")
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if v := decide(t, limiter, alice); !v.Allowed || v.Held != time.Second {
			t.Errorf("held %s, want it served next, after 1s", v.Held)
		}
	})
}

// shared is a rule that waits for what all clients share.
func shared(id string, wait time.Duration, limits ...stint.Limit) rules.Rule {
	r := waiting(id, wait, 0, limits...)
	r.Scope = []string{rules.Global}
	return r
}

// One client that is over its own limit holds nobody else, though all share a limit that it waits
// for as well, however many requests it makes at once.
func TestOneClientHoldsNobodyElse(t *testing.T) {
	for _, crowd := range []int{2, 12, 120} {
		t.Run(fmt.Sprint(crowd), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, store := newLimiter(t,
					shared("all", 10*time.Second, stint.TokenBucket(1000, stint.PerSecond(1000))),
					waiting("mine", 10*time.Second, 0, stint.TokenBucket(1, stint.PerSecond(1))))
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range crowd {
					all.Go(func() {
						for ctx.Err() == nil {
							var v enforce.Verdict
							if err := limiter.Decide(ctx, &alice, &v); err == nil && !v.Allowed {
								<-time.After(time.Second)
							}
						}
					})
				}
				for i := range 40 {
					<-time.After(333 * time.Millisecond)
					decide := limiter.Decide
					if i%2 > 0 {
						decide = limiter.DecideNow
					}
					var v enforce.Verdict
					start := time.Now()
					err := decide(t.Context(), &rules.Request{Path: "/x", Address: fmt.Sprint(i)}, &v)
					if err != nil || !v.Allowed || v.Held != 0 || time.Since(start) != 0 {
						t.Errorf("request %d: allowed %t by %s, held %s (%v); want it admitted at once", i, v.Allowed, v.Rule.ID, v.Held, err)
					}
				}
				cancel()
				all.Wait()
				// Of those who wait for the same only the first asks, twice; who gives up does so again. Beyond a
				// hundred that is once a second.
				if most := 2*14 + 40 + 4*crowd + 2*15*max(0, crowd-100); int(store.Calls()) > most {
					t.Errorf("%d calls of the store, want %d at most", store.Calls(), most)
				}
			})
		})
	}
}

// Who gives up behind others is denied by the rule for which they wait.
func TestDeniedByTheRuleOfTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costs := waiting("mine", time.Minute, 1, stint.TokenBucket(2, stint.PerSecond(1)))
		costs.Cost = rules.Cost{Attribute: "cost"}
		limiter, _ := newLimiter(t, shared("all", 30*time.Second, stint.TokenBucket(100, stint.PerSecond(1))), costs)
		ask := func(cost string, v *enforce.Verdict) error {
			r := alice
			r.Attributes = map[string]string{"cost": cost}
			return limiter.Decide(t.Context(), &r, v)
		}
		var first, v enforce.Verdict
		must.Do(t, ask("1", &first))
		ended := make(chan error, 1)
		go func() { ended <- ask("2", &first) }()
		synctest.Wait() // it waits for a second permit, and the line is full
		if err := ask("1", &v); err != nil || v.Allowed || v.Rule.ID != "mine" || v.Decision.RetryAfter != time.Minute || v.Decision.Limit != 2 {
			t.Errorf("%+v (%v), want it denied by mine, for as long as that holds the other", v.Decision, err)
		}
		if err := <-ended; err != nil || !first.Allowed {
			t.Errorf("%+v (%v), want it admitted", first.Decision, err)
		}
	})
}

// Teams that borrow of one limit wait in queues of their own, and requests without a team in another one.
func TestBorrowersWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		team := waiting("team", 10*time.Second, 2)
		team.Within, team.Scope, team.Missing = "org", []string{rules.Custom("team")}, rules.MissingSkip
		team.Borrow.Any = true
		limiter, _ := newLimiter(t, shared("org", 10*time.Second, stint.TokenBucket(1, stint.PerSecond(1))), team)
		requests := append(of("team", "greedy", "greedy", "greedy", "greedy", "other"), with())
		for _, e := range arrive(limiter, requests, t.Context()) {
			if e.allowed != (e.number != 3) {
				t.Errorf("%v: want the fourth request of one team denied, and no other", e)
			}
		}
	})
}
