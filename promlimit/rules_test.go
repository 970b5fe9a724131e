package promlimit_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/rules"
)

// still is a clock that stands still, so that no window ends meanwhile.
func still() time.Time { return time.UnixMicro(1_790_000_000_000_000) }

// rule makes one for a path, which counts users.
func rule(path string, change func(*rules.Rule)) rules.Rule {
	r := rules.Rule{
		ID: path, Match: rules.Match{Paths: []string{"/" + path}}, Scope: []string{rules.PerUser}, Missing: rules.MissingDeny,
		Limits: []stint.Limit{stint.FixedWindow(10, time.Hour)},
	}
	if change != nil {
		change(&r)
	}
	return r
}

func compile(t *testing.T, list ...rules.Rule) *rules.Set {
	t.Helper()
	return must.Get(rules.Compile(list, rules.Options{}))(t)
}

const (
	rulesHelp = `
# HELP rate_limiter_rules Rules that there are, disabled ones included.
# TYPE rate_limiter_rules gauge
`
	decisionsHelp = `
# HELP rate_limiter_rule_decisions_total Requests by the rule that decided them, by what each rule in shadow would have decided, and by each rule that could not decide.
# TYPE rate_limiter_rule_decisions_total counter
`
	nearHelp = `
# HELP rate_limiter_rule_near_limit_total Requests that the rule admitted and that left a client a fifth of the limit, or less.
# TYPE rate_limiter_rule_near_limit_total counter
`
	waysHelp = `
# HELP rate_limiter_rule_ways_total Requests that a rule with classes, within another one or with an otherwise decided: by class, and by what they were charged.
# TYPE rate_limiter_rule_ways_total counter
`
	defaultHelp = `
# HELP rate_limiter_default_denials_total Requests that were denied since no rule holds for them.
# TYPE rate_limiter_default_denials_total counter
`
)

func TestRules(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := must.Get(promlimit.NewRules(registry))(t)
	expect := func(want string) { t.Helper(); gathers(t, registry, want) }
	expect(defaultHelp + "rate_limiter_default_denials_total 0\n" + rulesHelp + "rate_limiter_rules 0\n")

	set := compile(t,
		rule("shop", func(r *rules.Rule) { r.Set = "web" }),
		rule("tried", func(r *rules.Rule) { r.OnExceed = rules.Shadow; r.Limits[0].Capacity = 2 }),
		rule("soft", func(r *rules.Rule) {
			r.OnExceed, r.Match.Paths = rules.Mark, []string{"/tried"}
			r.Limits[0].Capacity = 1
		}),
		rule("free", func(r *rules.Rule) { r.Match.Paths = []string{"/tried"}; r.Unlimited, r.Limits = true, nil }),
		rule("closed", func(r *rules.Rule) { r.Banned, r.Limits = true, nil }),
	)
	r.Set(set)
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: still}), Set: set, DenyByDefault: true}))(t)
	var v enforce.Verdict
	ask := func(path, user string) {
		t.Helper()
		must.Do(t, limiter.Decide(t.Context(), &rules.Request{Path: "/" + path, User: user}, &v))
		v.Tell(t.Context(), &stint.Event{}, r.Observe)
	}
	for range 12 { // of which 10 are admitted, and 3 leave 2 or less
		ask("shop", "ann")
	}
	ask("shop", "")
	ask("closed", "ann")
	ask("elsewhere", "ann")
	for range 3 {
		ask("tried", "ann")
	}
	near := nearHelp + "rate_limiter_rule_near_limit_total{rule=\"shop\",set=\"web\"} 3\n"
	shop := `rate_limiter_rule_decisions_total{outcome="allowed",rule="shop",set="web"} 10
rate_limiter_rule_decisions_total{outcome="denied",rule="shop",set="web"} 2
rate_limiter_rule_decisions_total{outcome="missing",rule="shop",set="web"} 1
`
	others := `rate_limiter_rule_decisions_total{outcome="banned",rule="closed",set=""} 1
rate_limiter_rule_decisions_total{outcome="marked",rule="soft",set=""} 2
rate_limiter_rule_decisions_total{outcome="shadow_allowed",rule="tried",set=""} 2
rate_limiter_rule_decisions_total{outcome="shadow_denied",rule="tried",set=""} 1
`
	byDefault := defaultHelp + "rate_limiter_default_denials_total 1\n"
	expect(byDefault + decisionsHelp + shop + others + near + rulesHelp + "rate_limiter_rules 5\n")

	gone := stint.Event{Rule: "gone", Decision: stint.Decision{Allowed: true}}
	if n := testing.AllocsPerRun(100, func() { r.Observe(t.Context(), &gone) }); n != 0 {
		t.Errorf("Observe allocates %v times", n)
	}

	// A rule that goes takes its series along, and so does one whose set is called otherwise.
	r.Set(nil, compile(t, rule("shop", func(r *rules.Rule) { r.Set = "web" }), rule("new", nil)))
	ask("closed", "ann") // by a request that began before
	expect(byDefault + decisionsHelp + shop + near + rulesHelp + "rate_limiter_rules 2\n")
	r.Set(compile(t, rule("shop", nil)))
	expect(byDefault + rulesHelp + "rate_limiter_rules 1\n")
	linted(t, registry)
}

