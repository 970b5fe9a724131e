package storetest

import (
	"fmt"
	"slices"
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

// evaluate carries out an operation on its states.
func (o *Oracle) evaluate(verb stint.Verb, now stint.Instant, ops []limitOp, states []candidate) expectation {
	e := expectation{outcomes: make([]stint.Outcome, len(ops)), after: slices.Clone(states)}
	ways := waysOf(ops)
	switch verb {
	case stint.Reset:
		for i, op := range ops {
			e.after[op.slot] = candidate{}
			e.outcomes[i] = stint.Outcome{Allowed: true, Limit: op.limit.Capacity, Remaining: max(0, op.most())}
		}
	case stint.Settle:
		for i, op := range ops {
			e.after[op.slot], e.outcomes[i] = o.settle(op, states[op.slot], now)
		}
	default: // a take, a try or a peek: the oracle knows no holds
		o.request(&e, verb, now, ops, ways, states)
	}
	e.decide(verb, now, ways)
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

// request decides a Take, a Try or a Peek. Every limit is asked; then those that are charged are; then each is looked at,
// so that ways which were not charged tell what is left now, also of a state that they share with the one that was.
func (o *Oracle) request(e *expectation, verb stint.Verb, now stint.Instant, ops []limitOp, ways wayList, states []candidate) {
	adopted := make([]limitState, len(states))
	for i, op := range ops {
		c := o.adopt(op, states[op.slot], now)
		adopted[op.slot] = c
		outcome := &e.outcomes[i]
		outcome.Allowed = op.admits(c, now)
		if outcome.Allowed {
			outcome.Delay = c.delay(now)
		} else {
			outcome.RetryAfter = op.retryAfter(c, now)
		}
	}
	charged, all := ways.choose(e.outcomes)
	for i, op := range ops {
		c := adopted[op.slot]
		switch {
		case all && verb != stint.Peek && charged[i]:
			c = c.take(op.permits, now)
		case !all && verb == stint.Take && op.limit.CountDenied:
			c = c.(logState).record(op.permits, now)
			e.outcomes[i].RetryAfter = op.retryAfter(c, now)
		default:
			continue
		}
		adopted[op.slot] = c
		e.after[op.slot] = o.written(c, now)
	}
	for i, op := range ops {
		fillFromState(&e.outcomes[i], op, adopted[op.slot], now)
	}
}

// fillFromState sets the fields that follow from the state after an operation alone.
func fillFromState(outcome *stint.Outcome, op limitOp, c limitState, now stint.Instant) {
	outcome.Limit = op.limit.Capacity
	outcome.Remaining = op.remaining(c, now)
	outcome.ResetAfter = resetAfter(c, now)
	outcome.GrowsAfter = op.growsAfter(c, now)
}

// decide derives the decision from the outcomes of those limits that count for it: on denial the limit with the longest
// wait decides, else the one with the least Remaining, the first on a tie.
func (e *expectation) decide(verb stint.Verb, now stint.Instant, ways wayList) {
	_, allowed := ways.choose(e.outcomes)
	counts := ways.standing(e.outcomes, allowed)
	longest, least, smallest := counts[0], counts[0], counts[0]
	var delay time.Duration
	for _, i := range counts {
		o := e.outcomes[i]
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
	if allowed {
		e.decision.Via = ways.via(e.outcomes)
	} else {
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
