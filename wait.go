package stint

import (
	"container/list"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/sleep"
)

// Wait blocks until the key gets a permit, and with a leaky bucket until its turn.
// It returns ErrDeadline at once when the context's deadline is nearer than the
// wait, and the context's error when it ends meanwhile; a turn of a leaky bucket
// that was taken by then stays taken. The decision returned is
// the last one made.
//
// Callers of one limiter that wait for one key are served in the order in which they came, whatever they
// cost, and only the first of them asks the store: twice for each caller that is admitted, unless somebody else takes
// what it waits for. A caller behind others gets ErrDeadline at once if its deadline is
// before the time at which the first will ask again, and otherwise when it is first itself. Calls of Allow,
// and callers in other processes, do not wait behind them.
func (l *Limiter) Wait(ctx context.Context, key string) (Decision, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN is Wait for n permits. It returns ErrNever when n is above the limit
// itself. Its attempts are not recorded by limits that count denied requests.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, err
	}
	op := Op{Verb: Try, Claim: Claim{Key: key, Policy: l.policy, Permits: n}}
	if err := op.Validate(); err != nil {
		return Decision{}, err
	}
	if !l.policy.canFit(n) {
		d, err := l.carry(ctx, op)
		if err == nil && !d.Allowed {
			err = ErrNever
		}
		return d, err
	}
	w, err := l.queues.join(ctx, key)
	if err != nil {
		return Decision{}, err
	}
	d, err := l.acquire(ctx, w, op)
	l.queues.leave(w)
	if err != nil {
		return d, err
	}
	return d, sleep.For(ctx, d.Delay)
}

// canFit reports whether an untouched client could take n permits.
func (p *Policy) canFit(n int64) bool {
	return !slices.ContainsFunc(p.limits, func(l Limit) bool { return n > l.Capacity })
}

// acquire carries out the operation for the first waiter of its key, again until the store admits it.
func (l *Limiter) acquire(ctx context.Context, w *waiter, op Op) (Decision, error) {
	deadline, bounded := ctx.Deadline()
	if bounded && l.policy.leaky {
		// A turn, once taken, is kept; so look first whether it comes in time.
		d, err := l.look(ctx, Op{Verb: Peek, Claim: op.Claim})
		if err != nil || d.Allowed && d.Delay > time.Until(deadline) {
			return d, orDeadline(err)
		}
	}
	for {
		d, err := l.carry(ctx, op)
		switch {
		case err != nil:
			return d, err
		case d.Allowed && bounded && d.Delay > time.Until(deadline):
			return d, ErrDeadline // others queued since the look; the turn stays taken
		case d.Allowed:
			return d, nil
		case d.RetryAfter == Never:
			return d, ErrNever
		case bounded && d.RetryAfter > time.Until(deadline):
			return d, ErrDeadline
		}
		l.queues.sleeps(w, time.Now().Add(d.RetryAfter))
		if err := sleep.For(ctx, d.RetryAfter); err != nil {
			return d, err
		}
	}
}

// waitQueues are the callers that wait, by key. The zero value has none.
type waitQueues struct {
	mu    sync.Mutex
	byKey map[string]*waitQueue
}

// A waitQueue is the callers that wait for one key.
type waitQueue struct {
	key     string
	waiters list.List // of *waiter, in the order in which they came
	until   time.Time // when the first asks again; zero while it asks
}

// A waiter is a caller in a queue.
type waiter struct {
	queue *waitQueue
	place *list.Element
	first chan struct{} // closed when it is the first; nil if it came as such
}

// join puts a caller at the end of a key's queue and waits until it is the first.
func (q *waitQueues) join(ctx context.Context, key string) (*waiter, error) {
	q.mu.Lock()
	queue := q.byKey[key]
	if queue == nil {
		if q.byKey == nil {
			q.byKey = map[string]*waitQueue{}
		}
		queue = &waitQueue{key: strings.Clone(key)}
		q.byKey[queue.key] = queue
	}
	w := &waiter{queue: queue}
	w.place = queue.waiters.PushBack(w)
	until := queue.until
	if queue.waiters.Len() > 1 {
		w.first = make(chan struct{})
	}
	q.mu.Unlock()
	if w.first == nil {
		return w, nil
	}
	if deadline, bounded := ctx.Deadline(); bounded && deadline.Before(until) {
		q.leave(w)
		return nil, ErrDeadline
	}
	select {
	case <-w.first:
		return w, nil
	case <-ctx.Done():
		q.leave(w)
		return nil, ctx.Err()
	}
}

// sleeps notes when the first waiter of a queue asks again.
func (q *waitQueues) sleeps(w *waiter, until time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.queue.until = until
}

// leave takes a caller out of its queue. Behind the first comes the next.
func (q *waitQueues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiters := &w.queue.waiters
	wasFirst := waiters.Front() == w.place
	waiters.Remove(w.place)
	switch {
	case waiters.Len() == 0:
		delete(q.byKey, w.queue.key)
	case wasFirst:
		next, _ := waiters.Front().Value.(*waiter)
		w.queue.until = time.Time{}
		close(next.first)
	}
}
