package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// A Call is one caller's operations, to be decided in order. Once its caller has left, nothing of
// the caller's is touched: results, outcomes and keys are the caller's memory.
//
//	0 <= completed <= appended <= len(ops)
//
// ops[:completed] are answered, ops[completed:appended] are in batch, and the others wait.
type Call struct {
	wire.Sending // of its operations
	// BulkAdmitted is how many permits of the bulk were admitted.
	BulkAdmitted int64
	Live         []stint.Hold // that were listed

	ctx context.Context
	// timeout is 0 for as long as the context allows.
	timeout time.Duration
	// timer is for the timeout, kept from call to call.
	timer   *time.Timer
	ops     []stint.Op
	results []stint.Result
	done    chan struct{}

	mu        sync.Mutex
	appended  int    // operations that have been sent
	completed int    // operations that have been answered
	batch     *batch // with the operations that are under way; nil for none
	abandoned bool   // whether the caller has left
	// queuedSince is when the queue last moved before it came.
	queuedSince time.Time

	// previous and next are its neighbours in the queue, guarded by the batcher.
	previous, next *Call
	queued         bool // whether it is there

	op     [1]stint.Op
	result [1]stint.Result
}

// newCall makes a call, most often of one that has been recycled.
func (br *Batcher) newCall(ctx context.Context) *Call {
	c, used := br.config.calls.Get().(*Call)
	if !used {
		c = &Call{done: make(chan struct{}, 1)}
	}
	c.ctx = ctx
	return c
}

// NewCall makes a call of one operation, which it keeps a copy of.
func (br *Batcher) NewCall(ctx context.Context, op *stint.Op) *Call {
	c := br.newCall(ctx)
	c.timeout = op.Timeout
	c.op[0] = *op
	c.ops, c.results = c.op[:], c.result[:]
	return c
}

// NewCallOf makes a call of several operations, with room for their results.
func (br *Batcher) NewCallOf(ctx context.Context, timeout time.Duration, ops []stint.Op, results []stint.Result) *Call {
	c := br.newCall(ctx)
	c.timeout, c.ops, c.results = timeout, ops, results
	return c
}

// Result is what became of the operation of NewCall.
func (c *Call) Result() stint.Result { return c.result[0] }

// Recycle takes a call that nobody else holds. A call whose caller left before its answer is left
// to the garbage collector, as its batch still has it.
func (br *Batcher) Recycle(c *Call) {
	*c = Call{done: c.done, timer: c.timer}
	br.config.calls.Put(c)
}

// batch is a batch with the calls whose operations it has.
type batch struct {
	wire.Batch
	parts   []part // in order
	watched watchdog.Call
}

// part is so many operations of a call, from the first that was not answered.
type part struct {
	call *Call
	n    int
}

// newBatch makes a batch, most often of one that has been answered.
func (br *Batcher) newBatch() *batch {
	if b, used := br.config.batches.Get().(*batch); used {
		return b
	}
	return &batch{}
}

// recycle keeps a batch for later.
func (br *Batcher) recycle(b *batch) {
	b.End()
	clear(b.parts)
	b.parts = b.parts[:0]
	br.config.batches.Put(b)
}

// waits is for how long the caller waits in all, at most the time between two batches too long.
func (c *Call) waits() time.Duration {
	if c.timeout > 0 {
		return c.timeout
	}
	return time.Since(c.queuedSince)
}

// lateness receives when the caller's time is up. It is nil of a call without a timeout.
func (c *Call) lateness() <-chan time.Time {
	switch {
	case c.timeout == 0:
		return nil
	case c.timer == nil:
		c.timer = time.NewTimer(c.timeout)
	default:
		c.timer.Reset(c.timeout)
	}
	return c.timer.C
}

// errLate is the cause of a context that ends since an operation's Timeout has passed.
var errLate = watchdog.Late(errors.New("no answer in time"))

// Within bounds what waits for more than one call by the operations' timeout.
func Within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, errLate)
}

// isLate reports whether a context has ended since an operation's Timeout has passed.
func isLate(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errLate) }

// EndOf is the error of a caller whose context has ended.
func EndOf(ctx context.Context) error {
	if isLate(ctx) {
		return Unavailable(errLate)
	}
	return ctx.Err()
}

// fail answers what has not been answered with an error.
func (c *Call) fail(err error) {
	for i := c.completed; i < len(c.results); i++ {
		c.results[i] = stint.Result{Err: err}
	}
}

// complete gives the answers, or the error, to the callers that wait. It returns the calls with
// operations left to send. The channel has room for one, so that nobody waits for a caller.
func (b *batch) complete(err error) (further []*Call) {
	at := 0
	for _, p := range b.parts {
		c := p.call
		c.mu.Lock()
		for i := at; i < at+p.n && !c.abandoned; i++ {
			if err != nil {
				c.results[c.completed] = stint.Result{Err: err}
			} else {
				e := b.Answer(i, &c.ops[c.completed], &c.results[c.completed])
				c.BulkAdmitted, c.Live = e.BulkAdmitted, e.Live
			}
			c.completed++
		}
		at += p.n
		c.batch = nil
		left, done := c.abandoned, c.completed == len(c.ops)
		c.mu.Unlock()
		switch {
		case left:
		case done:
			c.done <- struct{}{} // from here on it is the caller's
		default:
			further = append(further, c)
		}
	}
	return further
}

// list is a list of calls.
type list struct{ first, last *Call }

// push appends a call.
func (q *list) push(c *Call) {
	c.previous, c.next, c.queued = q.last, nil, true
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
}

// pushFirst puts a call before all others.
func (q *list) pushFirst(c *Call) {
	c.previous, c.next, c.queued = nil, q.first, true
	if q.first == nil {
		q.last = c
	} else {
		q.first.previous = c
	}
	q.first = c
}

// remove takes a call out, if it is there.
func (q *list) remove(c *Call) {
	if !c.queued {
		return
	}
	if c.previous == nil {
		q.first = c.next
	} else {
		c.previous.next = c.next
	}
	if c.next == nil {
		q.last = c.previous
	} else {
		c.next.previous = c.previous
	}
	c.previous, c.next, c.queued = nil, nil, false
}
