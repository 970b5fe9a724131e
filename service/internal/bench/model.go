package bench

import (
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/notation"
)

// A state is what one key has of one limit: it decides about n permits, exactly.
type state func(action algorithm.Action, now stint.Instant, n int64) (allowed bool)

// stateOf is an untouched state of a limit.
func stateOf(l stint.Limit) state {
	m, s, out := algorithm.NewMachine(l), new(algorithm.State), new(stint.Outcome)
	return func(action algorithm.Action, now stint.Instant, n int64) bool {
		*out = stint.Outcome{}
		m.Apply(action, s, now, m.Takes(n), 0, out)
		return out.Allowed
	}
}

// CanVerify reports whether decisions by a limit can be verified. Leased permits are spent at times that nobody tells,
// and places of a concurrency limit are held.
func CanVerify(l stint.Limit) bool {
	return l.Lease == 0 && slices.Contains(notation.Algorithms(), l.Algorithm)
}

// A model is what one key has of limits all of which must admit.
type model []state

func newModel(limits []stint.Limit) (m model) {
	for _, l := range limits {
		m = append(m, stateOf(l))
	}
	return m
}

// take decides a request of n permits.
func (m model) take(now stint.Instant, n int64) bool {
	allowed, action := true, algorithm.Take
	for _, s := range m {
		allowed = s(algorithm.Peek, now, n) && allowed
	}
	if !allowed {
		action = algorithm.Deny
	}
	for _, s := range m {
		s(action, now, n)
	}
	return allowed
}
