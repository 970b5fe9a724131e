package simulate_test

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
	"github.com/stint-go/stint/storetest"
)

var traces = flag.Int("traces", 1000, "random traces of each algorithm that are compared with the oracle")

// TestOracle holds every field of every decision to the independent model, on random traces of each algorithm.
func TestOracle(t *testing.T) {
	for _, algorithm := range notation.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			denied, decided, seeds := 0, 0, *traces
			if testing.Short() {
				seeds = 25
			}
			for seed := range seeds {
				n, d := compare(t, uint64(seed), algorithm)
				decided, denied = decided+n, denied+d
			}
			if denied < decided/20 || denied > decided*19/20 {
				t.Errorf("%d of %d decisions are denials: the traces show little", denied, decided)
			}
		})
	}
}

// compare takes the takes of a random sequence, in order of time, under the policy of the first one.
func compare(t *testing.T, seed uint64, algorithm stint.Algorithm) (decided, denied int) {
	t.Helper()
	steps := storetest.Generate(seed, algorithm, 60).Steps
	policy := ofTakes(t, steps[0].Op.First().Policy)
	model := oracle.New(0)
	var got []stint.Decision
	rule := simulate.LimitRule("r", policy.Limits()...)
	sim := simulation(t, func(v *simulate.Verdict) { got = append(got, v.Decision) }, rule)
	type asked struct {
		op   stint.Op
		at   stint.Instant
		want stint.Decision
	}
	var all []asked
	now := steps[0].At
	for _, step := range steps {
		now = max(now, step.At)
		op := stint.Op{Claim: stint.Claim{Key: step.Op.First().Key + "!", Policy: policy, Permits: max(step.Op.First().Permits, -step.Op.First().Permits, 1)}}
		if op.Permits > bounds.MaxPermits {
			continue // which no rule takes
		}
		want := model.Decide(op, now).Decision
		ev := event(now, op.Key)
		ev.Request.Attributes = map[string]string{simulate.CostAttribute: strconv.FormatInt(op.Permits, 10)}
		must.Do(t, sim.Add(ev))
		all = append(all, asked{op, now, want})
		if !want.Allowed {
			denied++
		}
	}
	if finish(t, sim); len(got) != len(all) {
		t.Fatalf("seed %d: %d verdicts, want %d", seed, len(got), len(all))
	}
	for i, a := range all {
		if got[i] != a.want {
			t.Fatalf("seed %d, decision %d at %s, %d permits of %v for %q:\n got %+v\nwant %+v", seed, i, a.at, a.op.Permits, policy.Limits(), a.op.Key, got[i], a.want)
		}
	}
	return len(all), denied
}

// simulation is one of a candidate with these rules, named test.
func simulation(t testing.TB, decided func(*simulate.Verdict), list ...rules.Rule) *simulate.Simulation {
	t.Helper()
	config := simulate.Config{Candidates: []simulate.Candidate{candidate(t, "test", list...)}}
	if decided != nil {
		config.Decided = func(v *simulate.Verdict) error {
			decided(v)
			return nil
		}
	}
	return must.Get(simulate.New(config))(t)
}

func candidate(t testing.TB, name string, list ...rules.Rule) simulate.Candidate {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	return simulate.Candidate{Name: name, Set: set}
}

func event(at stint.Instant, client string) *simulate.Event {
	return &simulate.Event{Time: at, Request: rules.Request{Method: "GET", Path: "/", Address: client}}
}

// finish is the report.
func finish(t testing.TB, s *simulate.Simulation) *simulate.Report {
	t.Helper()
	return must.Get(s.Finish())(t)
}

// five are all algorithms with one budget, each a candidate.
func five(t testing.TB, n int64, window string) (all []simulate.Candidate) {
	t.Helper()
	limits := must.Get(simulate.Budget(fmt.Sprintf("%d/%s", n, window)))(t)
	for _, l := range limits {
		all = append(all, candidate(t, strings.ToLower(l.Algorithm.String()), simulate.LimitRule("limit", l)))
	}
	return all
}

// ofTakes is a policy whose limits count what is taken, as those of rules do.
func ofTakes(t *testing.T, policy *stint.Policy) *stint.Policy {
	t.Helper()
	limits := policy.Limits()
	for i := range limits {
		limits[i].Denials = false
	}
	policy = must.Get(stint.NewPolicy(policy.Name(), limits...))(t)
	return policy
}

// TestOracleOfSeveralRules holds requests that two rules decide together, one of each client and one of all, to the model.
func TestOracleOfSeveralRules(t *testing.T) {
	admitted, denied, seeds := 0, 0, 500
	if testing.Short() {
		seeds = 25
	}
	for seed := range uint64(seeds) {
		first := storetest.Generate(seed, notation.Algorithms()[seed%5], 60).Steps
		second := storetest.Generate(seed+1000, notation.Algorithms()[seed/5%5], 1).Steps
		a, b := simulate.LimitRule("a", ofTakes(t, first[0].Op.First().Policy).Limits()...), simulate.LimitRule("b", ofTakes(t, second[0].Op.First().Policy).Limits()...)
		b.Scope, b.Missing = []string{rules.Global}, rules.MissingUnset
		model := oracle.New(0)
		var policies [2]*stint.Policy
		for i, r := range []rules.Rule{a, b} {
			policy := must.Get(stint.NewPolicy(rules.PolicyPrefix+r.ID, r.Limits...))(t)
			policies[i] = policy
		}
		var got, wants []stint.Decision
		sim := simulation(t, func(v *simulate.Verdict) { got = append(got, v.Decision) }, a, b)
		now := first[0].At
		for i, step := range first {
			now = max(now, step.At)
			key, permits := fmt.Sprint(i%3), min(max(step.Op.First().Permits, 1), bounds.MaxPermits)
			want := model.Decide(stint.Op{
				Claim: stint.Claim{Key: key, Policy: policies[0], Permits: permits},
				And:   []stint.Claim{{Key: "*", Policy: policies[1], Permits: permits}},
			}, now).Decision
			ev := event(now, key)
			ev.Request.Attributes = map[string]string{simulate.CostAttribute: strconv.FormatInt(permits, 10)}
			must.Do(t, sim.Add(ev))
			wants = append(wants, want)
			if want.Allowed {
				admitted++
			} else {
				denied++
			}
		}
		total := finish(t, sim).Candidates[0]
		for i, want := range wants {
			if got[i] != want {
				t.Fatalf("seed %d, decision %d:\n got %+v\nwant %+v", seed, i, got[i], want)
			}
		}
		if total.Total.Requests != 60 || total.Total.Admitted+total.Total.Denied != 60 || total.Rules[0].Denied+total.Rules[1].Denied < total.Total.Denied {
			t.Fatalf("seed %d: %+v", seed, total.Total)
		}
	}
	if admitted < 2*seeds || denied < 2*seeds {
		t.Errorf("%d admitted, %d denied", admitted, denied)
	}
}
