package storetest

import (
	"context"
	"sync"

	"github.com/stint-go/stint"
)

// Reference returns a store made of an [Oracle]: slow, unbounded, exact. It reads
// its time from the clock and never drops a state. It is safe for concurrent use, and
// a [stint.Forgetter].
func Reference(clock *Clock) stint.Store {
	return &reference{clock: clock, oracle: NewOracle()}
}

type reference struct {
	clock  *Clock
	mu     sync.Mutex
	oracle *Oracle
}

func (r *reference) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, err
	}
	if err := op.Validate(); err != nil {
		return stint.Decision{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	decision, outcomes := r.oracle.Decide(op, r.clock.Now())
	copy(op.Each, outcomes)
	return decision, nil
}

func (r *reference) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for i, op := range ops {
		results[i].Decision, results[i].Err = r.Decide(ctx, op)
	}
}

// ForgetPolicy implements [stint.Forgetter], in one step.
func (r *reference) ForgetPolicy(ctx context.Context, policyName string, progress func(stint.ForgetProgress)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	removed := r.oracle.Forget(policyName)
	r.mu.Unlock()
	if progress != nil {
		progress(stint.ForgetProgress{Done: 1, Total: 1, States: removed})
	}
	return nil
}