// Rules with classes or ways count by them, and a class that goes takes its series along.
func TestRuleWays(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := must.Get(promlimit.NewRules(registry))(t)
	org := rules.Rule{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(10, stint.PerHour(10))}}
	team := func(keep map[string]rules.Percent) rules.Rule {
		return rules.Rule{
			ID: "team", Set: "s", Within: "org", Scope: []string{rules.PerUser}, Missing: rules.MissingDeny, Borrow: rules.Borrow{Any: true},
			Guaranteed: map[string]rules.Floor{"ann": {Capacity: 2, Refill: stint.PerHour(2)}},
			Classes:    rules.Classes{By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: keep},
		}
	}
	set := compile(t, org, team(map[string]rules.Percent{"batch": 50, "critical": 0}))
	r.Set(set, nil)
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: still}), Set: set}))(t)
	var v enforce.Verdict
	ask := func(user, class string) {
		t.Helper()
		must.Do(t, limiter.Decide(t.Context(), &rules.Request{Path: "/", User: user, Attributes: map[string]string{"class": class}}, &v))
		v.Tell(t.Context(), &stint.Event{}, r.Observe)
	}
	for range 5 { // 2 of them guaranteed, and 2 borrowed of the 8 that nobody is sure of, half of which stay
		ask("ann", "")
	}
	for range 5 {
		ask("ben", "critical")
	}
	ask("", "critical")
	expect := func(want string) { t.Helper(); gathers(t, registry, want, "rate_limiter_rule_ways_total") }
	const critical = `rate_limiter_rule_ways_total{class="critical",outcome="allowed",rule="team",set="s",via="borrowed"} 4
rate_limiter_rule_ways_total{class="critical",outcome="denied",rule="team",set="s",via=""} 1
`
	const none = `rate_limiter_rule_ways_total{class="",outcome="missing",rule="team",set="s",via=""} 1
`
	const batch = `rate_limiter_rule_ways_total{class="batch",outcome="allowed",rule="team",set="s",via="borrowed"} 2
rate_limiter_rule_ways_total{class="batch",outcome="allowed",rule="team",set="s",via="guaranteed"} 2
rate_limiter_rule_ways_total{class="batch",outcome="denied",rule="team",set="s",via=""} 1
`
	expect(waysHelp + none + batch + critical)
	other := compile(t, org, team(map[string]rules.Percent{"batch": 50, "normal": 0}))
	r.Set(other, set)
	expect(waysHelp + none + batch + critical)
	r.Set(other)
	ask("ben", "critical") // by a request that began before
	expect(waysHelp + none + batch)
	r.Set(compile(t, org, rule("team", func(r *rules.Rule) { r.Set = "s" })))
	expect("")
	linted(t, registry)
}

// TestRulesUndecided: each rule that was to decide counts once, however many claims it has.
func TestRulesUndecided(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := must.Get(promlimit.NewRules(registry))(t)
	set := compile(t, rule("a", nil), rule("b", nil))
	r.Set(set)
	a, _ := set.Rule("a")
	b, _ := set.Rule("b")
	r.Undecided([]enforce.Claimed{{Rule: &a}, {Rule: &a}, {Rule: &b}})
	r.Undecided([]enforce.Claimed{{Rule: &b}})
	gathers(t, registry, decisionsHelp+`rate_limiter_rule_decisions_total{outcome="unavailable",rule="a",set=""} 1
rate_limiter_rule_decisions_total{outcome="unavailable",rule="b",set=""} 2
`, "rate_limiter_rule_decisions_total")
}

func TestRulesTwice(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	must.Get(promlimit.NewRules(registry))(t)
	if _, err := promlimit.NewRules(registry); err == nil {
		t.Error("NewRules registered names that were taken")
	}
}
