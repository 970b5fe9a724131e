package failover

import (
	"context"
	"errors"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/watchdog"
)

// A watchdogStore has a watchdog watch the calls of a store that does not watch itself.
type watchdogStore struct {
	store    stint.Store
	probing  *stint.Policy
	watchdog *watchdog.Watchdog
	calls    sync.Pool // of *watchdog.Call
}

func newWatchdogStore(store stint.Store, probing *stint.Policy, config watchdog.Config) *watchdogStore {
	return &watchdogStore{
		store: store, probing: probing, watchdog: watchdog.New(config),
		calls: sync.Pool{New: func() any { return new(watchdog.Call) }},
	}
}

// Decide implements [stint.Store].
func (w *watchdogStore) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	call := w.begin()
	d, err := w.store.Decide(ctx, op)
	if op.Policy == w.probing && errors.Is(err, stint.ErrInvalid) && !errors.Is(err, stint.ErrUnavailable) {
		err = nil // it is there: a service has policies of its own, this one not among them
	}
	return d, w.end(ctx, call, d.Source, err)
}

// DecideAll implements [stint.Store]. The store has answered if it answered any of a batch;
// else the worst counts.
func (w *watchdogStore) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	call := w.begin()
	w.store.DecideAll(ctx, ops, results)
	var how callEnd
	var cause error
	for i := range ops {
		r := &results[i]
		var one callEnd
		if one, r.Err = w.classify(ctx, call, r.Decision.Source, r.Err); one > how {
			how, cause = one, r.Err
		}
	}
	w.report(call, how, cause)
}

// ResetAll implements [stint.Store]. It is not watched.
func (w *watchdogStore) ResetAll(ctx context.Context, scope stint.Scope) error {
	return w.store.ResetAll(ctx, scope)
}

func (w *watchdogStore) begin() *watchdog.Call {
	call, _ := w.calls.Get().(*watchdog.Call)
	w.watchdog.Begin(call)
	return call
}

func (w *watchdogStore) end(ctx context.Context, call *watchdog.Call, source stint.Source, err error) error {
	how, err := w.classify(ctx, call, source, err)
	w.report(call, how, err)
	return err
}

// A callEnd is how a call ended, for the watchdog; of several the greatest counts.
type callEnd uint8

const (
	neutral   callEnd = iota // the store was not needed
	refused                  // it failed
	abandoned                // nobody waited for it any longer
	answered                 // it answered
)

// classify says how a call ended that the watchdog has not been told of yet, and which error callers get. If
// this process was awake for less than half of the time up to the deadline, it is this process's fault.
func (w *watchdogStore) classify(ctx context.Context, call *watchdog.Call, source stint.Source, err error) (callEnd, error) {
	switch {
	case err == nil && source == stint.SourceStore:
		return answered, nil
	case err == nil, errors.Is(err, stint.ErrInvalid):
		return neutral, err
	case errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		own, bounded := ctx.(*deadline)
		if bounded && own.Context.Err() == nil && 2*w.watchdog.Age(call) < own.timeout {
			err = prefix.Errorf("%w: the process had no time to read the store's answer: %w", stint.ErrOverloaded, err)
		}
		return abandoned, err
	case errors.Is(err, stint.ErrOverloaded):
		return answered, err
	default:
		return refused, err
	}
}

func (w *watchdogStore) report(call *watchdog.Call, how callEnd, cause error) {
	switch how {
	case answered:
		w.watchdog.Answered(call)
	case refused:
		w.watchdog.Refused(call, cause)
	case abandoned:
		w.watchdog.Abandoned(call)
	case neutral:
		w.watchdog.Forget(call)
	}
	w.calls.Put(call)
}
