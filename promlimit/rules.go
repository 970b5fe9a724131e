package promlimit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// What a rule can say of a request.
const (
	ruleAllowed       = iota // of the rules that admitted, it was the one with the fewest permits left
	ruleDenied               // its limits denied, and of those that did its wait was the longest
	ruleBlocked              // the client was denied too often, and the rule blocks it
	ruleBanned               // it denies the client, or all
	ruleMissing              // the request lacked what the rule's scope asks for
	ruleShadowDenied         // it is in shadow, and would have denied
	ruleShadowAllowed        // it is in shadow, its limits were asked, and they would have admitted
	ruleMarked               // it marks an admitted request, by each limit that does
	ruleUnavailable          // it was to decide, by itself or with others, and the store could not: each is counted

	ruleOutcomes
)

var ruleOutcomeNames = [ruleOutcomes]string{
	"allowed", "denied", "blocked", "banned", "missing", "shadow_denied", "shadow_allowed", "marked", "unavailable",
}

// nearLimit is the part of a limit, one in so many, that is left when a client is near it.
const nearLimit = 5

// Rules counts what rules decide:
//
//	rate_limiter_rule_decisions_total{rule,set,outcome}  requests by the rule that decided them: allowed, denied,
//	                                                     blocked, banned, missing; those shown to a rule in shadow:
//	                                                     shadow_denied, shadow_allowed; those that a limit of it
//	                                                     marks: marked; those that it could not decide: unavailable
//	rate_limiter_rule_near_limit_total{rule,set}         requests that the rule admitted and that left a client a fifth
//	                                                     of the limit, or less
//	rate_limiter_rule_ways_total{rule,set,class,via,outcome}
//	                                                     of these, those of rules that have classes, are within another
//	                                                     rule or have an otherwise: by the request's class, and by what
//	                                                     it was charged
//	rate_limiter_default_denials_total                   requests denied since no rule holds for them
//	rate_limiter_rules                                   rules that there are, disabled ones included
//
// There are series of the rules that [Rules.Set] named last, and of what has come about; a rule
// that goes takes its series with it. It is safe for concurrent use; make it with [NewRules].
type Rules struct {
	tallies   atomic.Pointer[tallies]
	byDefault atomic.Uint64

	decisions, ways, near, none, all *prometheus.Desc
}

// tally is what came of one rule's requests.
//
// A tally is kept across changes of the rules while its rule keeps its ID and set, so that counters
// never go back.
type tally struct {
	set      string
	outcomes [ruleOutcomes]atomic.Uint64
	near     atomic.Uint64
	// by class; "" is of requests whose class nobody asked for. nil: none
	ways atomic.Pointer[map[string]*ways]
}

// ways is what came of the requests of a class, by what they were charged.
type ways [len(ruleVias)][ruleOutcomes]atomic.Uint64

// ruleVias are what a request can be charged by, as rules.Matched has it. They are few and known,
// so that counting is an index and an addition.
var ruleVias = [...]string{"", rules.ViaGuaranteed, rules.ViaBorrowed, rules.ViaLimits, rules.ViaOtherwise}

// waysOf adds to the classes that a tally counts apart those of a rule, with their counts so far.
// Several sets may have the same rule, which has one tally then, and the classes of all of them.
func waysOf(known map[string]*ways, rule *rules.Rule, old *tally) map[string]*ways {
	if rule.Within == "" && rule.Otherwise == "" && !rule.Classes.Has() {
		return known
	}
	counted := map[string]*ways{}
	if before := old.ways.Load(); before != nil {
		counted = *before
	}
	if known == nil {
		known = map[string]*ways{}
	}
	for _, class := range append(slices.Collect(maps.Keys(rule.Classes.Keep)), "") {
		if known[class] == nil {
			known[class] = cmp.Or(counted[class], new(ways))
		}
	}
	return known
}

// NewRules makes the metrics, without a rule, and registers them.
func NewRules(registerer prometheus.Registerer) (*Rules, error) {
	r := &Rules{
		decisions: prometheus.NewDesc("rate_limiter_rule_decisions_total",
			"Requests by the rule that decided them, by what each rule in shadow would have decided, "+
				"and by each rule that could not decide.", []string{"rule", "set", "outcome"}, nil),
		ways: prometheus.NewDesc("rate_limiter_rule_ways_total",
			"Requests that a rule with classes, within another one or with an otherwise decided: by class, "+
				"and by what they were charged.",
			[]string{"rule", "set", "class", "via", "outcome"}, nil),
		near: prometheus.NewDesc("rate_limiter_rule_near_limit_total",
			"Requests that the rule admitted and that left a client a fifth of the limit, or less.",
			[]string{"rule", "set"}, nil),
		none: prometheus.NewDesc("rate_limiter_default_denials_total",
			"Requests that were denied since no rule holds for them.", nil, nil),
		all: prometheus.NewDesc("rate_limiter_rules", "Rules that there are, disabled ones included.", nil, nil),
	}
	r.Set()
	return r, register(registerer, rulesCollector{r})
}

