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
	store := memstore.New(memstore.Config{Now: clock.Now})
	limiter := must.Get(enforce.New(enforce.Config{Store: store, Set: setOf(t, nil, list...)}))(t)
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

// Rules that wait, and holds, take a rule with ways as a whole.
func TestWithinOtherwise(t *testing.T) {
	org, team := organisation()
	a := newTenant(t, org, team)
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
