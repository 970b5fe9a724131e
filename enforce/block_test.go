package enforce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// blocking is a rule that pauses clients after so many denials.
func blocking(id string, after int64, pause time.Duration, limits ...stint.Limit) rules.Rule {
	r := per(id, limits...)
	r.Block = rules.Block{After: after, For: pause}
	return r
}

// An override holds in place of the block, and a reset ends it.
func TestBlockEnds(t *testing.T) {
	rule := blocking("login", 1, 2*time.Hour, hourly(1))
	limiter, _ := newLimiter(t, rule)
	blocked := func(want bool) {
		t.Helper()
		if v := decide(t, limiter, alice); (v.Reason() == stint.ReasonBlocked) != want {
			t.Errorf("%+v, %q; blocked: want %t", v.Decision, v.Reason(), want)
		}
	}
	decide(t, limiter, alice)
	blocked(true)
	const want = "rule login decides: it blocks the client, which was denied 1 times, for 2h0m0s"
	if why := explain(t, limiter, alice).Why(); why != want {
		t.Errorf("%s, want %s", why, want)
	}
	with := rule.Clone()
	with.Overrides = []rules.Override{{Key: alice.Address, Limits: []stint.Limit{stint.FixedWindow(3, time.Minute)}}}
	limiter.Swap(setOf(t, limiter.Set(), with))
	blocked(false)
	blocked(false)
	limiter.Swap(setOf(t, limiter.Set(), rule))
	blocked(true)
	must.Do(t, limiter.ResetClient(t.Context(), "login", alice.Address))
	if v := decide(t, limiter, alice); !v.Allowed {
		t.Errorf("after a reset: %+v", v.Decision)
	}
}

// A rule in shadow blocks for itself: its own denials are counted, and no other rule's.
func TestBlockInShadow(t *testing.T) {
	rule := blocking("tried", 2, 2*time.Hour, hourly(1))
	rule.OnExceed = rules.Shadow
	limiter, _ := newLimiter(t, rule, per("hard", hourly(2)))
	for i, want := range []stint.Reason{"", stint.ReasonLimit, stint.ReasonBlocked, stint.ReasonBlocked} {
		if v := decide(t, limiter, alice); v.Shadows[0].Reason != want {
			t.Errorf("request %d: %+v, want %q", i, v.Shadows[0], want)
		}
	}
}

// A request that waits counts once, when it gives up.
func TestBlockOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := blocking("slow", 2, time.Hour, stint.FixedWindow(1, time.Minute).FromFirst())
		rule.OnExceed, rule.MaxWait, rule.MaxWaiters = rules.Wait, 2*time.Minute, 1
		limiter, _ := newLimiter(t, rule)
		decide(t, limiter, alice)
		if v := decide(t, limiter, alice); !v.Allowed || v.Held != time.Minute {
			t.Errorf("%+v, held for %v", v.Decision, v.Held)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			decide(t, limiter, alice)
		}()
		synctest.Wait()
		for i, want := range []stint.Reason{stint.ReasonLimit, stint.ReasonBlocked} { // the queue is full
			if v := decide(t, limiter, alice); v.Reason() != want {
				t.Errorf("request %d: %q, want %q", i, v.Reason(), want)
			}
		}
		<-done
	})
}

// A request counts once whatever it costs, and classes leave nothing of denials to others. Of a rule that blocks nothing
// can be reserved.
func TestBlockOfCosts(t *testing.T) {
	rule := blocking("tokens", 2, 24*time.Hour, hourly(100), stint.FixedWindow(3, time.Hour).Named("requests"))
	rule.Cost, rule.Costs, rule.MarkAt = rules.Cost{Attribute: "n"}, []rules.Cost{{}, {Permits: 1}}, 1
	rule.Classes = rules.Classes{By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"high": 0, "low": 50}, Default: "low"}
	limiter, _ := newLimiter(t, rule)
	request := func(n string) rules.Request {
		r := alice
		r.Attributes = map[string]string{"n": n}
		return r
	}
	for i, c := range []struct {
		n    string
		want stint.Reason
	}{{"10", ""}, {"60", stint.ReasonNever}, {"45", stint.ReasonBlocked}, {"1", stint.ReasonBlocked}} {
		v := decide(t, limiter, request(c.n))
		if v.Reason() != c.want {
			t.Errorf("request %d: %+v, %q, want %q", i, v.Decision, v.Reason(), c.want)
		}
		for _, e := range v.Exceeded {
			if e.LimitName == "block" {
				t.Errorf("request %d is marked by its block", i)
			}
		}
	}
	plain := blocking("login", 1, 2*time.Hour, hourly(1))
	limiter, _ = newLimiter(t, plain)
	var v enforce.Verdict
	_, err := limiter.Reserve(t.Context(), &alice, stint.Hold{ID: "h", TTL: time.Minute}, &v)
	if want := "stint: claim 1: Denials is true; allowed: false where permits are reserved: a reserve that is denied writes nothing"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
