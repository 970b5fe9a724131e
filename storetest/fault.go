package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/watchdog"
)

// A Fault is what goes wrong with one call of a store. The zero value is nothing.
type Fault struct {
	// Err is what the call fails with. Default: nil, it does not fail.
	Err error
	// Block holds the call until its context is done or its Timeout has passed. It then fails with Err, or when
	// that is nil with the context's error, or one that wraps stint.ErrUnavailable and has a method Timeout.
	Block bool
	// After lets the store carry out the call first, so that its answer is lost.
	// Default: false, the store never hears of it. It matters only with Err or Block.
	After bool
}

// A Call describes a call to the function that decides about its fault.
type Call struct {
	// Batch says that it is a DecideAll.
	Batch bool
	// Ops are the operations: one of a Decide, none of a reset of policies. They must not be
	// changed or kept.
	Ops []stint.Op
	// Reset says that it is a ResetAll.
	Reset bool
}

// Faulty is a store that wraps another and fails when told to. It is safe for
// concurrent use.
type Faulty struct {
	inner stint.Store
	calls atomic.Int64
	plan  atomic.Pointer[func(Call) Fault]
}

// NewFaulty wraps a store. Until Inject is called nothing fails.
func NewFaulty(inner stint.Store) *Faulty { return &Faulty{inner: inner} }

// Inject sets the function that decides about each call from now on; it may run in
// many goroutines at once. nil ends all faults. Calls that are blocked stay so.
func (f *Faulty) Inject(plan func(Call) Fault) {
	if plan == nil {
		plan = func(Call) Fault { return Fault{} }
	}
	f.plan.Store(&plan)
}

// Calls is how many calls were made so far, failed ones included.
func (f *Faulty) Calls() int64 { return f.calls.Load() }

// Decide implements stint.Store.
func (f *Faulty) Decide(ctx context.Context, op stint.Op) (d stint.Decision, err error) {
	failed := f.call(ctx, op.Timeout, Call{Ops: []stint.Op{op}}, func() error {
		d, err = f.inner.Decide(ctx, op)
		return err
	})
	if err == nil && failed != nil {
		return stint.Decision{}, failed
	}
	return d, err
}

// Take implements [stint.Store].
func (f *Faulty) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return f.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

// DecideAll implements stint.Store. A fault fails all operations alike.
func (f *Faulty) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	clear(results[:len(ops)])
	err := f.call(ctx, decide.LeastTimeout(ops), Call{Batch: true, Ops: ops}, func() error {
		f.inner.DecideAll(ctx, ops, results)
		return nil
	})
	for i := range ops {
		if err != nil && results[i].Err == nil {
			results[i] = stint.Result{Err: err}
		}
	}
}

// ResetAll implements [stint.Store].
func (f *Faulty) ResetAll(ctx context.Context, scope stint.Scope) error {
	return f.call(ctx, 0, Call{Reset: true}, func() error { return f.inner.ResetAll(ctx, scope) })
}

// Watch implements [stint.Store]. A store with faults is watched by its calls.
func (f *Faulty) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }

// call carries out a call, unless its fault prevents it, and returns its error or the fault's.
func (f *Faulty) call(ctx context.Context, timeout time.Duration, call Call, carryOut func() error) error {
	f.calls.Add(1)
	var fault Fault
	if plan := f.plan.Load(); plan != nil {
		fault = (*plan)(call)
	}
	fails := fault.Err != nil || fault.Block
	if !fails || fault.After {
		if err := carryOut(); err != nil || !fails {
			return err
		}
	}
	if fault.Block {
		err := block(ctx, timeout)
		if fault.Err == nil {
			return err
		}
	}
	return fault.Err
}

// block waits until the context ends or the timeout, if it is not 0, has passed, and returns what a store says then.
func block(ctx context.Context, timeout time.Duration) error {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-late:
		return fmt.Errorf("%w: %w", stint.ErrUnavailable, watchdog.Late(errors.New("no answer in time")))
	}
}
