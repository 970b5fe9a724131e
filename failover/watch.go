package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/watchdog"
)

// decide has the wrapped store decide. A store that does not find out by itself when it can't be reached is watched by
// its calls.
func (s *Store) decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if s.watchdog == nil {
		return s.wrapped.Decide(ctx, op)
	}
	call := s.begin()
	d, err := s.wrapped.Decide(ctx, op)
	if op.Policy == s.probing && errors.Is(err, stint.ErrInvalid) && !errors.Is(err, stint.ErrUnavailable) {
		err = nil // it is there: a service has policies of its own, this one not among them
	}
	how, err := s.classify(ctx, call, op.Timeout, d.Source, err)
	s.report(call, how, err)
	return d, err
}

// decideAll is decide for several operations. The store has answered if it answered any of them; else the worst counts.
func (s *Store) decideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if s.watchdog == nil {
		s.wrapped.DecideAll(ctx, ops, results)
		return
	}
	call := s.begin()
	s.wrapped.DecideAll(ctx, ops, results)
	var how callEnd
	var cause error
	for i := range ops {
		r := &results[i]
		var one callEnd
		if one, r.Err = s.classify(ctx, call, decide.LeastTimeout(ops), r.Decision.Source, r.Err); one > how {
			how, cause = one, r.Err
		}
	}
	s.report(call, how, cause)
}

// begin has the watchdog time a call. Calls are reused, as each operation has one.
func (s *Store) begin() *watchdog.Call {
	call, reused := s.calls.Get().(*watchdog.Call)
	if !reused {
		call = new(watchdog.Call)
	}
	s.watchdog.Begin(call)
	return call
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
// this process was awake for less than half of the timeout that has passed, it is this process's fault.
func (s *Store) classify(
	ctx context.Context,
	call *watchdog.Call,
	timeout time.Duration,
	source stint.Source,
	err error,
) (callEnd, error) {
	switch {
	case err == nil && source == stint.SourceStore:
		return answered, nil
	case err == nil, errors.Is(err, stint.ErrInvalid):
		return neutral, err
	case timedOut(err), ctx.Err() != nil:
		if ctx.Err() == nil && 2*s.watchdog.Age(call) < timeout {
			err = fmt.Errorf("%w: %w", stint.ErrOverloaded, errUnread)
		}
		return abandoned, err
	case errors.Is(err, stint.ErrOverloaded):
		return answered, err
	default:
		return refused, err
	}
}

// errUnread is that the Timeout has passed for want of a processor.
var errUnread = watchdog.Late(errors.New("the process had no time to read the store's answer"))

// report tells the watchdog how a call ended, and keeps the call for another one. A call for which the
// store was not needed is forgotten.
func (s *Store) report(call *watchdog.Call, how callEnd, cause error) {
	switch how {
	case answered:
		s.watchdog.Answered(call)
	case refused:
		s.watchdog.Refused(call, cause)
	case abandoned:
		s.watchdog.Abandoned(call)
	case neutral:
		s.watchdog.Forget(call)
	}
	s.calls.Put(call)
}

// Watch implements [stint.Store]. A store that answers when the one below can't is never unreachable.
func (s *Store) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{Count: 1} }
