package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/internal/prefix"
)

// A Step is one operation of a sequence.
type Step struct {
	// At is the time that the clock is set to before.
	At stint.Instant
	// Op is the operation. Its Each is nil; see Each.
	Op stint.Op
	// Batch, if not 0, is carried out by one DecideAll together with the
	// neighbouring steps of the same number, which have the same At.
	Batch int
	// Each says that the operation asks for the outcome of every limit.
	Each bool

	reset *stint.Scope // instead of the operation
}

// A Sequence is a list of steps to be carried out in order on an empty store, or
// on keys that it has not seen.
type Sequence struct {
	// Seed is what the sequence was generated from, 0 if from none.
	Seed uint64
	// Steps are the operations in order.
	Steps []Step
}

// String lists the steps of the sequence, one a line.
func (s Sequence) String() string {
	var b strings.Builder
	for i, step := range s.Steps {
		fmt.Fprintf(&b, "\n%3d. %s batch %d: ", i, step.At, step.Batch)
		if step.reset != nil {
			fmt.Fprintf(&b, "reset of %s", step.reset)
		} else {
			b.WriteString(oracle.Describe(step.Op))
		}
	}
	return b.String()
}

// GoString is the same, for messages of property tests.
func (s Sequence) GoString() string { return s.String() }

// Generate returns the sequence of a seed: operations on a few keys under a few
// policies, at least one limit of which has the algorithm. Times start near 2026
// and go to where mistakes are likely: the same instant, edges of windows, the
// ends of earlier waits and one microsecond around them, changes of the clocks in
// the zones of calendar windows, far later, and at times back. Keys differ between
// seeds.
func Generate(seed uint64, algorithm stint.Algorithm, operations int) Sequence {
	random := rand.NewPCG(seed, uint64(algorithm))
	g, model := newTraffic(newChooser(random.Uint64), algorithm, fmt.Sprintf("%x:", seed), false), oracle.New(0)
	sequence := Sequence{Seed: seed}
	for len(sequence.Steps) < operations {
		for _, step := range g.next(operations - len(sequence.Steps)) {
			sequence.Steps = append(sequence.Steps, step)
			g.learn(step, model.Decide(step.Op, step.At))
		}
	}
	return sequence
}

// Replay carries out the sequence on a store that reads the clock, and compares
// every answer with an exact model. The error says which step went wrong and how.
func Replay(ctx context.Context, store stint.Store, clock *Clock, sequence Sequence) error {
	c := comparison{store, clock, oracle.New(0)}
	return c.replay(ctx, sequence.Steps, func(Step, oracle.Answer) {})
}

// A comparison is a store beside the model that its answers are compared with.
type comparison struct {
	store stint.Store
	clock *Clock
	model *oracle.Oracle
}

// garbage is what a store finds in Each, and has to overwrite entirely.
var garbage = stint.Outcome{
	Allowed: true, Limit: -1, Remaining: -2, RetryAfter: -3, ResetAfter: -4, Delay: -5, Applied: -6, GrowsAfter: -7,
}

// errUnanswered is what a store finds in the results, and has to overwrite.
var errUnanswered = errors.New("the operation was not answered")

// replay carries out steps in batches, and gives the answers that are right to learn.
func (c *comparison) replay(ctx context.Context, steps []Step, learn func(Step, oracle.Answer)) error {
	for from := 0; from < len(steps); {
		to := from + 1
		for steps[from].Batch != 0 && to < len(steps) && steps[to].Batch == steps[from].Batch &&
			steps[to].At == steps[from].At {
			to++
		}
		if err := c.carryOut(ctx, steps[from:to], learn); err != nil {
			return prefix.Errorf("batch from step %d: %w", from, err)
		}
		from = to
	}
	return nil
}

// carryOut has the store decide the steps of one batch, and compares the answers.
func (c *comparison) carryOut(ctx context.Context, steps []Step, learn func(Step, oracle.Answer)) error {
	c.clock.Set(steps[0].At)
	if r := steps[0].reset; r != nil {
		c.model.ResetAll(*r, steps[0].At)
		return c.store.ResetAll(ctx, *r)
	}
	ops, results := make([]stint.Op, len(steps)), make([]stint.Result, len(steps))
	for i, step := range steps {
		results[i].Err = errUnanswered
		ops[i] = step.Op
		switch h := step.Op.Hold(); { // a store writes into them
		case h != nil:
			told := *h
			ops[i].Extra = &stint.Extra{Groups: step.Op.Groups(), Hold: &told}
		case step.Op.Verb == stint.VerbList:
			ops[i].Extra = &stint.Extra{Live: new([]stint.Hold)}
		}
		if step.Each {
			ops[i].Each = make([]stint.Outcome, step.Op.Limits()+1)
			for j := range ops[i].Each {
				ops[i].Each[j] = garbage
			}
		}
	}
	if steps[0].Batch != 0 {
		c.store.DecideAll(ctx, ops, results)
	} else {
		results[0].Decision, results[0].Err = c.store.Decide(ctx, ops[0])
	}
	for i, op := range ops {
		if last := len(op.Each) - 1; last >= 0 {
			if op.Each[last] != garbage {
				results[i].Err = errors.Join(results[i].Err, errors.New("wrote more outcomes than the operation has limits"))
			}
			op.Each = op.Each[:last]
		}
		answer := oracle.Got(op, results[i])
		if _, err := c.model.Check(steps[i].Op, steps[i].At, answer); err != nil {
			return err
		}
		learn(steps[i], answer)
	}
	return nil
}
