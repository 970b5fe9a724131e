package enforce_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// told are the events of a verdict, each as rule, client, class, via and whether it admits.
func told(t *testing.T, v *enforce.Verdict) (list []string) {
	t.Helper()
	v.Tell(t.Context(), &stint.Event{}, func(_ context.Context, e *stint.Event) {
		list = append(list, fmt.Sprintf("%s/%s/%s/%s/%v", e.Rule, e.Claim.Key, e.Class, e.Via, e.Decision.Allowed))
	})
	return list
}

// Observers are told the class of a request, by what it was charged, and the client that the rule counts, whichever limit
// decided: of rules in shadow, too.
func TestEventsHaveClassAndVia(t *testing.T) {
	org, team := organisation()
	team.Classes = rules.Classes{By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: map[string]rules.Percent{"batch": 40, "critical": 0}}
	quota := per("quota", hourly(1))
	quota.Otherwise, quota.OnExceed = "extra", rules.Shadow
	extra := rules.Rule{ID: "extra", Scope: []string{rules.Global}, OnExceed: rules.Shadow, Limits: []stint.Limit{hourly(1)}}
	a := newTenant(t, org, team, quota, extra)
	for i, want := range [][]string{
		{"team/search/batch/guaranteed/true", "quota/192.0.2.1//limits/true"},
		{"team/search/batch/guaranteed/true", "quota/192.0.2.1//otherwise/true"},
		{"team/search/batch/guaranteed/true", "quota/192.0.2.1///false"},
	} {
		if got := told(t, decide(t, a.limiter, with("team", "search"))); !slices.Equal(got, want) {
			t.Errorf("request %d: %v, want %v", i, got, want)
		}
	}
	a.count(27, with("team", "search"))
	for class, want := range map[string]string{"critical": "team/search/critical/borrowed/true", "": "team/search/batch//false"} {
		a.count(30, with("team", "search"))
		if got := told(t, decide(t, a.limiter, with("team", "search", "class", class))); got[0] != want {
			t.Errorf("of class %q: %v, want %s", class, got, want)
		}
	}

	org.OnExceed, team.OnExceed = rules.Shadow, rules.Shadow // of which a level has several claims
	a = newTenant(t, org, team)
	for i := range 31 {
		want := "team/search/critical/guaranteed/true"
		if i == 30 {
			want = "team/search/critical/borrowed/true"
		}
		if got := told(t, decide(t, a.limiter, with("team", "search", "class", "critical"))); got[1] != want {
			t.Errorf("in shadow, request %d: %v, want %s", i, got, want)
		}
	}
}

// ways are what an explanation says of the ways of a rule.
func ways(x *enforce.Explanation, rule string) (list []string) {
	for i := range x.Rules {
		if x.Rules[i].Rule.ID != rule {
			continue
		}
		for _, w := range x.Rules[i].Ways() {
			list = append(list, fmt.Sprintf("%s %v %d %s", w.Via, w.Allowed, w.First, w.Why))
		}
	}
	return list
}

// An explanation says of each way why it denies: what is used up, and what is kept for others.
func TestExplainWays(t *testing.T) {
	org, team := organisation()
	team.Classes = rules.Classes{By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: map[string]rules.Percent{"batch": 40, "critical": 0}}
	team.Borrow = rules.Borrow{Rate: stint.Per(15, 1000*time.Hour)}
	a := newTenant(t, org, team)
	expect := func(r rules.Request, why string, want ...string) {
		t.Helper()
		x := explain(t, a.limiter, r)
		if got := ways(x, "team"); !slices.Equal(got, want) {
			t.Errorf("ways %q, want %q", got, want)
		}
		if x.Why() != why {
			t.Errorf("why %q, want %q", x.Why(), why)
		}
		if by := x.Rules[0].By; by == nil || by.ID != "team" || x.Rules[0].Outcome != rules.Included {
			t.Errorf("org is %v by %v", x.Rules[0].Outcome, by)
		}
	}
	search := with("team", "search", "class", "critical")
	expect(search, "rule team decides: it has the fewest permits left, 30 of 30; the request is charged to what its client is guaranteed",
		"guaranteed true 0 ", "borrowed true 2 ")
	a.count(30, search)
	expect(search, "rule team decides: it has the fewest permits left, 15 of 15; the request borrows from rule org",
		"guaranteed false 0 guaranteed of rule team has 0 of 30 permits left", "borrowed true 2 ")
	const empty = "guaranteed of rule team has 0 of 30 permits left"
	const kept = "70 of 100 permits of rule org are kept for what others are guaranteed, and for higher classes"
	expect(with("team", "search"), "rule team decides: it denies for the longest, 1h0m0s; guaranteed: "+empty+"; borrowed: "+kept,
		"guaranteed false 0 "+empty, "borrowed false 2 "+kept)
	const ceiling = "borrow of rule team has 0 of 15 permits left"
	a.count(15, search)
	if got := ways(explain(t, a.limiter, search), "team"); got[1] != "borrowed false 2 "+ceiling {
		t.Errorf("at the ceiling: %q", got)
	}
	a.count(15, with("team", "other", "class", "critical"))
	const floors = "50 of 100 permits of rule org are kept for what others are guaranteed"
	if got := ways(explain(t, a.limiter, with("team", "new", "class", "critical")), "team"); !slices.Equal(got, []string{"borrowed false 0 " + floors}) {
		t.Errorf("without a floor: %q", got)
	}

	team.Borrow, team.Classes = rules.Borrow{}, rules.Classes{}
	a = newTenant(t, org, team)
	const nothing = "the client is guaranteed nothing, and may not borrow"
	expect(with("team", "other"), "rule team decides: no wait helps; borrowed: "+nothing, "borrowed false 0 "+nothing)

	api := rules.Rule{
		ID: "team", Scope: []string{rules.Global}, Limits: []stint.Limit{hourly(10)},
		Classes: rules.Classes{By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: map[string]rules.Percent{"batch": 40}},
	}
	a = newTenant(t, api)
	a.count(10, with())
	const higher = "4 of 10 permits of rule team are kept for higher classes"
	if x := explain(t, a.limiter, with()); x.Why() != "rule team decides: it denies for the longest, 1h0m0s; limits: "+higher {
		t.Error(x.Why())
	}
	api.Classes, api.Otherwise = rules.Classes{}, "extra"
	a = newTenant(t, api, rules.Rule{ID: "extra", Scope: []string{rules.Global}, Limits: []stint.Limit{hourly(1)}})
	a.count(10, with())
	x := explain(t, a.limiter, with())
	if got := ways(x, "team"); !slices.Equal(got, []string{"limits false 0 rule team has 0 of 10 permits left", "otherwise true 1 "}) {
		t.Errorf("%q", got)
	}
	if want := "rule team decides: it has the fewest permits left, 1 of 1; its own limits deny, and the request is charged to rule extra"; x.Why() != want {
		t.Error(x.Why())
	}
	if got := ways(explain(t, newTenant(t, per("team", hourly(1))).limiter, with()), "team"); got != nil {
		t.Errorf("a rule of its own has ways: %q", got)
	}
}
