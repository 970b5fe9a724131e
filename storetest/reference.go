package storetest

import (
	"context"
	"sync"

	"github.com/stint-go/stint"
)

// Reference returns a store made of an [Oracle]: slow, unbounded, exact. It reads
// its time from the clock and never drops a state. It is safe for concurrent use, and
// a [stint.Resetter].
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

// ResetPolicy implements [stint.Resetter].
func (r *reference) ResetPolicy(ctx context.Context, policyName string) error {
	return r.reset(ctx, func() { r.oracle.ResetPolicy(policyName) })
}

// ResetAll implements [stint.Resetter].
func (r *reference) ResetAll(ctx context.Context) error { return r.reset(ctx, r.oracle.ResetAll) }

func (r *reference) reset(ctx context.Context, reset func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	reset()
	return nil
}
