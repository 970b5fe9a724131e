package storetest

import (
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// An expectation is what the model says of an operation: the answer, and the states
// after it.
type expectation struct {
	decision stint.Decision
	outcomes []stint.Outcome
	after    []candidate
}

// evaluate carries out an operation on one state per limit.
func (o *Oracle) evaluate(verb stint.Verb, now stint.Instant, ops []limitOp, states []candidate) expectation {
	e := expectation{outcomes: make([]stint.Outcome, len(ops)), after: make([]candidate, len(ops))}
	switch verb {
	case stint.Reset:
		for i, op := range ops {
			e.outcomes[i] = stint.Outcome{Allowed: true, Limit: op.limit.Capacity, Remaining: op.limit.Capacity}
		}
	case stint.Settle:
		for i, op := range ops {
			e.after[i], e.outcomes[i] = o.settle(op, states[i], now)
		}
	default: // a take, a try or a peek: the oracle knows no holds
		o.request(&e, verb, now, ops, states)
	}
	e.decide(verb, now)
	return e
}

// adopt returns the state of a candidate as the operation's limit sees it at now.
func (o *Oracle) adopt(op limitOp, held candidate, now stint.Instant) limitState {
	if held.state == nil {
		return untouched(op.limit, o.windows).adopt(op.limit, now)
	}
	return held.state.adopt(op.limit, now)
}

// settleBound is the largest amount that a settlement counts with: whatever
// exceeds it has the same effect.
const settleBound = 2 * stint.MaxPermits

func (o *Oracle) settle(op limitOp, held candidate, now stint.Instant) (candidate, stint.Outcome) {
	c := o.adopt(op, held, now)
	n := min(max(op.permits, -settleBound), settleBound)
	settled, applied := c.settle(n, now)
	after := held
	if applied != 0 {
		c = settled
		after = o.written(c, now)
	}
	outcome := stint.Outcome{Allowed: true, Applied: applied}
	fillFromState(&outcome, op, c, now)
	return after, outcome
}

// request decides a Take, a Try or a Peek.
func (o *Oracle) request(e *expectation, verb stint.Verb, now stint.Instant, ops []limitOp, states []candidate) {
	adopted := make([]limitState, len(ops))
	all := true
	for i, op := range ops {
		adopted[i] = o.adopt(op, states[i], now)
		e.outcomes[i].Allowed = admits(op.limit, adopted[i], op.permits, now)
		all = all && e.outcomes[i].Allowed
	}
	for i, op := range ops {
		outcome := &e.outcomes[i]
		c := adopted[i]
		e.after[i] = states[i]
		switch {
		case all && verb != stint.Peek:
			outcome.Delay = c.delay(now)
			c = c.take(op.permits, now)
			e.after[i] = o.written(c, now)
		case !all && verb == stint.Take && op.limit.CountDenied:
			c = c.(logState).record(op.permits, now)
			e.after[i] = o.written(c, now)
			outcome.RetryAfter = retryAfter(op.limit, c, op.permits, now)
		case outcome.Allowed:
			outcome.Delay = c.delay(now)
		default:
			outcome.RetryAfter = retryAfter(op.limit, c, op.permits, now)
		}
		fillFromState(outcome, op, c, now)
	}
}

// fillFromState sets the fields that follow from the state after an operation alone.
func fillFromState(outcome *stint.Outcome, op limitOp, c limitState, now stint.Instant) {
	outcome.Limit = op.limit.Capacity
	outcome.Remaining = remaining(c, now)
	outcome.ResetAfter = resetAfter(c, now)
	outcome.GrowsAfter = growsAfter(op.limit, c, now)
}

// decide derives the decision from the outcomes: on denial the limit with the
// longest wait decides, else the one with the least Remaining, the first on a tie.
func (e *expectation) decide(verb stint.Verb, now stint.Instant) {
	allowed := true
	longest, least, smallest := 0, 0, 0
	var delay time.Duration
	for i, o := range e.outcomes {
		allowed = allowed && o.Allowed
		delay = max(delay, o.Delay)
		if o.RetryAfter > e.outcomes[longest].RetryAfter {
			longest = i
		}
		if o.Remaining < e.outcomes[least].Remaining {
			least = i
		}
		if abs(o.Applied) < abs(e.outcomes[smallest].Applied) {
			smallest = i
		}
	}
	index := least
	if !allowed {
		index, delay = longest, 0
	}
	deciding := e.outcomes[index]
	e.decision = stint.Decision{
		Allowed:    allowed,
		Index:      int16(index), // #nosec G115 -- at most a few thousand limits
		Limit:      deciding.Limit,
		Remaining:  deciding.Remaining,
		ResetAfter: deciding.ResetAfter,
		Delay:      delay,
		At:         now,
	}
	if !allowed {
		e.decision.RetryAfter = deciding.RetryAfter
	}
	if verb == stint.Settle {
		e.decision.Applied = e.outcomes[smallest].Applied
	}
}

func abs(n int64) int64 { return max(n, -n) }

// differences lists the fields in which an answer differs from what is expected.
func (e *expectation) differences(decision stint.Decision, outcomes []stint.Outcome) []string {
	var found []string
	compare := func(of string) func(string, any, any) {
		return func(field string, got, want any) {
			found = append(found, fmt.Sprintf("%s%s: got %v, expected %v", of, field, got, want))
		}
	}
	eachField(decision, e.decision, compare(""))
	if outcomes != nil && len(outcomes) < len(e.outcomes) {
		return append(found, fmt.Sprintf("outcomes: got %d, expected %d", len(outcomes), len(e.outcomes)))
	}
	for i := range outcomes {
		eachField(outcomes[i], e.outcomes[i], compare(fmt.Sprintf("outcome %d: ", i)))
	}
	return found
}
