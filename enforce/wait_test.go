package enforce_test

import (
	"cmp"
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

// String is number@after, with !retry for one that was denied.
func (e end) String() string {
	text := fmt.Sprint(e.number, "@", e.after)
	if e.err != nil {
		return text + " " + e.err.Error()
	}
	if !e.allowed {
		text += fmt.Sprint("!", e.retry)
	}
	return text
}

// arrive lets requests come one millisecond after another, with these contexts in turn, and lists how they ended, in
// that order.
func arrive(limiter *enforce.Limiter, requests []rules.Request, contexts ...context.Context) []end {
	var mu sync.Mutex
	var ends []end
	var all sync.WaitGroup
	start := time.Now()
	for i := range requests {
		all.Go(func() {
			var v enforce.Verdict
			err := limiter.Decide(contexts[i%len(contexts)], &requests[i], &v)
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

func always(n int, r rules.Request) (list []rules.Request) {
	for range n {
		list = append(list, r)
	}
	return list
}

// of are requests, each with another value of an attribute.
func of(attribute string, values ...string) (list []rules.Request) {
	for _, value := range values {
		list = append(list, with(attribute, value))
	}
	return list
}

// from are requests of addresses.
func from(addresses ...string) (list []rules.Request) {
	for _, address := range addresses {
		list = append(list, rules.Request{Path: "/x", Address: address})
	}
	return list
}

// Requests that wait are served in the order in which they came, and hold nobody else.
func TestQueues(t *testing.T) {
	second, tenth := stint.TokenBucket(1, stint.PerSecond(1)), stint.TokenBucket(1, stint.Every(100*time.Millisecond))
	const oneByOne = "[0@0s 1@1s 2@2s 3@3s 4@4s 5@5s 6@6s 7@7s 8@8s 9@9s 10@10s 11@11s]"
	costly := waiting("a", time.Minute, 2, stint.TokenBucket(4, stint.PerSecond(1)))
	costly.Cost = rules.Cost{Attribute: "cost"}
	onX := waiting("mine", time.Minute, 0, second)
	onX.Match.Paths = []string{"/x"}
	across := from("0", "1", "2", "0", "1", "2", "0", "1", "2", "0", "1", "2")
	for i := range across {
		across[i].Path = []string{"/x", "/y"}[i%2]
	}
	ours := waiting("ours", time.Minute, 0, stint.TokenBucket(1, stint.Every(300*time.Millisecond)))
	ours.Scope, ours.Missing = []string{rules.PerUser}, rules.MissingSkip
	users := from("a", "b", "b", "b", "b")
	users[0].User, users[1].User = "u", "u"
	two := shared("all", time.Minute, tenth)
	two.MaxWaiters = 2
	classes := shared("all", 10*time.Second, stint.TokenBucket(5, stint.PerSecond(1)))
	classes.Classes = rules.Classes{
		By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"critical": 0, "batch": 50}, Default: "batch",
	}
	for name, test := range map[string]struct {
		rules    []rules.Rule
		requests []rules.Request
		want     string
	}{
		"first come, first served": {[]rules.Rule{waiting("a", time.Minute, 0, second)}, always(12, alice), oneByOne},
		"across queues":            {[]rules.Rule{shared("all", time.Minute, second), onX}, across, oneByOne},
		"max_wait": {
			[]rules.Rule{waiting("a", 2500*time.Millisecond, 0, second)},
			always(5, alice),
			"[0@0s 1@1s 2@2s 3@2s!1s 4@2s!1s]",
		},
		// The first leaves one permit. Two that want more wait, and the next, which would be content with it, is not served
		// before them.
		"max_waiters": {[]rules.Rule{costly}, of("cost", "3", "2", "2", "1", "1"), "[0@0s 3@3ms!1m0s 4@4ms!1m0s 1@1s 2@3s]"},
		// One over two limits holds others only until the limit that they share admits.
		"a shared limit": {
			[]rules.Rule{shared("all", time.Minute, tenth), waiting("mine", time.Minute, 0, second)},
			from("a", "a", "b", "c"),
			"[0@0s 2@100ms 3@200ms 1@1s]",
		},
		// Ours denies the second for 300ms, then mine does; mine denies the fourth for 200ms, and the last for 400ms.
		"from one queue to another": {
			[]rules.Rule{ours, waiting("mine", time.Minute, 0, stint.TokenBucket(1, stint.Every(200*time.Millisecond)))},
			users,
			"[0@0s 2@2ms 3@202ms 1@402ms 4@602ms]",
		},
		// One behind others for several rules takes no position in the queue that moves first.
		"positions": {
			[]rules.Rule{two, waiting("mine", time.Minute, 0, second)},
			from("a", "a", "a", "a", "b"),
			"[0@0s 4@100ms 1@1s 2@2s 3@3s]",
		},
		// A class that leaves less to others is admitted while those of another class wait.
		"classes": {
			[]rules.Rule{classes},
			of("class", "critical", "critical", "critical", "batch", "batch", "critical"),
			"[0@0s 1@1ms 2@2ms 5@5ms 3@2s 4@3s]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, _ := newLimiter(t, test.rules...)
				ends := arrive(limiter, test.requests, t.Context())
				slices.SortStableFunc(ends, func(a, b end) int { // those of one instant have no order
					return cmp.Or(cmp.Compare(a.after, b.after), a.number-b.number)
				})
				if got := fmt.Sprint(ends); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			})
		})
	}
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
		ends := arrive(limiter, always(5, alice), t.Context())
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
		// The first of the line and one behind it are cancelled.
		ends := arrive(limiter, always(4, alice), t.Context(), ctx, ctx, t.Context())
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
