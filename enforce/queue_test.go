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

// A request over two limits holds others only until the limit that they share admits.
func TestQueuesAreLeftWhenTheirRuleAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t,
			shared("all", time.Minute, stint.TokenBucket(1, stint.Every(100*time.Millisecond))),
			waiting("mine", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1))))
		ends := arrive(limiter, 4, func(int) context.Context { return t.Context() }, func(i int) rules.Request {
			return rules.Request{Path: "/x", Address: []string{"a", "a", "b", "c"}[i]}
		})
		for i, want := range []struct {
			number int
			after  time.Duration
		}{{0, 0}, {2, 100 * time.Millisecond}, {3, 200 * time.Millisecond}, {1, time.Second}} {
			if end := ends[i]; end.number != want.number || !end.allowed || end.after != want.after {
				t.Errorf("end %d is %+v, want request %d after %s", i, end, want.number, want.after)
			}
		}
	})
}

// A request that moves from one queue to another has its position there by its arrival at the limiter.
func TestQueuesAreInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := waiting("ours", time.Minute, 0, stint.TokenBucket(1, stint.Every(300*time.Millisecond)))
		ours.Scope, ours.Missing = []string{rules.PerUser}, rules.MissingSkip
		limiter, _ := newLimiter(t, ours, waiting("mine", time.Minute, 0, stint.TokenBucket(1, stint.Every(200*time.Millisecond))))
		requests := []rules.Request{
			{Path: "/x", Address: "a", User: "u"},
			{Path: "/x", Address: "b", User: "u"}, // ours denies it for 300ms, then mine does
			{Path: "/x", Address: "b"},
			{Path: "/x", Address: "b"}, // mine denies it for 200ms
			{Path: "/x", Address: "b"}, // mine denies it for 400ms
		}
		ends := arrive(limiter, len(requests), func(int) context.Context { return t.Context() }, func(i int) rules.Request { return requests[i] })
		for i, want := range []struct {
			number int
			after  time.Duration
		}{{0, 0}, {2, 2 * time.Millisecond}, {3, 202 * time.Millisecond}, {1, 402 * time.Millisecond}, {4, 602 * time.Millisecond}} {
			if end := ends[i]; end.number != want.number || !end.allowed || end.after != want.after {
				t.Errorf("end %d is %+v, want request %d after %s", i, end, want.number, want.after)
			}
		}
	})
}

// A request that is behind others for several rules takes no position in the queue that moves first.
func TestPositionsInAQueueThatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := shared("all", time.Minute, stint.TokenBucket(1, stint.Every(100*time.Millisecond)))
		all.MaxWaiters = 2
		limiter, _ := newLimiter(t, all, waiting("mine", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1))))
		ends := arrive(limiter, 5, func(int) context.Context { return t.Context() }, func(i int) rules.Request {
			return rules.Request{Path: "/x", Address: []string{"a", "a", "a", "a", "b"}[i]}
		})
		if end := ends[1]; end.number != 4 || !end.allowed || end.after != 100*time.Millisecond {
			t.Errorf("%+v, want b admitted after 100ms", end)
		}
	})
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

// A request of a class that leaves less to others is admitted while those of another class wait.
func TestClassesWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := shared("all", 10*time.Second, stint.TokenBucket(10, stint.PerSecond(1)))
		rule.Classes = rules.Classes{By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"critical": 0, "batch": 50}, Default: "batch"}
		limiter, _ := newLimiter(t, rule)
		for range 5 {
			decide(t, limiter, with("class", "critical"))
		}
		ends := arrive(limiter, 3, func(int) context.Context { return t.Context() }, func(i int) rules.Request {
			return with("class", []string{"batch", "batch", "critical"}[i])
		})
		if first := ends[0]; first.number != 2 || !first.allowed || first.after > 10*time.Millisecond {
			t.Errorf("%+v: want the critical request first, at once", ends)
		}
		if last := ends[2]; last.number != 1 || !last.allowed || last.after != 3*time.Second {
			t.Errorf("%+v: want batch jobs in their order, when 5 are left after them", ends)
		}
	})
}

// Teams that borrow of one limit wait in queues of their own, and requests without a team in another one.
func TestBorrowersWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		org, team := shared("org", 10*time.Second, stint.TokenBucket(10, stint.PerSecond(1))), rules.Rule{
			ID: "team", Within: "org", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip, Borrow: rules.Borrow{Any: true},
			OnExceed: rules.Wait, MaxWait: 10 * time.Second, MaxWaiters: 2,
		}
		limiter, _ := newLimiter(t, org, team)
		for range 10 {
			decide(t, limiter, with("team", "greedy"))
		}
		ends := arrive(limiter, 5, func(int) context.Context { return t.Context() }, func(i int) rules.Request {
			return []rules.Request{with("team", "greedy"), with("team", "greedy"), with("team", "greedy"), with("team", "other"), with()}[i]
		})
		for _, e := range ends {
			if e.allowed != (e.number != 2) {
				t.Errorf("%+v: want the third request of one team denied, and no other", e)
			}
		}
	})
}
