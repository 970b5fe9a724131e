package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// waiting is a rule that waits.
func waiting(id string, wait time.Duration, waiters int, limits ...stint.Limit) rules.Rule {
	r := per(id, limits...)
	r.OnExceed, r.MaxWait, r.MaxWaiters = rules.Wait, wait, waiters
	return r
}

// An end is how a request ended.
type end struct {
	number  int
	after   time.Duration
	allowed bool
	retry   time.Duration
	err     error
}

// arrive lets requests come one millisecond after another, and lists how they ended, in that order.
func arrive(limiter *enforce.Limiter, n int, context func(i int) context.Context, request func(i int) rules.Request) []end {
	var mu sync.Mutex
	var ends []end
	var all sync.WaitGroup
	start := time.Now()
	for i := range n {
		all.Go(func() {
			var v enforce.Verdict
			r := request(i)
			err := limiter.Decide(context(i), &r, &v)
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, end{i, time.Since(start), v.Allowed, v.Decision.RetryAfter, err})
		})
		synctest.Wait()
		<-time.After(time.Millisecond)
	}
	all.Wait()
	return ends
}

func always(r rules.Request) func(int) rules.Request {
	return func(int) rules.Request { return r }
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, waiting("a", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1))))
		ends := arrive(limiter, 20, func(int) context.Context { return t.Context() }, always(alice))
		for i, end := range ends {
			if end.number != i || !end.allowed || end.err != nil || end.after.Round(time.Second) != time.Duration(i)*time.Second {
				t.Errorf("end %d is %+v, want request %d admitted after %ds", i, end, i, i)
			}
		}
	})
}

// TestOrderAcrossLines lets requests wait for two clients at once, others for one of them.
func TestOrderAcrossLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := waiting("all", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1)))
		all.Scope = []string{rules.Global}
		mine := waiting("mine", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1)))
		mine.Match.Paths = []string{"/x"}
		limiter, _ := newLimiter(t, all, mine)
		ends := arrive(limiter, 12, func(int) context.Context { return t.Context() }, func(i int) rules.Request {
			return rules.Request{Path: []string{"/x", "/y"}[i%2], Address: fmt.Sprint(i % 3)}
		})
		for i, end := range ends {
			if end.number != i || !end.allowed || end.err != nil {
				t.Errorf("end %d is %+v, want request %d admitted", i, end, i)
			}
		}
	})
}

func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, waiting("a", 2500*time.Millisecond, 0, stint.TokenBucket(1, stint.PerSecond(1))))
		ends := arrive(limiter, 5, func(int) context.Context { return t.Context() }, always(alice))
		var admitted, denied []int
		for _, end := range ends {
			if end.allowed {
				admitted = append(admitted, end.number)
				continue
			}
			denied = append(denied, end.number)
			if end.retry <= 0 || end.after > 2600*time.Millisecond {
				t.Errorf("%+v, want a denial within 2.5s of arriving", end)
			}
		}
		if !slices.Equal(admitted, []int{0, 1, 2}) || len(denied) != 2 {
			t.Errorf("admitted are %v, denied %v; want the first three", admitted, denied)
		}
	})
}

func TestMaxWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costs := waiting("a", time.Minute, 2, stint.TokenBucket(4, stint.PerSecond(1)))
		costs.Cost = rules.Cost{Attribute: "cost"}
		limiter, _ := newLimiter(t, costs)
		// The first leaves one permit. Two that want more wait, and the next, which would be content
		// with it, is not served before them.
		ends := arrive(limiter, 5, func(int) context.Context { return t.Context() }, func(i int) rules.Request {
			r := alice
			r.Attributes = map[string]string{"cost": []string{"3", "2", "2", "1", "1"}[i]}
			return r
		})
		var order []int
		for _, end := range ends {
			order = append(order, end.number)
			if late := end.number >= 3; end.allowed == late || late && end.retry != time.Minute {
				t.Errorf("%+v, want requests 3 and 4 denied for as long as the others may wait", end)
			}
		}
		if !slices.Equal(order, []int{0, 3, 4, 1, 2}) {
			t.Errorf("they ended in the order %v", order)
		}
	})
}

func TestWaitsForOthersWouldDenyAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, waiting("a", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1))), per("b", stint.FixedWindow(1, time.Hour)))
		decide(t, limiter, alice)
		start := time.Now()
		if v := decide(t, limiter, alice); v.Allowed || v.Rule.ID != "b" || time.Since(start) != 0 {
			t.Errorf("%+v after %v, want a denial by b at once", v, time.Since(start))
		}
	})
}

func TestTurnsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, waiting("a", 2500*time.Millisecond, 0, stint.LeakyBucket(10, stint.PerSecond(1))))
		ends := arrive(limiter, 5, func(int) context.Context { return t.Context() }, always(alice))
		slices.SortFunc(ends, func(a, b end) int { return a.number - b.number })
		for i, end := range ends {
			if i < 3 && (!end.allowed || end.after.Round(10*time.Millisecond) != time.Duration(i)*time.Second) {
				t.Errorf("%+v, want it admitted at its turn, after %ds", end, i)
			}
			if i >= 3 && (end.allowed || end.retry <= 0 || end.after > 10*time.Millisecond) {
				t.Errorf("%+v, want a denial at once: its turn is too late", end)
			}
		}
		// Those that were denied took no turn: two seconds after the last there is one at once.
		<-time.After(2 * time.Second)
		start := time.Now()
		if v := decide(t, limiter, alice); !v.Allowed || v.Decision.Delay != 0 || time.Since(start) > time.Second {
			t.Errorf("%+v after %v", v, time.Since(start))
		}
	})
}

func TestWhoIsCancelledLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, waiting("a", time.Minute, 3, stint.TokenBucket(1, stint.PerSecond(1))))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, cancel)
		ends := arrive(limiter, 4, func(i int) context.Context {
			if i == 1 || i == 2 { // the first of the line and one behind it
				return ctx
			}
			return t.Context()
		}, always(alice))
		for _, end := range ends {
			gone := end.number == 1 || end.number == 2
			if gone != errors.Is(end.err, context.Canceled) || gone == end.allowed || gone && end.after.Round(10*time.Millisecond) != 500*time.Millisecond {
				t.Errorf("%+v", end)
			}
			if end.number == 3 && end.after.Round(10*time.Millisecond) != time.Second {
				t.Errorf("%+v, want it to be served next, after 1s", end)
			}
		}
	})
}

func TestShadowsOfAWaitCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shadow := per("shadow", stint.FixedWindow(2, 24*365*time.Hour))
		shadow.OnExceed = rules.Shadow
		limiter, _ := newLimiter(t, waiting("a", time.Minute, 0, stint.TokenBucket(1, stint.PerSecond(1))), shadow)
		for i, want := range []bool{false, false, true} {
			if v := decide(t, limiter, alice); !v.Allowed || (len(v.Shadowed) == 1) != want || (len(passed(v)) == 1) == want {
				t.Errorf("request %d: shadowed %v, passed %v, want shadowed: %v", i, v.Shadowed, passed(v), want)
			}
		}
	})
}
