package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// Replay carries out the sequence on a store that reads the clock, and compares
// every answer with a new oracle. The error says which step went wrong and how; it
// is a [*Failure].
func Replay(ctx context.Context, store stint.Store, clock *Clock, sequence Sequence) error {
	oracle := NewOracle()
	steps := sequence.Steps
	for at := 0; at < len(steps); {
		end := at + 1
		for steps[at].Batch != 0 && end < len(steps) && steps[end].Batch == steps[at].Batch && steps[end].At == steps[at].At {
			end++
		}
		if err := replayBatch(ctx, store, clock, oracle, steps, at, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// A Failure is a step of a sequence that a store answered wrongly.
type Failure struct {
	Step int   // its index
	Err  error // what is wrong
}

// Error reads "step 12: at …".
func (f *Failure) Error() string { return fmt.Sprintf("step %d: %v", f.Step, f.Err) }

// Unwrap returns what is wrong.
func (f *Failure) Unwrap() error { return f.Err }

// garbage is what a store finds in Each, and has to overwrite entirely.
var garbage = stint.Outcome{
	Allowed: true, Limit: -1, Remaining: -2, RetryAfter: -3, ResetAfter: -4, Delay: -5, Applied: -6,
	GrowsAfter: time.Duration(-7),
}

// errUnanswered is what a store finds in the results, and has to overwrite.
var errUnanswered = errors.New("the operation was not answered")

func replayBatch(ctx context.Context, store stint.Store, clock *Clock, oracle *Oracle, steps []Step, from, to int) error {
	now := steps[from].At
	clock.Set(now)
	ops := make([]stint.Op, to-from)
	results := make([]stint.Result, to-from)
	for i := range ops {
		results[i].Err = errUnanswered
		ops[i] = steps[from+i].Op
		if steps[from+i].Each {
			each := make([]stint.Outcome, ops[i].Limits()+1)
			for j := range each {
				each[j] = garbage
			}
			ops[i].Each = each
		}
	}
	if steps[from].Batch != 0 {
		store.DecideAll(ctx, ops, results)
	} else {
		results[0].Decision, results[0].Err = store.Decide(ctx, ops[0])
	}
	for i, op := range ops {
		if err := results[i].Err; err != nil {
			return &Failure{from + i, fmt.Errorf("at %s, %s: the store failed: %w", formatInstant(now), describeOp(op), err)}
		}
		outcomes := op.Each
		if outcomes != nil {
			last := len(outcomes) - 1
			if outcomes[last] != garbage {
				return &Failure{from + i, fmt.Errorf("at %s, %s: wrote more outcomes than the operation has limits", formatInstant(now), describeOp(op))}
			}
			outcomes = outcomes[:last]
		}
		if err := oracle.Check(op, now, results[i].Decision, outcomes); err != nil {
			return &Failure{from + i, err}
		}
	}
	return nil
}

// String lists the policies of the sequence and then its steps, one a line.
func (s Sequence) String() string {
	var policies, steps strings.Builder
	names := map[*stint.Policy]string{}
	name := func(p *stint.Policy) string {
		if _, known := names[p]; !known {
			names[p] = fmt.Sprintf("P%d", len(names)+1)
			fmt.Fprintf(&policies, "%s = %s\n", names[p], describePolicy(p))
		}
		return names[p]
	}
	for i, step := range s.Steps {
		batch := ""
		if step.Batch != 0 {
			batch = fmt.Sprintf(" batch %d", step.Batch)
		}
		fmt.Fprintf(&steps, "%3d. %s%s: %s\n", i, formatInstant(step.At), batch, describeOpWith(step.Op, name))
	}
	return policies.String() + steps.String()
}
