package algorithm_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// What is held of a bucket is owed once another version of the limit has written it, also to one that lets less of it
// stand as debt.
func TestHeldIsOwedOnceWritten(t *testing.T) {
	lowered := stint.TokenBucket(1, stint.PerSecond(1))
	first := algorithm.NewMachine(stint.TokenBucket(16, stint.PerSecond(4)))
	second, third := algorithm.NewMachine(lowered.WithMaxDebt(2)), algorithm.NewMachine(lowered)
	now := year2000 + 1
	var state algorithm.State
	first.Apply(algorithm.Take, &state, now, 3, 0, new(stint.Outcome))
	state.Held = 3
	now = now.Add(time.Second)
	for i, m := range []algorithm.Machine{second, third} {
		writer := []algorithm.Machine{first, second}[i]
		m.Adopt(&state, &writer)
		m.Read(&state, now)
		var out stint.Outcome
		if m.Apply(algorithm.Peek, &state, now, 1, 0, &out); out.Allowed || out.ResetAfter != 3*time.Second {
			t.Errorf("version %d: %+v, want all that is held to be owed for 3s", i+1, out)
		}
		state.Written()
	}
}
