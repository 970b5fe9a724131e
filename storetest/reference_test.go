package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
)

// reference is a store made of the exact model: slow, unbounded. It never drops a state. before changes what it is asked, after
// what it answers, reset the name of the policy to reset; any may be nil.
type reference struct {
	before func(op *stint.Op)
	after  func(d *stint.Decision)
	reset  func(name string) string

	clock *Clock
	mu    sync.Mutex
	model *oracle.Oracle
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
	asked := op
	if r.before != nil {
		r.before(&asked)
	}
	a := r.model.Decide(asked, r.clock.Instant())
	if a.Err != nil {
		return stint.Decision{}, a.Err
	}
	a.WriteTo(op)
	if r.after != nil {
		r.after(&a.Decision)
	}
	return a.Decision, nil
}

func (r *reference) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return r.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (r *reference) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for i, op := range ops {
		results[i].Decision, results[i].Err = r.Decide(ctx, op)
	}
}

func (r *reference) ResetAll(ctx context.Context, scope stint.Scope) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reset != nil && !scope.All {
		scope.Policy = r.reset(scope.Policy)
	}
	if ctx.Err() == nil {
		r.model.ResetAll(scope, r.clock.Instant())
	}
	return ctx.Err()
}

func (*reference) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }

// like makes stores with the faults of another.
func like(broken *reference) newStoreFunc {
	return func(_ testing.TB, clock *Clock) stint.Store {
		return &reference{before: broken.before, after: broken.after, reset: broken.reset, clock: clock, model: oracle.New(0)}
	}
}

// The suite passes for the store that is made of the model. Its random sequences
// compare the model with itself here, so fewer of them will do, and very few where only races count.
func TestReference(t *testing.T) {
	options := Options{Operations: 20_000}
	if testing.Short() {
		options.Operations = 1000
	}
	Run(t, like(&reference{}), options)
}
