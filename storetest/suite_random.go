package storetest

import (
	"fmt"
	"testing"

	"github.com/stint-go/stint"
)

const (
	sequenceLength    = 250 // operations of one sequence
	sequencesPerStore = 20
	minimiseBudget    = 400 // replays
)

// testRandom is check 1 of ALGORITHMS.md: every field of every decision, over
// random limits and random traces, equals the exact model's.
func testRandom(t *testing.T, newStore NewStore, algorithm stint.Algorithm, opts Options) {
	seed := opts.Seed
	for done := 0; done < opts.Operations; {
		// A subtest of its own closes the store that the sequences share.
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			clock := NewClock(year2026)
			store := newStore(t, clock)
			for i := 0; i < sequencesPerStore && done < opts.Operations; i++ {
				sequence := Generate(seed, algorithm, min(sequenceLength, opts.Operations-done))
				if err := Replay(t.Context(), store, clock, sequence); err != nil {
					report(t, newStore, sequence, err)
				}
				done += len(sequence.Steps)
				seed++
			}
		})
		if t.Failed() {
			return
		}
	}
}

// report fails the test with the shortest sequence that fails on a fresh store.
func report(t *testing.T, newStore NewStore, sequence Sequence, err error) {
	t.Helper()
	short, fault := Minimise(sequence, minimiseBudget, func(s Sequence) error {
		return replayFresh(t, newStore, s)
	})
	if fault == nil {
		t.Fatalf("seed %d: %v\nOn a fresh store the sequence of %d operations does not fail.",
			sequence.Seed, err, len(sequence.Steps))
	}
	t.Fatalf("seed %d: %v\nThe shortest sequence found that fails on a fresh store:\n%s%v",
		sequence.Seed, err, short, fault)
}

// replayFresh replays on a fresh store, which it closes.
func replayFresh(t testing.TB, newStore NewStore, sequence Sequence) error {
	clock := NewClock(year2026)
	inner := &cleanups{TB: t}
	defer inner.run()
	return Replay(t.Context(), newStore(inner, clock), clock, sequence)
}

// cleanups is a TB whose Cleanup functions run when asked to, so that a store made
// for one replay does not live as long as the test.
type cleanups struct {
	testing.TB
	todo []func()
}

// Cleanup keeps the function for run.
func (c *cleanups) Cleanup(f func()) { c.todo = append(c.todo, f) }

func (c *cleanups) run() {
	for len(c.todo) > 0 {
		last := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		last()
	}
}
