package enforce_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// metered is a rule that counts requests and tokens.
func metered(id string) rules.Rule {
	r := per(id, stint.FixedWindow(3, time.Hour).Named("requests"), stint.FixedWindow(100, time.Hour).Named("tokens"), stint.FixedWindow(1000, time.Hour).Named("day"))
	r.Costs = []rules.Cost{{}, {Attribute: "tokens", Permits: 10}, {Attribute: "tokens", Permits: 10}}
	return r
}

// left are the permits that each limit has left, by rule and name.
func left(t testing.TB, limiter *enforce.Limiter, r rules.Request) map[string]int64 {
	t.Helper()
	x := must.Get(limiter.Explain(t.Context(), &r))(t)
	all := map[string]int64{}
	for i := range x.Rules {
		op := stint.Op{Claim: x.Rules[i].Claim, And: x.Rules[i].And}
		for j, o := range x.Rules[i].Each {
			limit, _ := op.LimitAt(j)
			all[x.Rules[i].Rule.ID+"/"+limit.Name] = o.Remaining
		}
	}
	return all
}

func wantLeft(t testing.TB, when string, got map[string]int64, want map[string]int64) {
	t.Helper()
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %s has %d left, want %d (of %v)", when, name, got[name], n, got)
		}
	}
}

func tokens(n string) rules.Request {
	r := alice
	r.Attributes = map[string]string{"tokens": n}
	return r
}

// Limits of one rule take costs of their own, together or not at all.
func TestCostsOfLimits(t *testing.T) {
	shadow := metered("shadow")
	shadow.OnExceed = rules.Shadow
	limiter, _ := newLimiter(t, metered("a"), shadow, per("b", stint.FixedWindow(50, time.Hour)))
	for _, test := range []struct {
		tokens, limit string
		want          map[string]int64
	}{
		{"60", "", map[string]int64{"a/requests": 2, "a/tokens": 40, "a/day": 940, "shadow/requests": 2, "shadow/tokens": 40, "b/": 49}},
		{"50", "tokens", map[string]int64{"a/requests": 2, "a/tokens": 40, "shadow/requests": 2, "shadow/tokens": 40, "b/": 49}},
		{"", "", map[string]int64{"a/requests": 1, "a/tokens": 30}},
		{"1", "", map[string]int64{"a/requests": 0, "a/tokens": 29}},
		{"1", "requests", map[string]int64{"a/requests": 0, "a/tokens": 29, "b/": 47}},
	} {
		v := decide(t, limiter, tokens(test.tokens))
		if denied := v.Limit().Name; v.Allowed != (test.limit == "") || !v.Allowed && denied != test.limit {
			t.Errorf("%s tokens: %v by %s, want %q", test.tokens, v.Allowed, denied, test.limit)
		}
		wantLeft(t, test.tokens, left(t, limiter, tokens("1")), test.want)
	}
	if v := decide(t, limiter, tokens("1")); len(v.Matched) != 3 || len(v.Shadowed) != 1 {
		t.Errorf("%v match and %v are in shadow; each rule once", v.Matched, v.Shadowed)
	}
}

// A limit's state does not depend on which others have its cost.
func TestStateSurvivesAChangeOfCosts(t *testing.T) {
	limiter, _ := newLimiter(t, metered("a"))
	decide(t, limiter, tokens("60"))
	changed := metered("a")
	changed.Costs = nil
	limiter.Swap(setOf(t, limiter.Set(), changed))
	wantLeft(t, "without costs", left(t, limiter, alice), map[string]int64{"a/requests": 2, "a/tokens": 40, "a/day": 940})
	changed.Costs = []rules.Cost{{Permits: 2}, {Permits: 3}, {Header: "N"}}
	limiter.Swap(setOf(t, limiter.Set(), changed))
	wantLeft(t, "with others", left(t, limiter, alice), map[string]int64{"a/requests": 2, "a/tokens": 40, "a/day": 940})
}

