package enforce

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/running"
)

// A RunningCost is what a request turns out to cost while its handler runs, and holds until then. The zero value holds
// nothing, and what it is told has no effect. It is safe for concurrent use.
type RunningCost struct{ cost *running.Cost }

// CostOf is the cost of the request whose context it is.
func CostOf(ctx context.Context) RunningCost { return RunningCost{running.Of(ctx)} }

// Set says what the request costs, 0 or more; what was said last counts. Limits with a cost of
// their own keep that.
func (c RunningCost) Set(permits int64) {
	if c.cost != nil {
		c.cost.Permits.Store(max(0, permits))
		c.cost.Said.Store(true)
	}
}

// Add says that the request costs so many permits more. The first of it counts from 0.
func (c RunningCost) Add(permits int64) {
	if c.cost != nil {
		c.cost.Permits.Add(permits)
		c.cost.Said.Store(true)
	}
}

// Cancel says that the request never ran, so that all it held goes back, whatever else is said.
func (c RunningCost) Cancel() {
	if c.cost != nil {
		c.cost.Cancelled.Store(true)
	}
}

// Hold is what holds the request's permits, to have it grow for example; nil if nothing does.
func (c RunningCost) Hold() *stint.Reservation {
	if c.cost == nil {
		return nil
	}
	return c.cost.Hold
}

// An EndError says that what a request held could not be committed or cancelled. Middlewares tell it to their Failed;
// and again, in another goroutine, if it was Repeated and is given up in the end.
type EndError struct {
	// Hold is what was to end.
	Hold *stint.Reservation
	// Verb is how: stint.VerbCommit, or stint.VerbCancel of what never ran.
	Verb stint.Verb
	// Permits are what a commit says: what the handler has said, or what is held.
	Permits int64
	// Until is when the store forgets the hold, by this process's clock.
	Until time.Time
	// Repeated says that the middleware sends the end again, in the background. Otherwise it is given up.
	Repeated bool
	// Err is why it failed.
	Err error
	// Send sends the end again, which has an effect until Until. To send it twice is safe. A hold that has ended
	// otherwise is no error.
	Send func(context.Context) error
}

// Error says what failed, and whether it is over.
func (e *EndError) Error() string {
	after := "given up"
	if e.Repeated {
		after = "repeated until " + e.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("stint: the %v of hold %q with %d permits failed and is %s: %s",
		e.Verb, e.Hold.ID(), e.Permits, after, prefix.Trim(e.Err.Error()))
}

// Unwrap is why it failed.
func (e *EndError) Unwrap() error { return e.Err }
