package enforce

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
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
	// By which answers it is counted: by plain limits, and by each claim of rules; nil: it is counted.
	count    func(status int) bool
	claims   []claimEnd
	status   atomic.Int64
	answered atomic.Bool
	// When it was reserved, by this process's clock, and by the store's.
	reserved   time.Time
	reservedAt stint.Instant
	remembered time.Duration // for how long the store remembers how the hold ended
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

// A holder decides requests by rules, as a [Decider] does, and holds what they cost: a [Limiter].
type holder interface {
	Reserve(ctx context.Context, r *rules.Request, hold stint.Hold, v *Verdict) (*stint.Reservation, error)
}

// Reserve decides a request by rules, and holds what it costs until End.
func (c *RunningCost) Reserve(
	ctx context.Context, by holder, r *rules.Request, hold stint.Hold, v *Verdict,
) (err error) {
	c.hold, err = by.Reserve(ctx, r, hold, v)
	c.noteClaims(v)
	c.note(v.Hold.Hold, v.Decision.At)
	return err
}

// note notes when a hold was reserved.
func (c *RunningCost) note(hold stint.Hold, at stint.Instant) {
	if c.hold != nil {
		c.reserved, c.reservedAt, c.remembered = time.Now(), at, bounds.Remembered(hold.TTL)
	}
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

// An EndError says that what a request held could not be committed or cancelled. Middlewares tell it to their Failed;
// and again, in another goroutine, if it was Repeated and is given up in the end.
type EndError struct {
	// Hold is what was to end.
	Hold *stint.Reservation
	// Verb is how: stint.Commit, or stint.Cancel of what never ran.
	Verb stint.Verb
	// Permits are what a commit says: what the handler has said, or what is held.
	Permits int64
	// Until is when the store forgets the hold, by this process's clock.
	Until time.Time
	// Repeated says that the middleware sends the end again, in the background. Otherwise it is given up.
	Repeated bool
	// Err is why it failed.
	Err error

	held bool // whether a commit says what each limit holds
	// of a request of which some claims are not counted: what each of them costs; nil: as above
	each func(claim int, held int64) int64
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

// Send sends the end again, which has an effect until Until. To send it twice is safe. A hold that has ended otherwise
// is no error.
func (e *EndError) Send(ctx context.Context) (err error) {
	switch {
	case e.Verb == stint.VerbCancel:
		_, err = e.Hold.Cancel(ctx)
	case e.each != nil:
		_, err = e.Hold.CommitEach(ctx, e.each)
	case e.held:
		_, err = e.Hold.CommitHeld(ctx)
	default:
		_, err = e.Hold.Commit(ctx, e.Permits)
	}
	if errors.Is(err, stint.ErrResolved) {
		return nil
	}
	return err
}

// End ends a request's hold, if it has one: with the cost that was said, or with what each limit holds. Limits that
// don't count its answer get back what they gave.
// Of a request whose handler did not begin nothing is charged. The client may be gone. A hold that the
// handler has ended by itself is no error. An error is an [EndError].
func (c *RunningCost) End(ctx context.Context) error {
	if c.hold == nil {
		return nil
	}
	ran := c.stop != nil
	if ran {
		c.stop()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	end := EndError{Hold: c.hold, Verb: stint.VerbCommit}
	switch {
	case !ran || c.cancelled.Load():
		end.Verb = stint.VerbCancel
	case c.said.Load():
		end.Permits = max(0, c.permits.Load())
	default:
		end.Permits, end.held = c.hold.Permits(), true
	}
	c.leaveOut(&end)
	if end.Err = end.Send(ctx); end.Err == nil {
		return nil
	}
	lives := time.Duration(c.hold.ExpiresAt()-c.reservedAt) * time.Microsecond
	end.Until = c.reserved.Add(lives + c.remembered)
	failed := end // which alone is allocated
	return &failed
}