// A rule that waits, whose limits have several costs, is one line.
func TestARuleOfSeveralCostsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := per("a", stint.TokenBucket(1, stint.Every(time.Millisecond)).Named("a"), stint.TokenBucket(2, stint.Every(time.Millisecond)).Named("b"))
		r.Costs, r.OnExceed, r.MaxWait, r.MaxWaiters = []rules.Cost{{}, {Permits: 2}}, rules.Wait, time.Minute, 100
		limiter, _ := newLimiter(t, r)
		done := make(chan error, 50)
		for range cap(done) {
			go func() {
				var v enforce.Verdict
				err := limiter.Decide(t.Context(), &alice, &v)
				if err == nil && !v.Allowed {
					err = errors.New("it is denied")
				}
				done <- err
			}()
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// A rule in shadow changes nothing of what is settled by the rules in force, nor by others in shadow. It is settled itself
// as if it were in force.
func TestSettleBesideShadow(t *testing.T) {
	named, plain := metered("named"), per("plain", stint.FixedWindow(50, time.Hour))
	named.OnExceed, plain.OnExceed = rules.Shadow, rules.Shadow
	limiter, _ := newLimiter(t, per("b", stint.FixedWindow(50, time.Hour)), named, plain)
	r := tokens("10")
	decide(t, limiter, r)
	var v enforce.Verdict
	if err := limiter.Settle(t.Context(), &r, 25, nil, &v); err != nil || v.Decision.Applied != 25 || v.Rule == nil {
		t.Errorf("%+v by %v, %v", v.Decision, v.Rule, err)
	}
	wantLeft(t, "charged", left(t, limiter, r), map[string]int64{"b/": 24, "named/requests": 2, "named/tokens": 65, "plain/": 24})

	limiter, _ = newLimiter(t, metered("a"), plain)
	decide(t, limiter, r)
	must.Do(t, limiter.Settle(t.Context(), &r, 25, nil, &v))
	wantLeft(t, "charged", left(t, limiter, r), map[string]int64{"a/tokens": 65, "plain/": 49})
}

// What rules decided is settled: of limits whose cost requests name, or of all where there is none.
func TestSettle(t *testing.T) {
	shadow := metered("shadow")
	shadow.OnExceed = rules.Shadow
	limiter, _ := newLimiter(t, metered("a"), shadow, per("b", stint.FixedWindow(50, time.Hour)))
	r := tokens("10")
	decide(t, limiter, r)
	var v enforce.Verdict
	if err := limiter.Settle(t.Context(), &r, 25, nil, &v); err != nil || v.Decision.Applied != 25 || v.Limit().Name != "tokens" || v.Rule.ID != "a" {
		t.Errorf("%+v by %s, %v", v.Decision, v.Limit().Name, err)
	}
	wantLeft(t, "charged", left(t, limiter, r), map[string]int64{"a/requests": 2, "a/tokens": 65, "a/day": 965, "shadow/requests": 2, "shadow/tokens": 65, "b/": 49})
	if err := limiter.SettleClient(t.Context(), "a", "192.0.2.1", -30, &v); err != nil || v.Decision.Applied != -30 {
		t.Errorf("%+v, %v", v.Decision, err)
	}
	wantLeft(t, "refunded", left(t, limiter, r), map[string]int64{"a/requests": 2, "a/tokens": 95, "shadow/tokens": 65})
	if err := limiter.Reset(t.Context(), &r, &v); err != nil {
		t.Error(err)
	}
	wantLeft(t, "reset", left(t, limiter, r), map[string]int64{"a/requests": 3, "a/tokens": 100, "shadow/tokens": 100, "b/": 50})
	limiter.Swap(setOf(t, nil, per("b", stint.FixedWindow(50, time.Hour))))
	if err := limiter.Settle(t.Context(), &r, 7, nil, &v); err != nil || v.Decision.Applied != 7 {
		t.Errorf("%+v, %v", v.Decision, err)
	}
	wantLeft(t, "of all", left(t, limiter, r), map[string]int64{"b/": 43})
	if err := limiter.ResetClient(t.Context(), "b", "192.0.2.1"); err != nil {
		t.Error(err)
	}
	wantLeft(t, "reset by client", left(t, limiter, r), map[string]int64{"b/": 50})
}

// A sum of parts is charged by a decision, held by a reserve, and charged by a commit that leaves it to the rules; what is
// settled, and what a commit says, changes the limits whose cost it is.
func TestSettleSums(t *testing.T) {
	r := per("a", stint.FixedWindow(10, time.Hour).Named("requests"), stint.FixedWindow(1000, time.Hour).Named("tokens"))
	r.Costs = []rules.Cost{{}, {Sum: []rules.CostPart{{Attribute: "in"}, {Attribute: "out", Weight: 4000}, {Attribute: "cached", Weight: 100}}}}
	limiter, _ := newLimiter(t, r)
	of := func(in, out, cached string) rules.Request {
		request := alice
		request.Attributes = map[string]string{"in": in, "out": out, "cached": cached}
		return request
	}
	request, v := of("10", "5", "1"), enforce.Verdict{}
	decide(t, limiter, request)
	wantLeft(t, "decided", left(t, limiter, request), map[string]int64{"a/requests": 9, "a/tokens": 969})
	if err := limiter.Settle(t.Context(), &request, -9, nil, &v); err != nil || v.Decision.Applied != -9 {
		t.Errorf("%+v, %v", v.Decision, err)
	}
	wantLeft(t, "settled", left(t, limiter, request), map[string]int64{"a/requests": 9, "a/tokens": 978})
	reserve(t, limiter, of("10", "100", ""), stint.Hold{ID: "h"})
	wantLeft(t, "held", left(t, limiter, request), map[string]int64{"a/requests": 8, "a/tokens": 568})
	used, h := of("10", "20", "11"), stint.HoldOp{Hold: stint.Hold{ID: "h"}}
	if err := limiter.End(t.Context(), &used, stint.VerbCommit, &h, -1, 0, nil, nil, &v); err != nil || v.Decision.Applied != -318 {
		t.Errorf("%+v, %v", v.Decision, err)
	}
	wantLeft(t, "committed", left(t, limiter, request), map[string]int64{"a/requests": 8, "a/tokens": 886})
}

// A request without limits has nothing to settle, and a leaky bucket takes no turn back.
func TestSettleNothing(t *testing.T) {
	ban := rules.Rule{ID: "ban", Scope: []string{rules.PerIP}, Banned: true, Match: rules.Match{Paths: []string{"/ban"}}}
	leaky := per("leaky", stint.LeakyBucket(5, stint.PerHour(1)))
	leaky.Overrides = []rules.Override{{Key: "192.0.2.2", Unlimited: true}, {Key: "192.0.2.0/24", Limits: []stint.Limit{stint.FixedWindow(9, time.Hour)}}}
	limiter, store := newLimiter(t, ban, leaky)
	var v enforce.Verdict
	banned, free, other := alice, alice, alice
	banned.Path, free.Address, other.Address = "/ban", "192.0.2.2", "198.51.100.1"
	for name, settle := range map[string]func() error{
		"banned":              func() error { return limiter.Settle(t.Context(), &banned, 3, nil, &v) },
		"unlimited":           func() error { return limiter.Settle(t.Context(), &free, 3, nil, &v) },
		"banned client":       func() error { return limiter.SettleClient(t.Context(), "ban", "192.0.2.1", 3, &v) },
		"unlimited client":    func() error { return limiter.SettleClient(t.Context(), "leaky", "192.0.2.2", 3, &v) },
		"reset of the banned": func() error { return limiter.ResetClient(t.Context(), "ban", "192.0.2.1") },
	} {
		if err := settle(); err != nil || v.Decision.Applied != 0 || store.Calls() != 0 {
			t.Errorf("%s: %+v, %v after %d calls", name, v.Decision, err, store.Calls())
		}
	}
	if err := limiter.Settle(t.Context(), &other, -1, nil, &v); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a turn is given back: %v", err)
	}
	if err := limiter.SettleClient(t.Context(), "leaky", "192.0.2.1", 3, &v); err != nil || v.Decision.Applied != 3 || v.Decision.Limit != 9 {
		t.Errorf("by the override of a network: %+v, %v", v.Decision, err)
	}
	if err := limiter.SettleClient(t.Context(), "none", "192.0.2.1", 3, &v); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("of no rule: %v", err)
	}
}