// Set says which rules there are now: those of all these sets, of which nil has none. A rule that
// stays keeps its counts while its set has the same name. It must not be called by two at once.
// Counters are read without a lock: the tallies of a generation are never changed, but replaced,
// and a request that is counted while they are may count for a rule that has just gone.
func (r *Rules) Set(sets ...*rules.Set) {
	var old tallies
	if known := r.tallies.Load(); known != nil {
		old = *known
	}
	now, byClass := tallies{}, map[*tally]map[string]*ways{}
	for _, set := range sets {
		if set == nil {
			continue
		}
		for _, rule := range set.Rules() {
			t := old[rule.ID]
			if t == nil || t.set != rule.Set {
				t = &tally{set: rule.Set}
			}
			now[rule.ID] = t
			byClass[t] = waysOf(byClass[t], &rule, t)
		}
	}
	for t, classes := range byClass {
		if t.ways.Store(nil); classes != nil {
			t.ways.Store(&classes)
		}
	}
	r.tallies.Store(&now)
}

// Observe counts an event, as a [stint.Observer], unless its rule has gone meanwhile. A via that is
// not known counts as none.
func (r *Rules) Observe(_ context.Context, e *stint.Event) {
	if e.Reason == stint.ReasonDefault {
		r.byDefault.Add(1)
		return
	}
	if t := (*r.tallies.Load())[e.Rule]; t != nil {
		outcome := outcomeOf(e)
		t.outcomes[outcome].Add(1)
		if classes := t.ways.Load(); classes != nil {
			if of := (*classes)[e.Class]; of != nil {
				of[max(0, slices.Index(ruleVias[:], e.Via))][outcome].Add(1)
			}
		}
		if !e.Shadow && Near(&e.Decision) {
			t.near.Add(1)
		}
	}
}

// Undecided counts a request that the store could not decide, for each rule that was to: the claims are those of
// [enforce.Verdict.Claims].
func (r *Rules) Undecided(claims []enforce.Claimed) {
	for i := range claims {
		if i == 0 || claims[i-1].Rule != claims[i].Rule {
			r.tallies.Load().count(claims[i].Rule.ID, ruleUnavailable)
		}
	}
}

// tallies are those of the rules that there are, by ID.
type tallies map[string]*tally

// count counts a decision of a rule. A rule that is gone is not counted.
func (t tallies) count(id string, outcome int) {
	if tally := t[id]; tally != nil {
		tally.outcomes[outcome].Add(1)
	}
}

// outcomeOf is the one outcome of a decision that the rule stands for; the order of the cases
// matters: a shadow is told first, as it decides nothing.
func outcomeOf(e *stint.Event) int {
	switch {
	case e.Marked:
		return ruleMarked
	case e.Shadow && e.Decision.Allowed:
		return ruleShadowAllowed
	case e.Shadow:
		return ruleShadowDenied
	case e.Decision.Allowed:
		return ruleAllowed
	case e.Reason == stint.ReasonBlocked:
		return ruleBlocked
	case e.Reason == stint.ReasonBanned:
		return ruleBanned
	case e.Reason == stint.ReasonMissing:
		return ruleMissing
	default:
		return ruleDenied
	}
}

// each calls do for what has come about.
func (w *ways) each(do func(via, outcome int, n uint64)) {
	for via := range w {
		for outcome := range w[via] {
			if n := w[via][outcome].Load(); n > 0 {
				do(via, outcome, n)
			}
		}
	}
}

// A rulesCollector gathers them.
type rulesCollector struct{ *Rules }

// Describe implements [prometheus.Collector].
func (r rulesCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{r.decisions, r.ways, r.near, r.none, r.all} {
		descs <- desc
	}
}

// Collect implements [prometheus.Collector].
func (r rulesCollector) Collect(metrics chan<- prometheus.Metric) {
	tallies := *r.tallies.Load()
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	metrics <- prometheus.MustNewConstMetric(r.all, prometheus.GaugeValue, float64(len(tallies)))
	count(r.none, r.byDefault.Load())
	for id, t := range tallies {
		for outcome := range t.outcomes {
			if n := t.outcomes[outcome].Load(); n > 0 {
				count(r.decisions, n, id, t.set, ruleOutcomeNames[outcome])
			}
		}
		if n := t.near.Load(); n > 0 {
			count(r.near, n, id, t.set)
		}
		if classes := t.ways.Load(); classes != nil {
			for class, of := range *classes {
				of.each(func(via, outcome int, n uint64) {
					count(r.ways, n, id, t.set, class, ruleVias[via], ruleOutcomeNames[outcome])
				})
			}
		}
	}
}
