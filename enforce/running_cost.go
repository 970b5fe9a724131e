package enforce

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// A RunningCost is what a request turns out to cost while its handler runs, and holds until then. The zero value holds
// nothing, and what it is told has no effect. It is safe for concurrent use.
type RunningCost struct {
	hold *stint.Reservation // nil: nothing is held
	// of what keeps it alive; nil: the handler did not begin
	stop      context.CancelFunc
	permits   atomic.Int64
	said      atomic.Bool
	cancelled atomic.Bool
}

type costKey struct{}

// CostOf is the cost of the request whose context it is.
func CostOf(ctx context.Context) *RunningCost {
	if cost, ok := ctx.Value(costKey{}).(*RunningCost); ok {
		return cost
	}
	return new(RunningCost)
}

// Set says what the request costs, 0 or more; what was said last counts. Limits with a cost of
// their own keep that.
func (c *RunningCost) Set(permits int64) {
	c.permits.Store(max(0, permits))
	c.said.Store(true)
}

// Add says that the request costs so many permits more. The first of it counts from 0.
func (c *RunningCost) Add(permits int64) {
	c.permits.Add(permits)
	c.said.Store(true)
}

// Cancel says that the request never ran, so that all it held goes back, whatever else is said.
func (c *RunningCost) Cancel() { c.cancelled.Store(true) }

// Hold is what holds the request's permits, to have it grow for example; nil if nothing does.
func (c *RunningCost) Hold() *stint.Reservation { return c.hold }

// A Holder decides requests by rules, as a [Decider] does, and holds what they cost: a [Limiter].
type Holder interface {
	Reserve(ctx context.Context, r *rules.Request, hold stint.Hold, v *Verdict) (*stint.Reservation, error)
}

// Reserve decides a request by rules, and holds what it costs until End.
func (c *RunningCost) Reserve(
	ctx context.Context, by Holder, r *rules.Request, hold stint.Hold, v *Verdict,
) (err error) {
	c.hold, err = by.Reserve(ctx, r, hold, v)
	return err
}

// Begin keeps a request's hold alive while its handler runs, by the context that it returns: that
// carries the cost, and ends, with [stint.ErrLost] as its cause, when the hold is lost. Without a
// hold it is the context as it was.
func (c *RunningCost) Begin(ctx context.Context) context.Context {
	if c.hold == nil {
		return ctx
	}
	ctx, c.stop = c.hold.KeepAlive(context.WithValue(ctx, costKey{}, c))
	return ctx
}

// endTime is how long the end of a hold may take.
const endTime = 5 * time.Second

// End ends a request's hold, if it has one: with the cost that was said, or with what each limit holds.
// Of a request whose handler did not begin nothing is charged. The client may be gone. A hold that the
// handler has ended by itself is no error.
func (c *RunningCost) End(ctx context.Context) (err error) {
	if c.hold == nil {
		return nil
	}
	ran := c.stop != nil
	if ran {
		c.stop()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	switch {
	case !ran || c.cancelled.Load():
		_, err = c.hold.Cancel(ctx)
	case c.said.Load():
		_, err = c.hold.Commit(ctx, max(0, c.permits.Load()))
	default:
		_, err = c.hold.CommitHeld(ctx)
	}
	if errors.Is(err, stint.ErrResolved) {
		return nil
	}
	return err
}
