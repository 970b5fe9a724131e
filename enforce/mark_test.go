package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// marking is a rule that marks, of so many requests an hour.
func marking(id string, n int64) rules.Rule {
	r := per(id, hourly(n))
	r.OnExceed = rules.Mark
	return r
}

// exceeded are the limits that mark a verdict, as rule, capacity and whether there is a wait.
func exceeded(v *enforce.Verdict) string {
	var list []string
	for _, e := range v.Exceeded {
		list = append(list, fmt.Sprintf("%s %d %v", e.Rule, e.Limit, e.RetryAfter > 0))
	}
	return strings.Join(list, ", ")
}

// A rule that marks is charged while the request fits and is admitted, and takes nothing of others. It neither denies nor
// decides.
func TestMark(t *testing.T) {
	limiter, _ := newLimiter(t, per("hard", hourly(4)), marking("soft", 2))
	for i, want := range []string{"", "", "soft 2 true", "soft 2 true"} {
		v := decide(t, limiter, alice)
		if got := exceeded(v); got != want || !v.Allowed || v.Rule.ID != "hard" || v.Decision.Remaining != int64(3-i) {
			t.Errorf("request %d: marked by %q, want %q; %+v by %v", i, got, want, v.Decision, v.Rule)
		}
	}
	v := decide(t, limiter, alice)
	if v.Allowed || len(v.Exceeded) > 0 || v.Rule.ID != "hard" {
		t.Errorf("a denied request is marked by %q, and denied by %v", exceeded(v), v.Rule)
	}

	limiter, _ = newLimiter(t, per("hard", hourly(1)), marking("soft", 2))
	decide(t, limiter, alice)
	for range 3 {
		decide(t, limiter, alice) // is denied
	}
	explained, err := limiter.Explain(t.Context(), &alice)
	if err != nil || explained.Rules[1].Each[0].Remaining != 1 {
		t.Errorf("what is denied was charged: %+v, %v", explained, err)
	}
}

// mark_at marks by how much of a limit is used, of rules that deny, of those that mark, and of the way that was charged.
// A request that waits for one rule is marked by another one, once.
func TestMarkAt(t *testing.T) {
	hard, soft := per("hard", hourly(5)), marking("soft", 2)
	hard.MarkAt, soft.MarkAt = 80, 100
	quota, extra := per("quota", hourly(1)), per("extra", hourly(10))
	quota.Otherwise, quota.MarkAt = "extra", 20
	waits := waiting("waits", time.Minute, 0, stint.FixedWindow(1, time.Second).FromFirst())
	for _, test := range []struct {
		list []rules.Rule
		want []string
	}{
		{[]rules.Rule{hard, soft}, []string{
			"", "soft 2 false", "soft 2 true", "hard 5 false, soft 2 true", "hard 5 false, soft 2 true",
		}},
		{[]rules.Rule{quota, extra}, []string{"quota 1 false", "", "quota 10 false"}},
		{[]rules.Rule{waits, marking("soft", 1)}, []string{"", "soft 1 true", "soft 1 true"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter, _ := newLimiter(t, test.list...)
			for i, want := range test.want {
				if v := decide(t, limiter, alice); exceeded(v) != want || !v.Allowed {
					t.Errorf("%s, request %d: %q, want %q", test.list[0].ID, i, exceeded(v), want)
				}
			}
		})
	}
}

// What a class leaves to others, and what a floor keeps, is not used.
func TestMarkAtBesideKept(t *testing.T) {
	api := per("api", stint.TokenBucket(10, stint.Per(1, time.Hour)))
	api.MarkAt = 30
	api.Classes = rules.Classes{
		By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"high": 0, "low": 50}, Default: "low",
	}
	team := rules.Rule{
		ID: "team", Within: "api", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip, Borrow: rules.Borrow{Any: true},
		Guaranteed: map[string]rules.Floor{"ann": {Capacity: 4, Refill: stint.Per(1, 24*time.Hour)}}, MarkAt: 30,
	}
	bob := alice
	bob.User = "bob"
	for _, test := range []struct {
		rule    string
		request rules.Request
		list    []rules.Rule
	}{{"api", alice, []rules.Rule{api}}, {"api", alice, []rules.Rule{api, team}}, {"team", bob, []rules.Rule{api, team}}} {
		limiter, _ := newLimiter(t, test.list...)
		for i, want := range []string{"", "", test.rule + " 10 false"} {
			if v := decide(t, limiter, test.request); exceeded(v) != want || !v.Allowed {
				t.Errorf("%s of %d, request %d: %q, want %q", test.rule, len(test.list), i, exceeded(v), want)
			}
		}
	}
}

