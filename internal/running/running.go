// Package running has what a request turns out to cost while its handler runs. Middlewares reserve, begin and end it;
// a handler says the cost by an enforce.RunningCost, which leads to it.
package running

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A Cost is what a request turns out to cost, and holds until then. The zero value holds nothing. What handlers say is
// safe for concurrent use.
type Cost struct {
	// Count says by which answers plain limits count the request; nil: by all.
	Count func(status int) bool
	// Claims are how the end is charged to each claim of rules of which some count by answers; nil: alike.
	Claims []Claim

	// Hold is what holds the request's permits; nil: nothing does. Holds sets it.
	Hold *stint.Reservation
	// What the handler says.
	Permits         atomic.Int64
	Said, Cancelled atomic.Bool

	reserved time.Time     // by this process's clock
	at       stint.Instant // by the store's
	ttl      time.Duration // of the hold

	stop     context.CancelFunc // of what keeps the hold alive; nil: the handler did not begin
	status   atomic.Int64
	answered atomic.Bool
}

// A Claim is how the end of a request is charged to one of its claims.
type Claim struct {
	Counts func(status int) bool // whether an answer is counted
	Asked  bool                  // whether the cost is what was said
}

type key struct{}

// Of is the cost of the request whose context it is; nil of one that holds nothing.
func Of(ctx context.Context) *Cost {
	c, _ := ctx.Value(key{}).(*Cost)
	return c
}

// Holds notes what holds the request's permits from now on, at an instant of the store's, for so long unless it is
// renewed. nil holds nothing.
func (c *Cost) Holds(by *stint.Reservation, at stint.Instant, ttl time.Duration) {
	if by != nil {
		c.Hold, c.reserved, c.at, c.ttl = by, time.Now(), at, ttl
	}
}

// Counts reports whether what the request costs depends on the status of its answer: a middleware says it then.
func (c *Cost) Counts() bool { return c != nil && c.Hold != nil && (c.Count != nil || c.Claims != nil) }

// Answered says what the request was answered with, before End: the HTTP status, 500 of a panic, 499 of a client that
// has gone, 101 of an upgrade. Without it the request is counted.
func (c *Cost) Answered(status int) {
	c.status.Store(int64(status))
	c.answered.Store(true)
}

// Answer has a request of the context handled, and notes what it was answered with. begun is the status of the answer
// that was begun; 0 of none. That counts, whatever the client does then, since it may know it already. A panic is 500,
// but that of a handler which gives up an answer that it has begun.
func (c *Cost) Answer(ctx context.Context, handle func(), begun func() int) {
	returned := false
	defer func() {
		var cause any
		if !returned { // or the goroutine ends
			cause = recover()
		}
		c.Answered(statusOf(ctx, begun(), returned, cause))
		if cause != nil {
			panic(cause) // it is the handler's, and goes on
		}
	}()
	handle()
	returned = true
}

// statusOf is what a request counts as, whose handler has returned, or left by a cause.
func statusOf(ctx context.Context, begun int, returned bool, cause any) int {
	err, _ := cause.(error)
	switch aborted := errors.Is(err, http.ErrAbortHandler); {
	case !returned && !aborted:
		return http.StatusInternalServerError
	case begun > 0:
		return begun
	case ctx.Err() != nil:
		const gone = 499 // as nginx has it
		return gone
	case aborted:
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

// Begin keeps a request's hold alive while its handler runs, by the context that it returns: that
// carries the cost, and ends, with [stint.ErrLost] as its cause, when the hold is lost. Without a
// hold it is the context as it was.
func (c *Cost) Begin(ctx context.Context) context.Context {
	if c.Hold == nil {
		return ctx
	}
	ctx, c.stop = c.Hold.KeepAlive(context.WithValue(ctx, key{}, c))
	return ctx
}

// An End is how a request's hold ends.
type End struct {
	Verb    stint.Verb // VerbCommit, or VerbCancel of what never ran
	Permits int64      // what a commit says
	Until   time.Time  // when the store forgets the hold, by this process's clock

	hold *stint.Reservation
	held bool // whether a commit says what each limit holds
	// of a request of which some claims are not counted: what each of them costs; nil: as above
	each func(claim int, held int64) int64
}

// Stop ends what keeps the request's hold alive, and says how it ends: with the cost that was said, or with what each
// limit holds. Limits that don't count its answer get back what they gave. Of a request whose handler did not begin
// nothing is charged. It must hold.
func (c *Cost) Stop() (end End) {
	ran := c.stop != nil
	if ran {
		c.stop()
	}
	end.hold, end.Verb = c.Hold, stint.VerbCommit
	switch {
	case !ran || c.Cancelled.Load():
		end.Verb = stint.VerbCancel
	case c.Said.Load():
		end.Permits = max(0, c.Permits.Load())
	default:
		end.Permits, end.held = c.Hold.Permits(), true
	}
	c.leaveOut(&end)
	lives := time.Duration(c.Hold.ExpiresAt()-c.at) * time.Microsecond
	end.Until = c.reserved.Add(lives + bounds.Remembered(c.ttl))
	return end
}

// leaveOut has a commit give back what is not counted.
func (c *Cost) leaveOut(e *End) {
	if e.Verb != stint.VerbCommit || !c.answered.Load() {
		return
	}
	status := int(c.status.Load())
	if c.Count != nil && !c.Count(status) {
		e.Permits, e.held = 0, false
	}
	if c.Claims == nil {
		return
	}
	said, permits, claims := !e.held, e.Permits, c.Claims
	e.each = func(claim int, held int64) int64 {
		switch of := &claims[claim]; {
		case !of.Counts(status):
			return 0
		case said && of.Asked:
			return permits
		}
		return held
	}
}

// Send sends an end. To send it twice is safe. A hold that has ended otherwise is no error.
func (e *End) Send(ctx context.Context) (err error) {
	switch {
	case e.Verb == stint.VerbCancel:
		_, err = e.hold.Cancel(ctx)
	case e.each != nil:
		_, err = e.hold.CommitEach(ctx, e.each)
	case e.held:
		_, err = e.hold.CommitHeld(ctx)
	default:
		_, err = e.hold.Commit(ctx, e.Permits)
	}
	if errors.Is(err, stint.ErrResolved) {
		return nil
	}
	return err
}
