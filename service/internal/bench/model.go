package bench

import (
	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// A state is what one key has of one limit: it decides about n permits, exactly.
type state func(action algorithm.Action, now stint.Instant, n int64) (allowed bool)

// untouched makes the state of a transition.
func untouched[S any](
	l stint.Limit, apply func(algorithm.Action, *S, stint.Instant, int64, int64, *stint.Outcome),
) state {
	s, out := new(S), new(stint.Outcome)
	return func(action algorithm.Action, now stint.Instant, n int64) bool {
		*out = stint.Outcome{}
		apply(action, s, now, l.Takes(n), 0, out)
		return out.Allowed
	}
}

// stateOf is an untouched state of a limit; nil if its decisions can't be verified.
func stateOf(l stint.Limit) state {
	switch l.Algorithm {
	case stint.AlgorithmTokenBucket:
		return untouched(l, algorithm.NewTokenBucket(l).Apply)
	case stint.AlgorithmLeakyBucket:
		return untouched(l, algorithm.NewLeakyBucket(l).Apply)
	case stint.AlgorithmFixedWindow:
		return untouched(l, algorithm.NewFixedWindow(l).Apply)
	case stint.AlgorithmSlidingWindowLog:
		return untouched(l, algorithm.NewSlidingWindowLog(l).Apply)
	case stint.AlgorithmSlidingWindowCounter:
		return untouched(l, algorithm.NewSlidingWindowCounter(l).Apply)
	default:
		return nil
	}
}

// CanVerify reports whether decisions by a limit can be verified. Leased permits are spent at times that nobody tells,
// and places of a concurrency limit are held.
func CanVerify(l stint.Limit) bool { return l.Lease == 0 && stateOf(l) != nil }

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
