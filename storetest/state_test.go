package storetest

import (
	"math/rand/v2"
	"testing"

	"github.com/stint-go/stint"
)

// A State answers as the oracle that it was taken from, and trying an operation
// changes it no more than a peek.
func TestStateAnswersAsOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	limits := []stint.Limit{
		stint.TokenBucket(5, stint.PerSecond(3)),
		stint.SlidingWindowLog(5, 2*s*1000),
		stint.SlidingWindowCounter(5, 2*s*1000),
	}
	policy, err := stint.NewPolicy("", limits...)
	if err != nil {
		t.Fatal(err)
	}
	oracle, state, now := NewOracle(), State{}, stint.Instant(1_767_225_600*s)
	for range 2000 {
		now += stint.Instant(random.IntN(s))
		op := stint.Op{
			Verb:  stint.Verb(random.IntN(int(stint.Settle) + 1)),
			Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1 + random.Int64N(6)},
		}
		before := state.String()
		after, answer := state.Apply(op, now)
		if want, _ := oracle.Decide(op, now); answer != want {
			t.Fatalf("%s of %d: %+v, want %+v", op.Verb, op.Permits, answer, want)
		}
		if state.String() != before {
			t.Fatalf("%s of %d made %s of %s", op.Verb, op.Permits, state, before)
		}
		if again, _ := state.Apply(op, now); !again.Equal(after) {
			t.Fatalf("%s of %d led to %s and to %s", op.Verb, op.Permits, after, again)
		}
		state = after
	}
}
