package enforce_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// charge decides a request that is admitted, and returns by which ways.
func (a *tenant) charge(r rules.Request, want map[string]string) map[string]string {
	a.t.Helper()
	v := decide(a.t, a.limiter, r)
	if !v.Allowed || !maps.Equal(v.Vias(), want) {
		a.t.Fatalf("admitted %v by %v, want %v", v.Allowed, v.Vias(), want)
	}
	return v.Vias()
}

// What is available is that of all ways together, and of several rules the least; without ways, nothing is said.
func TestAvailable(t *testing.T) {
	org, team := organisation()
	quota, extra := per("quota", hourly(3)), rules.Rule{ID: "extra", Scope: []string{rules.Global}, Limits: []stint.Limit{hourly(40)}}
	quota.Otherwise = "extra"
	for _, test := range []struct {
		name      string
		rules     []rules.Rule
		team      string
		available int64
		chooses   bool
	}{
		{"a floor of 30 of 100, of which floors need 50", []rules.Rule{org, team}, "search", 49, true},
		{"what has to admit has less", []rules.Rule{org, team, per("address", hourly(10))}, "search", 9, true},
		{"two states", []rules.Rule{quota, extra}, "", 42, true},
		{"two rules with ways", []rules.Rule{org, team, quota, extra}, "search", 42, true},
		{"one way", []rules.Rule{org, team}, "other", 0, false},
		{"no ways", []rules.Rule{per("address", hourly(10))}, "", 0, false},
	} {
		a := newTenant(t, test.rules...)
		v := decide(t, a.limiter, with("team", test.team))
		if n, chooses := v.Available(); n != test.available || chooses != test.chooses {
			t.Errorf("%s: %d, %t; want %d, %t", test.name, n, chooses, test.available, test.chooses)
		}
		if !test.chooses {
			continue
		}
		if n, _ := a.count(100, with("team", test.team)); int64(n) != test.available {
			t.Errorf("%s: %d are admitted, want %d", test.name, n, test.available)
		}
	}
}

// settle settles a request, of which so many permits are applied.
func (a *tenant) settle(r rules.Request, permits int64, vias map[string]string) {
	a.t.Helper()
	var v enforce.Verdict
	if err := a.limiter.Settle(a.t.Context(), &r, permits, vias, &v); err != nil || v.Decision.Applied != permits {
		a.t.Errorf("%d permits of %v: %+v, %v", permits, vias, v.Decision, err)
	}
}

// A settlement changes the limits of the way that charged the request, and no others.
func TestSettleByWay(t *testing.T) {
	org, team := organisation()
	team.Cost, team.MaxCost = rules.Cost{Attribute: "tokens", Permits: 1}, 40
	team.Borrow = rules.Borrow{Rate: stint.PerHour(15)}
	a := newTenant(t, org, team)
	search := with("team", "search")
	org50 := func(n int64) int64 { return n - 50 } // what is left of the organisation beside the floors
	of := func(tokens string) rules.Request { return with("team", "search", "tokens", tokens) }
	expect := func(when string, floor, parent, ceiling int64) {
		t.Helper()
		wantLeft(t, when, left(t, a.limiter, search), map[string]int64{"team/guaranteed": floor, "team/": org50(parent), "team/borrow": ceiling})
	}
	floor := a.charge(of("20"), map[string]string{"team": "guaranteed"})
	loan := a.charge(of("12"), map[string]string{"team": "borrowed"})
	expect("taken", 10, 68, 3)
	a.settle(search, -12, loan)
	expect("a loan refunded", 10, 80, 15)
	a.settle(search, -20, floor)
	expect("a floor refunded", 30, 100, 15)
	a.settle(search, 4, map[string]string{"": "borrowed"})
	expect("a loan charged", 30, 96, 11)
	a.settle(search, 4, map[string]string{"team": "borrowed:org"})
	expect("by its full name", 30, 92, 7)

	a.settle(with("team", "other"), 1, nil) // which can only borrow
	a.settle(with("team", "other"), 1, map[string]string{"": "borrowed"})
	a.settle(with(), 1, nil) // by the organisation alone
	wantLeft(t, "others", left(t, a.limiter, search), map[string]int64{"team/": org50(89)})
}

