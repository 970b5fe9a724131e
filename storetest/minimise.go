package storetest

import (
	"errors"
	"slices"
)

// Minimise shortens a sequence that fails: it leaves out steps as long as fails,
// which replays a sequence on a fresh store, still returns an error. It calls
// fails at most budget times, and returns the shortest failing sequence found and
// its error; a nil error if the sequence does not fail.
func Minimise(sequence Sequence, budget int, fails func(Sequence) error) (Sequence, error) {
	m := minimiser{Sequence: sequence, budget: budget, fails: fails}
	if !m.try(sequence.Steps) {
		return sequence, nil
	}
	for size := (len(m.Steps) + 1) / 2; size > 0 && m.budget > 0; {
		shorter := m.leaveOut(size)
		if size == 1 && !shorter {
			break
		}
		size = max(1, size/2)
	}
	return m.Sequence, m.fault
}

type minimiser struct {
	Sequence
	fault  error
	budget int
	fails  func(Sequence) error
}

// try keeps the steps if they fail, up to the one that does.
func (m *minimiser) try(steps []Step) bool {
	if m.budget <= 0 {
		return false
	}
	m.budget--
	err := m.fails(Sequence{m.Seed, steps})
	if err == nil {
		return false
	}
	if failure := (*Failure)(nil); errors.As(err, &failure) {
		// The failing step's batch stays whole: its other steps were carried out.
		end := failure.Step + 1
		for end < len(steps) && steps[end].Batch != 0 && steps[end].Batch == steps[failure.Step].Batch {
			end++
		}
		steps = steps[:end]
	}
	m.Steps, m.fault = steps, err
	return true
}

// leaveOut tries to do without each run of size steps, the last first.
func (m *minimiser) leaveOut(size int) (shorter bool) {
	for to := len(m.Steps); to > 0; to -= size {
		if to = min(to, len(m.Steps)); to == 0 {
			break
		}
		if m.try(slices.Concat(m.Steps[:max(0, to-size)], m.Steps[to:])) {
			shorter = true
		}
	}
	return shorter
}
