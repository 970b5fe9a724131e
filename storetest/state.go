package storetest

import (
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// A State is what the oracle's model records under one key of one policy, as a value:
// a checker of concurrent histories can try an operation and go back. The zero value
// is untouched. All operations on a State must be of one claim, and that key's and
// policy's.
type State struct {
	cells []cell // of each limit; nil: untouched
}

// Apply carries out an operation at the store's time now, which must not be before that
// of an operation carried out earlier, and returns the state after it and the answer.
// It changes nothing, and is safe for concurrent use.
func (s State) Apply(op stint.Op, now stint.Instant) (State, stint.Decision) {
	oracle := NewOracle()
	parts := oracle.parts(op)
	for i, c := range s.cells {
		oracle.store(parts[i].id, []candidate{{cell: c}})
	}
	decision, _ := oracle.Decide(op, now)
	if len(oracle.states) == 0 {
		return State{}, decision
	}
	after := State{cells: make([]cell, len(parts))}
	for i, p := range parts {
		if set := oracle.states[p.id]; len(set) > 0 {
			after.cells[i] = set[0].cell
		}
	}
	return after, decision
}

// Equal reports whether two states record the same.
func (s State) Equal(other State) bool { return slices.Equal(s.texts(), other.texts()) }

// String describes the state.
func (s State) String() string {
	if s.cells == nil {
		return untouched
	}
	return strings.Join(s.texts(), ", ")
}

const untouched = "untouched"

func (s State) texts() []string {
	texts := make([]string, len(s.cells))
	for i, c := range s.cells {
		texts[i] = untouched
		if c != nil {
			texts[i] = c.String()
		}
	}
	return texts
}
