package promlimit_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/promlimit"
)

func TestRules(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r, err := promlimit.NewRules(registry)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	const rules = `
# HELP rate_limiter_rules Rules that there are, disabled ones included.
# TYPE rate_limiter_rules gauge
`
	const decisions = `
# HELP rate_limiter_rule_decisions_total Requests by the rule that decided them, by what each rule in shadow would have decided, and by each rule that could not decide.
# TYPE rate_limiter_rule_decisions_total counter
`
	r.Decided("nobody", promlimit.RuleAllowed)
	expect(rules + "rate_limiter_rules 0\n")

	r.Set([]string{"a", "b"})
	for _, outcome := range []promlimit.RuleOutcome{
		promlimit.RuleAllowed, promlimit.RuleAllowed, promlimit.RuleDenied, promlimit.RuleBanned, promlimit.RuleLacking, promlimit.RuleUnavailable, 99,
	} {
		r.Decided("a", outcome)
	}
	r.Decided("b", promlimit.RuleShadowDenied)
	r.Decided("b", promlimit.RuleShadowAllowed)
	stays := decisions + `rate_limiter_rule_decisions_total{outcome="allowed",rule="a"} 2
rate_limiter_rule_decisions_total{outcome="banned",rule="a"} 1
rate_limiter_rule_decisions_total{outcome="denied",rule="a"} 1
rate_limiter_rule_decisions_total{outcome="lacking",rule="a"} 1
rate_limiter_rule_decisions_total{outcome="unavailable",rule="a"} 1
`
	expect(stays + `rate_limiter_rule_decisions_total{outcome="shadow_allowed",rule="b"} 1
rate_limiter_rule_decisions_total{outcome="shadow_denied",rule="b"} 1
` + rules + "rate_limiter_rules 2\n")

	r.Set([]string{"c", "a", "d"})
	r.Decided("b", promlimit.RuleAllowed) // by a request that began before
	expect(stays + rules + "rate_limiter_rules 3\n")
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if n := testing.AllocsPerRun(100, func() { r.Decided("a", promlimit.RuleDenied) }); n != 0 {
		t.Errorf("Decided allocates %v times", n)
	}
}

func TestRulesTwice(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if _, err := promlimit.NewRules(registry); err != nil {
		t.Fatal(err)
	}
	if _, err := promlimit.NewRules(registry); err == nil {
		t.Error("NewRules registered names that were taken")
	}
}
