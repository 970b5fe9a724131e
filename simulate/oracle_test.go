package simulate_test

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/simulate"
	"github.com/stint-go/stint/storetest"
)

var traces = flag.Int("traces", 1000, "random traces of each algorithm that are compared with the oracle")

// TestOracle holds every field of every decision to the independent model, on random traces of each algorithm
// (ALGORITHMS.md, "Exactness checks", 1).
func TestOracle(t *testing.T) {
	for _, algorithm := range stint.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			denied, decided := 0, 0
			for seed := range *traces {
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
	policy := steps[0].Op.Policy
	oracle := storetest.NewOracle()
	var got simulate.Verdict
	sim := simulation(t, func(v *simulate.Verdict) error {
		got = *v
		return nil
	}, simulate.LimitRule("r", policy.Limits()...))
	now := steps[0].At
	for _, step := range steps {
		now = max(now, step.At)
		op := stint.Op{Claim: stint.Claim{Key: step.Op.Key + "!", Policy: policy, Permits: max(step.Op.Permits, -step.Op.Permits, 1)}}
		if op.Permits > stint.MaxPermits {
			continue // which no rule takes
		}
		want, _ := oracle.Decide(op, now)
		ev := event(now, op.Key)
		ev.Request.Attributes = map[string]string{simulate.CostAttribute: strconv.FormatInt(op.Permits, 10)}
		if err := sim.Add(ev); err != nil {
			t.Fatal(err)
		}
		if got.Decision != want || got.Allowed != want.Allowed {
			t.Fatalf("seed %d, decision %d at %s, %d permits of %v for %q:\n got %+v\nwant %+v", seed, decided, now, op.Permits, policy.Limits(), op.Key, got.Decision, want)
		}
		decided++
		if !want.Allowed {
			denied++
		}
	}
	return decided, denied
}

// simulation is one of a candidate with these rules, named test.
func simulation(t testing.TB, decided func(*simulate.Verdict) error, list ...rules.Rule) *simulate.Simulation {
	t.Helper()
	s, err := simulate.New(simulate.Config{Candidates: []simulate.Candidate{candidate(t, "test", list...)}, Decided: decided})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func candidate(t testing.TB, name string, list ...rules.Rule) simulate.Candidate {
	t.Helper()
	set, err := rules.Compile(list, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return simulate.Candidate{Name: name, Set: set}
}

func event(at stint.Instant, client string) *simulate.Event {
	return &simulate.Event{Time: at, Request: rules.Request{Method: "GET", Path: "/", Address: client}}
}

// finish is the report.
func finish(t testing.TB, s *simulate.Simulation) *simulate.Report {
	t.Helper()
	r, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// five are all algorithms with one budget, each a candidate.
func five(t testing.TB, n int64, window string) (all []simulate.Candidate) {
	t.Helper()
	limits, err := simulate.Budget(fmt.Sprintf("%d/%s", n, window))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range limits {
		all = append(all, candidate(t, strings.ToLower(l.Algorithm.String()), simulate.LimitRule("limit", l)))
	}
	return all
}
