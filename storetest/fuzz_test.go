package storetest

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
)

func FuzzSequences(f *testing.F) {
	Fuzz(f, like(&reference{}))
}

// A seed always gives the same sequence, of valid operations.
func TestGenerate(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 10
	}
	for _, algorithm := range notation.Algorithms() {
		found := false
		for seed := range seeds {
			sequence := Generate(seed, algorithm, 100)
			if len(sequence.Steps) != 100 || sequence.Seed != seed {
				t.Fatalf("seed %d gave %d steps with seed %d", seed, len(sequence.Steps), sequence.Seed)
			}
			wellFormed(t, sequence)
			if again := Generate(seed, algorithm, 100); again.String() != sequence.String() {
				t.Errorf("seed %d gave another sequence the second time", seed)
			}
			first := sequence.Steps[0].Op.First().Policy
			for i := range first.Len() {
				found = found || first.Limit(i).Algorithm == algorithm
			}
		}
		if !found {
			t.Errorf("no sequence for %s has a limit of it", algorithm)
		}
	}
}

func wellFormed(t *testing.T, sequence Sequence) {
	t.Helper()
	for i, step := range sequence.Steps {
		if err := step.Op.Validate(); err != nil || step.Op.Each != nil {
			t.Fatalf("step %d, %s: %v", i, oracle.Describe(step.Op), err)
		}
		if step.At < earliest || step.At > latest {
			t.Fatalf("step %d is at %s", i, step.At)
		}
		if i > 0 && step.Batch != 0 && step.Batch == sequence.Steps[i-1].Batch && step.At != sequence.Steps[i-1].At {
			t.Fatalf("step %d: batch %d spans two times", i, step.Batch)
		}
	}
}

// Random limits set every parameter that a limit can have, so that none goes untested. What a
// lease changes no answer shows, and what a cost does is tested with holds.
func TestRandomLimitsSetEveryField(t *testing.T) {
	set := map[string]bool{"Name": true, "Lease": true, "Cost": true}
	c := newChooser(rand.NewPCG(1, 2).Uint64)
	for _, algorithm := range notation.Algorithms() {
		for range 500 {
			limit := reflect.ValueOf(c.limit(algorithm))
			for i := range limit.NumField() {
				if !limit.Field(i).IsZero() {
					set[limit.Type().Field(i).Name] = true
				}
			}
		}
	}
	for field := range reflect.TypeFor[stint.Limit]().Fields() {
		if !set[field.Name] {
			t.Errorf("no limit has a %s", field.Name)
		}
	}
}