// Without the way, or with another, nothing is settled.
func TestSettleNeedsTheWay(t *testing.T) {
	org, team := organisation()
	a := newTenant(t, org, team, rules.Rule{ID: "plain", Scope: []string{rules.Global}, Limits: []stint.Limit{hourly(1000)}})
	search := with("team", "search")
	for _, test := range []struct {
		r    rules.Request
		vias map[string]string
		want string
	}{
		{search, nil, "via is missing; allowed: by what rule team charged the request, as its decision said: guaranteed or borrowed"},
		{search, map[string]string{"other": "borrowed"}, "via is missing"},
		{search, map[string]string{"": "otherwise"}, `via is "otherwise"; allowed: by what rule team charged the request, as its decision said: guaranteed or borrowed`},
		{search, map[string]string{"team": "limits", "": "borrowed"}, `vias.team is "limits"`},
		{search, map[string]string{"team": "borrowed:team"}, `vias.team is "borrowed:team"`},
		{search, map[string]string{"team": "borrowed", "plain": "borrowed"}, `vias.plain is "borrowed"; allowed: none`},
		{with("team", "other"), map[string]string{"": "guaranteed"}, `via is "guaranteed"; allowed: by what rule team charged the request, as its decision said: borrowed`},
		{with(), map[string]string{"": "borrowed"}, `via is "borrowed"; allowed: none`},
	} {
		var v enforce.Verdict
		err := a.limiter.Settle(t.Context(), &test.r, 1, test.vias, &v)
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.vias, err, test.want)
		}
	}
	wantLeft(t, "settled nothing", left(t, a.limiter, search), map[string]int64{"team/guaranteed": 30, "team/": 50, "plain/": 1000})
}

// A loan of three levels says whose limit it is of, which decides what is settled.
func TestSettleByTheLender(t *testing.T) {
	org, team := organisation()
	user := rules.Rule{
		ID: "user", Within: "team", Scope: []string{rules.Custom("user")}, Missing: rules.MissingSkip,
		Guaranteed: map[string]rules.Floor{"ann": {Capacity: 1, Refill: stint.Per(1, 20*time.Hour)}}, Borrow: rules.Borrow{Any: true},
	}
	a := newTenant(t, org, team, user)
	ann := with("team", "search", "user", "ann")
	a.charge(ann, map[string]string{"user": "guaranteed"})
	lent := a.charge(ann, map[string]string{"user": "borrowed:team"})
	a.count(28, ann)
	outer := a.charge(ann, map[string]string{"user": "borrowed:org"})
	is := func(when string, ann1, search, all int64) {
		t.Helper()
		x := explain(t, a.limiter, ann)
		each := x.Rules[len(x.Rules)-1].Each // of ann, search and org; of search and org; of org
		if got := [3]int64{each[0].Remaining, each[1].Remaining, each[2].Remaining}; got != [3]int64{ann1, search, all} {
			t.Errorf("%s: %v left, want %v", when, got, [3]int64{ann1, search, all})
		}
	}
	is("taken", 0, 1, 69)
	a.settle(ann, -1, outer)
	is("of the organisation", 0, 1, 70)
	a.settle(ann, -1, lent)
	is("of the team", 0, 2, 71)
	var v enforce.Verdict
	err := a.limiter.Settle(t.Context(), &ann, 1, map[string]string{"": "borrowed"}, &v)
	if want := "guaranteed or borrowed:team or borrowed:org"; !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// Each rule has a way of its own, whichever decides, and those in shadow too.
func TestSettleOfSeveralRules(t *testing.T) {
	org, team := organisation()
	quota := per("quota", hourly(1))
	quota.Otherwise, quota.OnExceed = "extra", rules.Shadow
	extra := rules.Rule{ID: "extra", Scope: []string{rules.Global}, OnExceed: rules.Shadow, Limits: []stint.Limit{hourly(1)}}
	paid := per("paid", hourly(1))
	paid.Otherwise = "more"
	more := rules.Rule{ID: "more", Scope: []string{rules.Global}, Limits: []stint.Limit{hourly(200)}}
	a := newTenant(t, org, team, quota, extra, paid, more, per("least", hourly(3)))
	search := with("team", "search")
	a.charge(search, map[string]string{"team": "guaranteed", "quota": "limits", "paid": "limits"})
	second := a.charge(search, map[string]string{"team": "guaranteed", "quota": "otherwise", "paid": "otherwise"})
	third := a.charge(search, map[string]string{"team": "guaranteed", "paid": "otherwise"}) // in shadow it is denied
	is := func(when string, quota, extra, paid, more int64) {
		t.Helper()
		x := explain(t, a.limiter, search)
		got := map[string]int64{}
		for i := range x.Rules {
			for j, o := range x.Rules[i].Each {
				got[x.Rules[i].Rule.ID+"/"+x.Rules[i].ViaAt(j)] = o.Remaining
			}
		}
		wantLeft(t, when, got, map[string]int64{"quota/limits": quota, "quota/otherwise": extra, "paid/limits": paid, "paid/otherwise": more})
	}
	is("taken", 0, 0, 0, 198)
	a.settle(search, -1, third)
	is("third", 0, 0, 0, 199)
	a.settle(search, -1, second)
	is("second", 0, 1, 0, 200)
	a.count(2, search)
	if denied := decide(t, a.limiter, search); denied.Allowed || denied.Vias() != nil {
		t.Errorf("a request is admitted %v, charged by %v", denied.Allowed, denied.Vias())
	}
	var v enforce.Verdict
	err := a.limiter.Settle(t.Context(), &search, 1, map[string]string{"team": "guaranteed", "paid": "limits", "quota": "borrowed"}, &v)
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `vias.quota is "borrowed"; allowed: by what rule quota`) {
		t.Errorf("by no way of a rule in shadow: %v", err)
	}
}

