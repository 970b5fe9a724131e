package promlimit

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A RuleOutcome says how a rule decided a request. The zero value is RuleAllowed.
type RuleOutcome uint8

// The outcomes of rules.
const (
	// RuleAllowed: of the rules that admitted, it was the one with the fewest permits left.
	RuleAllowed RuleOutcome = iota
	// RuleDenied: its limits denied, and of those that did its wait was the longest.
	RuleDenied
	// RuleBanned: it denies the client, or all.
	RuleBanned
	// RuleLacking: the request lacked what the rule's scope asks for.
	RuleLacking
	// RuleShadowDenied: it is in shadow, and would have denied.
	RuleShadowDenied
	// RuleShadowAllowed: it is in shadow, its limits were asked, and they would have admitted.
	RuleShadowAllowed
	// RuleUnavailable: it was to decide, by itself or together with others, and the store could not:
	// the request was answered 503. All of these rules are counted.
	RuleUnavailable

	ruleOutcomes
)

var ruleOutcomeNames = [ruleOutcomes]string{"allowed", "denied", "banned", "lacking", "shadow_denied", "shadow_allowed", "unavailable"}

// Rules counts what rules decide:
//
//	rate_limiter_rule_decisions_total{rule,outcome}  requests by the rule that decided them; those shown to a rule in shadow;
//	                                                 those that it could not decide
//	rate_limiter_rules                               rules that there are, disabled ones included
//
// There are series of the rules that [Rules.Set] named last, and of what has come about;
// a rule that goes takes its series with it. It is safe for concurrent use; make it with
// [NewRules].
type Rules struct {
	tallies          atomic.Pointer[map[string]*tally]
	decisions, rules *prometheus.Desc
}

// tally is what came of one rule's requests.
type tally [ruleOutcomes]atomic.Uint64

// NewRules makes the metrics, without a rule, and registers them.
func NewRules(registerer prometheus.Registerer) (*Rules, error) {
	r := &Rules{
		decisions: prometheus.NewDesc("rate_limiter_rule_decisions_total",
			"Requests by the rule that decided them, by what each rule in shadow would have decided, and by each rule that could not decide.", []string{"rule", "outcome"}, nil),
		rules: prometheus.NewDesc("rate_limiter_rules", "Rules that there are, disabled ones included.", nil, nil),
	}
	r.Set(nil)
	return r, registerer.Register(r)
}

// Set says which rules there are now, by ID. Those that stay keep their counts. It must
// not be called by two at once.
func (r *Rules) Set(ids []string) {
	var old map[string]*tally
	if known := r.tallies.Load(); known != nil {
		old = *known
	}
	tallies := make(map[string]*tally, len(ids))
	for _, id := range ids {
		if tallies[id] = old[id]; tallies[id] == nil {
			tallies[id] = new(tally)
		}
	}
	r.tallies.Store(&tallies)
}

// Decided counts an outcome of a rule, unless the rule has gone meanwhile.
func (r *Rules) Decided(id string, outcome RuleOutcome) {
	if t := (*r.tallies.Load())[id]; t != nil && outcome < ruleOutcomes {
		t[outcome].Add(1)
	}
}

// Describe implements [prometheus.Collector].
func (r *Rules) Describe(descs chan<- *prometheus.Desc) {
	descs <- r.decisions
	descs <- r.rules
}

// Collect implements [prometheus.Collector].
func (r *Rules) Collect(metrics chan<- prometheus.Metric) {
	tallies := *r.tallies.Load()
	metrics <- prometheus.MustNewConstMetric(r.rules, prometheus.GaugeValue, float64(len(tallies)))
	for id, t := range tallies {
		for outcome := range t {
			if n := t[outcome].Load(); n > 0 {
				metrics <- prometheus.MustNewConstMetric(r.decisions, prometheus.CounterValue, float64(n), id, ruleOutcomeNames[outcome])
			}
		}
	}
}
