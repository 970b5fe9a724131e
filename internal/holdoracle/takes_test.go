package holdoracle_test

import (
	"flag"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/holdoracle"
	"github.com/stint-go/stint/storetest"
)

var sequences = flag.Uint64("sequences", 4, "random sequences of each algorithm that the two oracles are compared by")

// Where nothing is held, the oracle says the same as that of package storetest, which knows calendars and counted denials,
// too. The two share no code.
func TestTakesAsWithoutHolds(t *testing.T) {
	compared, ways := 0, 0
	for _, algorithm := range stint.Algorithms() {
		for seed := range *sequences {
			mine, other := holdoracle.New(1), storetest.NewOracle()
			for i, step := range storetest.Generate(seed, algorithm, 250).Steps {
				if !known(step.Op) {
					continue
				}
				compared++
				if step.Op.HasWays() {
					ways++
				}
				d, each := other.Decide(step.Op, step.At)
				carried := step.Op
				carried.Each = each
				answer := mine.Do(step.Op, step.At)
				for _, fault := range differ(step.Op, carried, stint.Result{Decision: d}, answer) {
					t.Fatalf("%v, seed %d, step %d at %v: %s\n%s", algorithm, seed, i, step.At, readable(step.Op), fault)
				}
			}
		}
	}
	t.Logf("%d operations, %d of them with ways", compared, ways)
}

// known says whether the oracle knows an operation, and integers of 64 bits hold what comes of it.
func known(op stint.Op) bool {
	for _, c := range append([]stint.Claim{op.Claim}, op.And...) {
		if op.Verb == stint.Settle && (c.Permits > 2*stint.MaxPermits || c.Permits < -2*stint.MaxPermits) {
			return false
		}
		for _, l := range c.Policy.Limits() {
			if l.CountDenied || l.Calendar != stint.CalendarNone {
				return false
			}
		}
	}
	return true
}