// A request that names more than the rule's max_cost is refused; what it cost in the end may be more.
func TestMaxCost(t *testing.T) {
	org, team := organisation()
	team.Cost, team.MaxCost = rules.Cost{Attribute: "tokens", Permits: 1}, 25
	a := newTenant(t, org, team)
	of := func(tokens string) *rules.Request { return ptr(with("team", "search", "tokens", tokens)) }
	var v enforce.Verdict
	for verb, refuse := range map[string]func(r *rules.Request) error{
		"decide":     func(r *rules.Request) error { return a.limiter.Decide(t.Context(), r, &v) },
		"decide now": func(r *rules.Request) error { return a.limiter.DecideNow(t.Context(), r, &v) },
		"explain": func(r *rules.Request) error {
			_, err := a.limiter.Explain(t.Context(), r)
			return err
		},
		"reserve": func(r *rules.Request) error {
			_, err := a.limiter.Reserve(t.Context(), r, stint.Hold{ID: "none"}, &v)
			return err
		},
	} {
		const want = `rule "team": tokens is 26; allowed: a cost of 1 to 25, the rule's max_cost`
		if err := refuse(of("26")); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) || v.Allowed {
			t.Errorf("%s: %v, want %s", verb, err, want)
		}
	}
	wantLeft(t, "refused", left(t, a.limiter, *of("")), map[string]int64{"team/guaranteed": 30, "team/": 50})
	a.charge(*of("25"), map[string]string{"team": "guaranteed"})
	a.settle(*of("26"), 1, map[string]string{"team": "guaranteed"})
	wantLeft(t, "settled", left(t, a.limiter, *of("")), map[string]int64{"team/guaranteed": 4, "team/": 24})
	if _, err := a.limiter.Reserve(t.Context(), of("1"), stint.Hold{ID: "h"}, &v); err != nil || !v.Allowed {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := a.limiter.End(t.Context(), of("26"), stint.VerbCommit, &stint.HoldOp{Hold: stint.Hold{ID: "h"}}, -1, 0, nil, nil, &v); err != nil || v.Decision.Applied != 25 {
		t.Errorf("a commit of more: %+v, %v", v.Decision, err)
	}
	if err := a.limiter.Reset(t.Context(), of("26"), &v); err != nil {
		t.Errorf("a reset: %v", err)
	}
	wantLeft(t, "reset", left(t, a.limiter, *of("")), map[string]int64{"team/guaranteed": 30, "team/": 50})
}

// The commit of a hold that the store has lost is charged by the way that it names.
func TestACommitNamesItsWay(t *testing.T) {
	org, team := organisation()
	a := newTenant(t, org, team)
	request := with("team", "search")
	var v enforce.Verdict
	commit := func(id string, vias map[string]string) error {
		hold := stint.HoldOp{Hold: stint.Hold{ID: id, ExpiresAt: a.clock.Instant()}}
		return a.limiter.End(t.Context(), &request, stint.VerbCommit, &hold, 10, 0, nil, vias, &v)
	}
	for _, test := range []struct {
		id   string
		vias map[string]string
		want map[string]int64
	}{
		{"none is named", nil, map[string]int64{"team/guaranteed": 20, "team/": 40}},
		{"the rule's", map[string]string{"team": "borrowed"}, map[string]int64{"team/guaranteed": 20, "team/": 30}},
		{"all rules'", map[string]string{"": "borrowed"}, map[string]int64{"team/guaranteed": 20, "team/": 20}},
		{"the floor", map[string]string{"": "guaranteed"}, map[string]int64{"team/guaranteed": 10, "team/": 10}},
	} {
		if err := commit(test.id, test.vias); err != nil || v.Decision.Applied != 10 {
			t.Errorf("%s: %+v, %v", test.id, v.Decision, err)
		}
		wantLeft(t, test.id, left(t, a.limiter, request), test.want)
	}
	if err := commit("unknown", map[string]string{"": "nobody"}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a way that is not there: %v", err)
	}
}
