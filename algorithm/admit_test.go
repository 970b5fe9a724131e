package algorithm_test

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// shortcut is what the machines of fixed size do in one step, without outcomes.
type shortcut[S any] interface {
	machine[S]
	Admit(state *S, now stint.Instant, n, keep, k int64) int64
	RefundTaken(state *S, now stint.Instant, n int64, taken stint.Instant) bool
}

// Admit is so many takes, one after another: as many are admitted, and the same state
// is left.
func TestAdmit(t *testing.T) {
	eachOfFixedSize(t, map[stint.Algorithm]func(*testing.T, stint.Algorithm){
		stint.AlgorithmTokenBucket: func(t *testing.T, a stint.Algorithm) { testAdmit(t, a, algorithm.NewTokenBucket) },
		stint.AlgorithmLeakyBucket: func(t *testing.T, a stint.Algorithm) { testAdmit(t, a, algorithm.NewLeakyBucket) },
		stint.AlgorithmFixedWindow: func(t *testing.T, a stint.Algorithm) { testAdmit(t, a, algorithm.NewFixedWindow) },
		stint.AlgorithmSlidingWindowCounter: func(t *testing.T, a stint.Algorithm) {
			testAdmit(t, a, algorithm.NewSlidingWindowCounter)
		},
	})
}

// eachOfFixedSize runs a test for each algorithm, except the log, whose state has no fixed size.
func eachOfFixedSize(t *testing.T, tests map[stint.Algorithm]func(*testing.T, stint.Algorithm)) {
	for _, a := range stint.Algorithms() {
		if a == stint.AlgorithmSlidingWindowLog {
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			if tests[a] == nil {
				t.Fatal("it is not tested here")
			}
			tests[a](t, a)
		})
	}
}

func testAdmit[S comparable, M shortcut[S]](t *testing.T, a stint.Algorithm, prepare func(stint.Limit) M) {
	t.Parallel()
	g := newGenerator(a)
	for done := 0; done < randomSteps(testing.Short())/5; {
		limit := g.limit()
		m := prepare(limit)
		var state S
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
			if got := m.Admit(&state, now, n, keep, k); got != admitted || state != one {
				t.Fatalf("seed %d, %+v at %d: %d of %d times %d were admitted, want %d; left %+v, want %+v",
					*seed, limit, now, got, k, n, admitted, state, one)
			}
			last = result{remaining: out.Remaining, retry: out.RetryAfter.Microseconds(), reset: out.ResetAfter.Microseconds()}
			if out.RetryAfter == stint.Never {
				last.retry = never
			}
			done++
		}
	}
}
