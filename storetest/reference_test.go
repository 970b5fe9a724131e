package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// reference is a store made of an oracle: slow, unbounded, exact. It never drops a state.
// before changes what it is asked, after what it answers, forget drops states; any may be nil.
type reference struct {
	before func(op *stint.Op, now *stint.Instant)
	after  func(op stint.Op, d *stint.Decision)
	forget func(o *Oracle, now stint.Instant)
	// reset returns the name of the policy to reset.
	reset func(name string) string

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
	now := r.clock.Now()
	asked := op
	if r.before != nil {
		r.before(&asked, &now)
	}
	d, outcomes := r.oracle.Decide(asked, now)
	if r.forget != nil {
		r.forget(r.oracle, now)
	}
	copy(op.Each, outcomes)
	d.At = r.clock.Now()
	if r.after != nil {
		r.after(op, &d)
	}
	return d, nil
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
		r.oracle.ResetAll(scope)
	}
	return ctx.Err()
}

// like makes stores with the faults of another.
func like(broken *reference) newStoreFunc {
	return func(_ testing.TB, clock *Clock) stint.Store {
		return &reference{before: broken.before, after: broken.after, forget: broken.forget, reset: broken.reset, clock: clock, oracle: NewOracle()}
	}
}

// The suite passes for the store that is made of the oracle. Its random sequences
// compare the oracle with itself here, so fewer of them will do, and very few where only races count.
func TestReference(t *testing.T) {
	options := Options{Operations: 20_000, NoHolds: true, NoWays: true}
	if testing.Short() {
		options.Operations = 2000
	}
	Run(t, like(&reference{}), options)
}

func (*reference) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }
