package enforce_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// hourly is a bucket that refills by one permit an hour.
func hourly(capacity int64) stint.Limit { return stint.TokenBucket(capacity, stint.Per(1, time.Hour)) }

// organisation is a limit of 100 and its teams: search is sure of 30, ads of 20.
func organisation() (org, team rules.Rule) {
	org = rules.Rule{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{hourly(100)}}
	team = rules.Rule{
		ID: "team", Within: "org", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip,
		Guaranteed: map[string]rules.Floor{
			"search": {Capacity: 30, Refill: stint.Per(1, 4*time.Hour)}, "ads": {Capacity: 20, Refill: stint.Per(1, 4*time.Hour)},
		},
		Borrow: rules.Borrow{Any: true},
	}
	return org, team
}

// tenant is a limiter on a pinned clock, with requests of attributes.
type tenant struct {
	t       testing.TB
	limiter *enforce.Limiter
	clock   *storetest.Clock
}

func newTenant(t testing.TB, list ...rules.Rule) *tenant {
	t.Helper()
	clock := storetest.NewClock(1_790_000_000_000_000)
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: clock.Now}), Set: setOf(t, nil, list...)})
	if err != nil {
		t.Fatal(err)
	}
	return &tenant{t, limiter, clock}
}

func with(pairs ...string) rules.Request {
	r := rules.Request{Path: "/x", Address: "192.0.2.1", Attributes: map[string]string{}}
	for pair := range slices.Chunk(pairs, 2) {
		r.Attributes[pair[0]] = pair[1]
	}
	return r
}

// count is how many of n requests are admitted, and by what they were charged.
func (a *tenant) count(n int, r rules.Request) (admitted int, vias map[string]int) {
	a.t.Helper()
	vias = map[string]int{}
	for range n {
		if v := decide(a.t, a.limiter, r); v.Allowed {
			admitted++
			vias[v.Via]++
		}
	}
	return admitted, vias
}

func (a *tenant) expect(what string, r rules.Request, admitted int, vias map[string]int) {
	a.t.Helper()
	got, by := a.count(200, r)
	if got != admitted {
		a.t.Errorf("%s: %d admitted, want %d (%v)", what, got, admitted, by)
	}
	for via, n := range vias {
		if by[via] != n {
			a.t.Errorf("%s: %d by %q, want %d (%v)", what, by[via], via, n, by)
		}
	}
}

// A lone team has its floor and all that no floor needs; others' floors are there when they come.
func TestWithin(t *testing.T) {
	org, team := organisation()
	a := newTenant(t, org, team)
	a.expect("search alone", with("team", "search"), 50, map[string]int{rules.ViaGuaranteed: 30, rules.ViaBorrowed: 20})
	a.expect("a team without a floor", with("team", "other"), 0, nil)
	a.expect("nobody's team", with(), 0, nil)
	a.expect("ads", with("team", "ads"), 20, map[string]int{rules.ViaGuaranteed: 20})

	a = newTenant(t, org, team)
	a.expect("requests of no team", with(), 50, map[string]int{"": 50})
	a.expect("search", with("team", "search"), 30, map[string]int{rules.ViaGuaranteed: 30})
	a = newTenant(t, org, team)
	a.expect("a team without a floor, alone", with("team", "other"), 50, map[string]int{rules.ViaBorrowed: 50})

	team.Borrow = rules.Borrow{Rate: stint.Per(7, time.Hour)}
	a = newTenant(t, org, team)
	a.expect("at a ceiling", with("team", "search"), 37, map[string]int{rules.ViaGuaranteed: 30, rules.ViaBorrowed: 7})
	a.expect("another at a ceiling", with("team", "other"), 7, map[string]int{rules.ViaBorrowed: 7})

	team.Borrow = rules.Borrow{}
	a = newTenant(t, org, team)
	a.expect("without borrowing", with("team", "search"), 30, nil)
	a.expect("without borrowing and floor", with("team", "other"), 0, nil)
	if v := decide(t, a.limiter, with("team", "other")); v.Rule.ID != "team" || v.Decision.RetryAfter != stint.Never {
		t.Errorf("%+v", v)
	}
}

