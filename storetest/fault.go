package storetest

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stint-go/stint"
)

// A Fault is what goes wrong with one call of a store. The zero value is nothing.
type Fault struct {
	// Err is what the call fails with. Default: nil, it does not fail.
	Err error
	// Block holds the call until its context is done; it then fails with Err, or with
	// the context's error when Err is nil.
	Block bool
	// After lets the store carry out the call first, so that its answer is lost.
	// Default: false, the store never hears of it. It matters only with Err or Block.
	After bool
}

// A Call describes a call to whoever decides about its fault.
type Call struct {
	// Number counts the calls of the store, from 1.
	Number int64
	// Batch says that it is a DecideAll.
	Batch bool
	// Ops are the operations: one of a Decide, none of a reset of policies. They must not be
	// changed or kept.
	Ops []stint.Op
	// Reset says that it is a ResetPolicy or ResetAll.
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
		f.plan.Store(nil)
		return
	}
	f.plan.Store(&plan)
}

// Calls is how many calls were made so far, failed ones included.
func (f *Faulty) Calls() int64 { return f.calls.Load() }

// Decide implements stint.Store.
func (f *Faulty) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	number := f.calls.Add(1)
	plan := f.plan.Load()
	if plan == nil {
		return f.inner.Decide(ctx, op)
	}
	fault := (*plan)(Call{Number: number, Ops: []stint.Op{op}})
	if !fault.fails() {
		return f.inner.Decide(ctx, op)
	}
	if fault.After {
		if d, err := f.inner.Decide(ctx, op); err != nil {
			return d, err
		}
	}
	return stint.Decision{}, fault.strike(ctx)
}

// DecideAll implements stint.Store. A fault fails all operations alike.
func (f *Faulty) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	number := f.calls.Add(1)
	plan := f.plan.Load()
	var fault Fault
	if plan != nil {
		fault = (*plan)(Call{Number: number, Batch: true, Ops: ops})
	}
	if !fault.fails() || fault.After {
		f.inner.DecideAll(ctx, ops, results)
	}
	if !fault.fails() {
		return
	}
	err := fault.strike(ctx)
	for i := range ops {
		if fault.After && results[i].Err != nil {
			continue
		}
		results[i] = stint.Result{Err: err}
	}
}

// ResetPolicy implements [stint.Resetter]. The error wraps stint.ErrInvalid if the store is
// no Resetter.
func (f *Faulty) ResetPolicy(ctx context.Context, policyName string) error {
	return f.reset(ctx, func(inner stint.Resetter) error { return inner.ResetPolicy(ctx, policyName) })
}

// ResetAll implements [stint.Resetter], as ResetPolicy does.
func (f *Faulty) ResetAll(ctx context.Context) error {
	return f.reset(ctx, func(inner stint.Resetter) error { return inner.ResetAll(ctx) })
}

func (f *Faulty) reset(ctx context.Context, reset func(stint.Resetter) error) error {
	inner, ok := f.inner.(stint.Resetter)
	if !ok {
		return stint.Invalid("store", fmt.Sprintf("%T", f.inner), "a stint.Resetter")
	}
	number := f.calls.Add(1)
	var fault Fault
	if plan := f.plan.Load(); plan != nil {
		fault = (*plan)(Call{Number: number, Reset: true})
	}
	if !fault.fails() {
		return reset(inner)
	}
	if fault.After {
		if err := reset(inner); err != nil {
			return err
		}
	}
	return fault.strike(ctx)
}

func (f Fault) fails() bool { return f.Err != nil || f.Block }

// strike waits if the fault blocks, and returns the error of the call.
func (f Fault) strike(ctx context.Context) error {
	if f.Block {
		<-ctx.Done()
		if f.Err == nil {
			return ctx.Err()
		}
	}
	return f.Err
}
