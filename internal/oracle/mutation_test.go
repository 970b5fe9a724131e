package oracle_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/storetest"
)

// newModelled is a store that answers as a model does, which may be wrong in one point.
func newModelled(m oracle.Mutant, clock *storetest.Clock, maxHolds int) *oracle.Store {
	return &oracle.Store{Model: oracle.NewMutated(m, maxHolds), Now: clock.Instant}
}

// Each mutant is caught soon, by random sequences of every algorithm that it matters to, or by random holds. A
// test has the same seeds each time.
func TestMutantsAreCaught(t *testing.T) {
	most := 100_000
	if testing.Short() {
		most = 40_000
	}
	for _, m := range oracle.Mutants {
		for _, algorithm := range m.Algorithms {
			operations, fault := 0, error(nil)
			for seed := uint64(0); fault == nil && operations < most; seed++ {
				n := 0
				n, fault = replay(t, m, seed, algorithm)
				operations += n
			}
			report(t, m.Name+", "+algorithm.String(), operations, fault)
		}
		if m.Algorithms == nil {
			operations, fault := 0, ""
			for seed := uint64(0); fault == "" && operations < most; seed++ {
				n := 0
				n, fault = episode(t, m, seed)
				operations += n
			}
			report(t, m.Name, operations, fault)
		}
	}
}

// report says after how many operations a mutant was caught, and by what.
func report(t *testing.T, name string, operations int, fault any) {
	t.Helper()
	text, _ := fault.(string)
	if err, ok := fault.(error); ok {
		text = err.Error()
	}
	if text == "" {
		t.Errorf("%s: not caught by %d operations", name, operations)
		return
	}
	lines := strings.SplitN(text, "\n\t", 3)
	t.Logf("%s: caught after %d operations: %s", name, operations, lines[min(1, len(lines)-1)])
}

// replay compares the random sequence of a seed with a mutant, and tells how many operations that took.
func replay(t *testing.T, m oracle.Mutant, seed uint64, algorithm stint.Algorithm) (operations int, err error) {
	clock, model := storetest.NewClock(dawn), oracle.NewMutated(m, 0)
	store := &oracle.Store{Model: model, Now: clock.Instant}
	err = storetest.Replay(t.Context(), store, clock, storetest.Generate(seed, algorithm, episodeLength))
	return model.Operations, err
}

// episode compares the random holds of a seed with a mutant, and tells how many operations that took.
func episode(t *testing.T, m oracle.Mutant, seed uint64) (operations int, fault string) {
	g := newGenerator(t, seed)
	r := newRun(t, func(clock *storetest.Clock, maxHolds int, _ uint64) stint.Store {
		return newModelled(m, clock, maxHolds)
	}, g.maxHolds, seed)
	fault = g.episode(r)
	return r.operations, fault
}

// A store may drop a state once it has been worthless for longer than the margin of its TTL, and after a step back
// that shows.
func TestForgetfulStorePasses(t *testing.T) {
	seeds := uint64(25)
	if testing.Short() {
		seeds = 8
	}
	for _, algorithm := range notation.Algorithms() {
		for seed := range seeds {
			if _, err := replay(t, oracle.Forgetful, seed, algorithm); err != nil {
				t.Errorf("%s, seed %d: %v", algorithm, seed, err)
			}
		}
	}
	for seed := range seeds {
		if _, fault := episode(t, oracle.Forgetful, seed); fault != "" {
			t.Errorf("holds, seed %d: %s", seed, fault)
		}
	}
}