// Observers are told of each mark as of no request of its own.
func TestMarksAreTold(t *testing.T) {
	soft := marking("soft", 2)
	soft.MarkAt = 50
	limiter, _ := newLimiter(t, per("hard", hourly(9)), soft)
	var got []string
	for range 3 {
		v := decide(t, limiter, alice)
		v.Tell(t.Context(), &stint.Event{}, func(_ context.Context, e *stint.Event) {
			if e.Rule == "soft" {
				got = append(got, fmt.Sprint(e.Claim.Key, e.Marked, e.Shadow, e.Checked(), e.Decision.Allowed, e.Reason, e.Limit().Capacity))
			} else if e.Marked {
				t.Errorf("%+v", e)
			}
		})
	}
	want := []string{"192.0.2.1true true false true2", "192.0.2.1true true false true2", "192.0.2.1true true false falselimit2"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// A reserve holds of a rule that marks what fits, and its commit ends that alone.
func TestMarkReserves(t *testing.T) {
	limiter, _ := newLimiter(t, per("hard", hourly(100)), marking("soft", 10))
	var v enforce.Verdict
	reserve := func() *stint.Reservation {
		t.Helper()
		r, err := limiter.Reserve(t.Context(), &alice, stint.Hold{}, &v)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		return r
	}
	first := reserve()
	if got := exceeded(&v); got != "" {
		t.Errorf("the first is marked by %q", got)
	}
	must.Get(first.Commit(t.Context(), 10))(t)
	second := reserve()
	if got := exceeded(&v); got != "soft 10 true" {
		t.Errorf("the second is marked by %q", got)
	}
	must.Get(second.Commit(t.Context(), 5))(t)
	explained, err := limiter.Explain(t.Context(), &alice)
	if err != nil || explained.Rules[0].Each[0].Remaining != 85 || explained.Rules[1].Each[0].Remaining != 0 {
		t.Errorf("%+v, %v", explained.Rules, err)
	}
}

// The end of a hold tells what it applied to rules that mark, also where there are no others. Neither it nor a settlement
// nor a reset marks the request again.
func TestMarkEnds(t *testing.T) {
	soft, hard := marking("soft", 2), per("hard", hourly(100))
	soft.MarkAt, hard.MarkAt = 1, 1
	for _, list := range [][]rules.Rule{{soft}, {soft, hard}} {
		limiter, _ := newLimiter(t, list...)
		var v enforce.Verdict
		for _, id := range []string{"first", "second", "third"} { // soft has nothing for the third
			must.Get(limiter.Reserve(t.Context(), &alice, stint.Hold{ID: id, TTL: time.Minute}, &v))(t)
		}
		check := func(what string, applied int64, err error) {
			t.Helper()
			if err != nil || v.Rule == nil || v.Decision.Applied != applied || len(v.Exceeded)+len(v.Shadows) > 0 {
				t.Errorf("%d rules, %s: %+v by %v, applied %d, want %d; marked by %q, %v", len(list), what, v.Decision, v.Rule,
					v.Decision.Applied, applied, exceeded(&v), err)
			}
		}
		commit := func(id string, permits int64) error {
			return limiter.End(t.Context(), &alice, stint.VerbCommit, &stint.HoldOp{Hold: stint.Hold{ID: id}}, permits, 0, nil, nil, &v)
		}
		check("a commit of nothing", -1, commit("first", 0))
		check("a commit of what is held", 0, commit("second", 1))
		check("a commit of nothing, of which soft holds nothing", int64(1-len(list)), commit("third", 0))
		check("a settlement", 1, limiter.Settle(t.Context(), &alice, 1, nil, &v))
		check("a reset", 0, limiter.Reset(t.Context(), &alice, &v))
	}
}

// A failure policy marks nothing, and denies nothing by rules that mark.
func TestDegradedIsNotMarked(t *testing.T) {
	for _, mode := range []failover.Mode{failover.Open, failover.Closed, failover.Local} {
		limiter := withoutStore(t, mode, marking("soft", 1))
		for range 3 {
			if v := decide(t, limiter, alice); !v.Allowed || !v.Decision.Degraded || len(v.Exceeded) > 0 {
				t.Errorf("%v: %+v, marked by %q", mode, v.Decision, exceeded(v))
			}
			var v enforce.Verdict
			if _, err := limiter.Reserve(t.Context(), &alice, stint.Hold{}, &v); err != nil || !v.Allowed {
				t.Errorf("%v: a reserve: %+v, %v", mode, v.Decision, err)
			}
		}
	}
	limiter := withoutStore(t, failover.Closed, marking("soft", 1), per("hard", hourly(4)))
	var v enforce.Verdict
	if err := limiter.Decide(t.Context(), &alice, &v); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("beside a rule that is closed: %+v, %v", v.Decision, err)
	}
}
