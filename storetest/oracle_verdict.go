package storetest

import (
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// A verdict is what the model says of an operation: the answer, and the states
// after it.
type verdict struct {
	decision stint.Decision
	outcomes []stint.Outcome
	after    []candidate
}

// evaluate carries out an operation on one state per limit.
func (o *Oracle) evaluate(verb stint.Verb, now stint.Instant, parts []part, states []candidate) verdict {
	v := verdict{outcomes: make([]stint.Outcome, len(parts)), after: make([]candidate, len(parts))}
	switch verb {
	case stint.Reset:
		for i, p := range parts {
			v.outcomes[i] = stint.Outcome{Allowed: true, Limit: p.limit.Capacity, Remaining: p.limit.Capacity}
		}
	case stint.Settle:
		for i, p := range parts {
			v.after[i], v.outcomes[i] = o.settle(p, states[i], now)
		}
	case stint.Take, stint.Try, stint.Peek:
		o.request(&v, verb, now, parts, states)
	}
	v.decide(verb, now)
	return v
}

// view is a state as the part's limit sees it at now.
func (o *Oracle) view(p part, state candidate, now stint.Instant) cell {
	if state.cell == nil {
		return fresh(p.limit, o.almanac).read(p.limit, now)
	}
	return state.cell.read(p.limit, now)
}

// settleBound is the largest amount that a settlement counts with: whatever
// exceeds it has the same effect.
const settleBound = 2 * stint.MaxPermits

func (o *Oracle) settle(p part, state candidate, now stint.Instant) (candidate, stint.Outcome) {
	c := o.view(p, state, now)
	n := min(max(p.permits, -settleBound), settleBound)
	settled, applied := c.settle(n, now)
	after := state
	if applied != 0 {
		c = settled
		after = o.written(c, now)
	}
	outcome := stint.Outcome{Allowed: true, Applied: applied}
	fill(&outcome, p, c, now)
	return after, outcome
}

// request decides a Take, a Try or a Peek.
func (o *Oracle) request(v *verdict, verb stint.Verb, now stint.Instant, parts []part, states []candidate) {
	views := make([]cell, len(parts))
	all := true
	for i, p := range parts {
		views[i] = o.view(p, states[i], now)
		v.outcomes[i].Allowed = admits(p.limit, views[i], p.permits, now)
		all = all && v.outcomes[i].Allowed
	}
	for i, p := range parts {
		outcome := &v.outcomes[i]
		c := views[i]
		v.after[i] = states[i]
		switch {
		case all && verb != stint.Peek:
			outcome.Delay = c.delay(now)
			c = c.take(p.permits, now)
			v.after[i] = o.written(c, now)
		case !all && verb == stint.Take && p.limit.CountDenied:
			c = c.(journal).record(p.permits, now)
			v.after[i] = o.written(c, now)
			outcome.RetryAfter = retryAfter(p.limit, c, p.permits, now)
		case outcome.Allowed:
			outcome.Delay = c.delay(now)
		default:
			outcome.RetryAfter = retryAfter(p.limit, c, p.permits, now)
		}
		fill(outcome, p, c, now)
	}
}

// fill sets what follows from the state after an operation alone.
func fill(outcome *stint.Outcome, p part, c cell, now stint.Instant) {
	outcome.Limit = p.limit.Capacity
	outcome.Remaining = remaining(c, now)
	outcome.ResetAfter = resetAfter(c, now)
	outcome.GrowsAfter = growsAfter(p.limit, c, now)
}

// decide derives the decision from the outcomes: on denial the limit with the
// longest wait decides, else the one with the least Remaining, the first on a tie.
func (v *verdict) decide(verb stint.Verb, now stint.Instant) {
	allowed := true
	longest, least, smallest := 0, 0, 0
	var delay time.Duration
	for i, o := range v.outcomes {
		allowed = allowed && o.Allowed
		delay = max(delay, o.Delay)
		if o.RetryAfter > v.outcomes[longest].RetryAfter {
			longest = i
		}
		if o.Remaining < v.outcomes[least].Remaining {
			least = i
		}
		if magnitude(o.Applied) < magnitude(v.outcomes[smallest].Applied) {
			smallest = i
		}
	}
	index := least
	if !allowed {
		index, delay = longest, 0
	}
	deciding := v.outcomes[index]
	v.decision = stint.Decision{
		Allowed:    allowed,
		Index:      int32(index), // #nosec G115 -- at most a few thousand limits
		Limit:      deciding.Limit,
		Remaining:  deciding.Remaining,
		ResetAfter: deciding.ResetAfter,
		Delay:      delay,
		At:         now,
	}
	if !allowed {
		v.decision.RetryAfter = deciding.RetryAfter
	}
	if verb == stint.Settle {
		v.decision.Applied = v.outcomes[smallest].Applied
	}
}

func magnitude(n int64) int64 { return max(n, -n) }

// differences lists the fields in which an answer differs from the verdict.
func (v *verdict) differences(decision stint.Decision, outcomes []stint.Outcome) []string {
	var found []string
	compare := func(of string) func(string, any, any) {
		return func(field string, got, want any) {
			found = append(found, fmt.Sprintf("%s%s: got %v, expected %v", of, field, got, want))
		}
	}
	eachField(decision, v.decision, compare(""))
	if outcomes != nil && len(outcomes) < len(v.outcomes) {
		return append(found, fmt.Sprintf("outcomes: got %d, expected %d", len(outcomes), len(v.outcomes)))
	}
	for i := range outcomes {
		eachField(outcomes[i], v.outcomes[i], compare(fmt.Sprintf("outcome %d: ", i)))
	}
	return found
}