// Users are sure of a part of their team's floor.
func TestWithinOfThreeLevels(t *testing.T) {
	org, team := organisation()
	user := rules.Rule{
		ID: "user", Within: "team", Scope: []string{rules.Custom("user")}, Missing: rules.MissingSkip,
		Guaranteed: map[string]rules.Floor{"ann": {Capacity: 5, Refill: stint.Per(1, 20*time.Hour)}, "bob": {Capacity: 10, Refill: stint.Per(1, 20*time.Hour)}},
		Borrow:     rules.Borrow{Any: true},
	}
	a := newTenant(t, org, team, user)
	// 5 of her own, 10 of the team's floor beside what users are sure of, and 35 of the organisation's.
	a.expect("ann", with("team", "search", "user", "ann"), 50, map[string]int{rules.ViaGuaranteed: 5, rules.ViaBorrowed: 45})
	a.expect("carl", with("team", "search", "user", "carl"), 0, nil)
	a.expect("a request of the team alone", with("team", "search"), 0, nil)
	a.expect("bob", with("team", "search", "user", "bob"), 10, map[string]int{rules.ViaGuaranteed: 10})
	a.expect("ads", with("team", "ads", "user", "zoe"), 5, map[string]int{rules.ViaBorrowed: 5})
}

// Classes leave parts of each limit to the more important ones.
func TestClasses(t *testing.T) {
	classes := rules.Classes{
		By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: map[string]rules.Percent{"critical": 0, "normal": 15, "batch": 40},
	}
	api := rules.Rule{ID: "api", Scope: []string{rules.Global}, Classes: classes, Limits: []stint.Limit{hourly(100), hourly(45).Named("b")}}
	a := newTenant(t, api)
	a.expect("batch", with(), 27, nil)
	a.expect("an unknown class", with("class", "nonsense"), 0, nil)
	a.expect("normal", with("class", "normal"), 12, nil)
	a.expect("critical", with("class", "critical"), 6, nil)
	if v := decide(t, a.limiter, with("class", "normal")); v.Allowed || v.Class != "normal" {
		t.Errorf("%+v", v)
	}

	org, team := organisation()
	team.Classes = classes
	a = newTenant(t, org, team)
	a.expect("batch of a team", with("team", "search"), 30, map[string]int{rules.ViaGuaranteed: 30})
	a.expect("critical of another", with("team", "other", "class", "critical"), 20, nil)
}

// What is included is charged first, and then what is not.
func TestOtherwise(t *testing.T) {
	quota := per("quota", hourly(3))
	quota.Otherwise = "extra"
	extra := rules.Rule{ID: "extra", Scope: []string{rules.Global}, Limits: []stint.Limit{hourly(5)}}
	a := newTenant(t, quota, extra)
	a.expect("one client", with(), 8, map[string]int{rules.ViaLimits: 3, rules.ViaOtherwise: 5})
	r := with()
	r.Address = "192.0.2.2"
	a.expect("another", r, 3, map[string]int{rules.ViaLimits: 3})
}

// Rules in shadow and waiting, and holds, take a rule with ways as a whole.
func TestWithinOtherwise(t *testing.T) {
	org, team := organisation()
	org.OnExceed, team.OnExceed = rules.Shadow, rules.Shadow
	a := newTenant(t, org, team)
	shadowed := 0
	for range 60 {
		shadowed += len(decide(t, a.limiter, with("team", "search")).Shadowed)
	}
	if shadowed != 10 {
		t.Errorf("%d are denied in shadow, want 10", shadowed)
	}
	org.OnExceed, team.OnExceed = rules.Reject, rules.Reject

	a = newTenant(t, org, team)
	var v enforce.Verdict
	held, err := a.limiter.Reserve(t.Context(), ptr(with("team", "search")), stint.Hold{ID: "h"}, &v)
	if err != nil || !v.Allowed || v.Via != rules.ViaGuaranteed {
		t.Fatalf("%+v, %v", v, err)
	}
	a.expect("beside a hold", with("team", "search"), 49, nil)
	must.Get(held.Cancel(t.Context()))(t)
	a.expect("after it", with("team", "search"), 1, map[string]int{rules.ViaGuaranteed: 1})

	team.OnExceed, team.MaxWait = rules.Wait, time.Minute
	a = newTenant(t, org, team)
	a.count(0, with())
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for range 50 {
		if err := a.limiter.DecideNow(ctx, ptr(with("team", "search")), &v); err != nil || !v.Allowed {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if err := a.limiter.Decide(ctx, ptr(with("team", "search")), &v); err != nil || v.Allowed || v.Held > 0 {
		t.Errorf("a wait of an hour: %+v, %v", v, err)
	}
}

func ptr[T any](v T) *T { return &v }
