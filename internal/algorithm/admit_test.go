package algorithm_test

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// Admit is so many takes, one after another: as many are admitted, and the same state
// is left.
func TestAdmit(t *testing.T) { eachOfFixedSize(t, testAdmit) }

// eachOfFixedSize runs a test for each algorithm, except the log, whose state has no fixed size.
func eachOfFixedSize(t *testing.T, test func(*testing.T, stint.Algorithm)) {
	eachAlgorithm(t, func(t *testing.T, a stint.Algorithm) {
		if a != stint.AlgorithmSlidingWindowLog {
			test(t, a)
		}
	})
}

func testAdmit(t *testing.T, a stint.Algorithm) {
	g := newGenerator(a)
	for done := 0; done < randomSteps()/5; {
		limit := g.limit()
		m := algorithm.NewMachine(limit)
		var state algorithm.State
		var last result
		now := year2000 + stint.Instant(g.Int64N(int64(year2100-year2000)))
		for range runSteps {
			now = g.next(limit, now, last)
			n, keep, k := g.cost(limit, last), g.keep(limit), g.times()
			one, admitted := state, int64(0)
			var out stint.Outcome
			for range k {
				if m.Apply(algorithm.Take, &one, now, n, keep, &out); out.Allowed {
					admitted++
				}
			}
			if got := m.Admit(&state, now, n, keep, k); got != admitted || state.Numbers != one.Numbers {
				t.Fatalf("seed %d, %+v at %d: %d of %d times %d were admitted, want %d; left %+v, want %+v",
					*seed, limit, now, got, k, n, admitted, state.Numbers, one.Numbers)
			}
			last = resultOf(out)
			done++
		}
	}
}
