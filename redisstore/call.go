package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/watchdog"
)

// A call is one caller's operations, to be decided in order. Once its caller has left, nothing of
// the caller's is touched: results, outcomes and keys are the caller's memory.
//
//	0 <= completed <= appended <= len(ops)
//
// ops[:completed] are answered, ops[completed:appended] are in batch, and the others wait.
type call struct {
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
	previous, next *call
	queued         bool // whether it is there

	// takenAt is, of a refund or a returned lease, when the permits were taken.
	takenAt stint.Instant
	bulk    int64 // permits to take on top of a take of one, one after another
	// bulkAdmitted is how many permits of the bulk were admitted.
	bulkAdmitted int64
	live         []stint.Hold // that were listed

	op     [1]stint.Op
	result [1]stint.Result
}

// newCall makes a call, most often of one that has been recycled.
func (br *batcher) newCall(ctx context.Context) *call {
	c, used := br.store.callPool.Get().(*call)
	if !used {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.ctx = ctx
	return c
}

// newSingleCall makes a call of one operation, which it keeps a copy of.
func (br *batcher) newSingleCall(ctx context.Context, op *stint.Op) *call {
	c := br.newCall(ctx)
	c.timeout = op.Timeout
	c.op[0] = *op
	c.ops, c.results = c.op[:], c.result[:]
	return c
}

// recycle takes a call that nobody else holds. A call whose caller left before its answer is left
// to the garbage collector, as its batch still has it.
func (br *batcher) recycle(c *call) {
	*c = call{done: c.done, timer: c.timer}
	br.store.callPool.Put(c)
}

// waits is for how long the caller waits in all, at most the time between two batches too long.
func (c *call) waits() time.Duration {
	if c.timeout > 0 {
		return c.timeout
	}
	return time.Since(c.queuedSince)
}

// lateness receives when the caller's time is up. It is nil of a call without a timeout.
func (c *call) lateness() <-chan time.Time {
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

// within bounds what waits for more than one call by the operations' timeout.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, errLate)
}

// isLate reports whether a context has ended since an operation's Timeout has passed.
func isLate(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errLate) }

// endOf is the error of a caller whose context has ended.
func endOf(ctx context.Context) error {
	if isLate(ctx) {
		return unavailable(errLate)
	}
	return ctx.Err()
}

// fail answers what has not been answered with an error.
func (c *call) fail(err error) {
	for i := c.completed; i < len(c.results); i++ {
		c.results[i] = stint.Result{Err: err}
	}
}

// complete gives the answers, or the error, to the callers that wait. It returns the calls with
// operations left to send. The channel has room for one, so that nobody waits for a caller.
func (b *batch) complete(err error) (further []*call) {
	for i := 0; i < len(b.entries); {
		c := b.entries[i].call
		c.mu.Lock()
		for ; i < len(b.entries) && b.entries[i].call == c; i++ {
			if c.abandoned {
				continue
			}
			e := &b.entries[i]
			switch {
			case err != nil:
				c.results[e.index] = stint.Result{Err: err}
			case e.hold != nil && e.hold.err != nil:
				c.results[e.index] = stint.Result{Err: e.hold.err}
			default:
				if e.hold != nil {
					e.hold.tell(c.ops[e.index].Hold())
				}
				c.results[e.index] = stint.Result{Decision: e.decision}
				c.bulkAdmitted, c.live = e.bulkAdmitted, e.live
				copy(c.ops[e.index].Each, b.outcomesOf(e))
			}
			c.completed++
		}
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

// queue is a list of calls.
type queue struct{ first, last *call }

// push appends a call.
func (q *queue) push(c *call) {
	c.previous, c.next, c.queued = q.last, nil, true
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
}

// pushFirst puts a call before all others.
func (q *queue) pushFirst(c *call) {
	c.previous, c.next, c.queued = nil, q.first, true
	if q.first == nil {
		q.last = c
	} else {
		q.first.previous = c
	}
	q.first = c
}

// remove takes a call out, if it is there.
func (q *queue) remove(c *call) {
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

// detach takes all operations out of a batch. It returns the calls whose callers wait for them.
func (br *batcher) detach(b *batch) (calls []*call) {
	for i := 0; i < len(b.entries); {
		c := b.entries[i].call
		for ; i < len(b.entries) && b.entries[i].call == c; i++ {
		}
		c.mu.Lock()
		n := c.appended - c.completed
		c.appended, c.batch = c.completed, nil
		if !c.abandoned {
			br.mu.Lock()
			br.queued += n
			br.mu.Unlock()
			calls = append(calls, c)
		}
		c.mu.Unlock()
	}
	return calls
}
