package stint

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/waitqueue"
)

// Wait blocks until the key gets a permit, and with a leaky bucket until its turn.
// It returns ErrDeadline at once when the context's deadline is nearer than the
// wait, and the context's error when it ends meanwhile; a turn of a leaky bucket
// that was taken by then stays taken. The decision returned is
// the last one made.
//
// A store that can't decide, and a process too busy to ask it, don't end the wait: the caller asks again, after 50 ms
// at first and up to a second later on, until its context ends. The error then wraps the last cause, such as
// ErrUnavailable, besides the context's error. A store with a failure policy decides, too: by that of package failover
// which admits, the default, a wait ends at once while Redis is unreachable; so that workers keep their pace give it
// the mode Local or Closed. Permits that the store took, but could not say so, stay taken. A store
// that is closed never decides again: let the context end first.
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
	if l.policy == nil {
		return Decision{}, errZero
	}
	op := Op{Verb: VerbTry, Claim: Claim{Key: key, Policy: l.policy, Permits: n}}
	if err := op.Validate(); err != nil {
		return Decision{}, err
	}
	if !l.policy.canFit(n) {
		d, err := persist(ctx, func() (Decision, error) { return l.carry(ctx, op) })
		if err == nil && !d.Allowed {
			err = ErrNever
		}
		return d, err
	}
	w, err := l.queues.join(ctx, key, false)
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
	return !slices.ContainsFunc(p.limits, func(l Limit) bool { return l.Takes(n) > l.Capacity })
}

// acquire carries out the operation for the first waiter of its key, again until the store admits it.
func (l *Limiter) acquire(ctx context.Context, w *waiter, op Op) (Decision, error) {
	deadline, bounded := ctx.Deadline()
	looks := bounded && l.policy.leaky
	try := func() (Decision, error) {
		if looks {
			// A turn, once taken, is kept; so look first whether it comes in time.
			d, err := l.look(ctx, Op{Verb: VerbPeek, Claim: op.Claim})
			if err != nil || d.Allowed && d.Delay > time.Until(deadline) {
				return d, orDeadline(err)
			}
		}
		d, err := l.carry(ctx, op)
		looks = looks && err != nil
		return d, err
	}
	for {
		d, err := persist(ctx, try)
		switch {
		case err != nil:
			return d, err
		case d.Allowed && bounded && d.Delay > time.Until(deadline):
			return d, ErrDeadline // others queued since the look; the turn stays taken
		case d.Allowed:
			return d, nil
		case d.RetryAfter == Never:
			return d, ErrNever
		case bounded && l.policy.untilTurn(&d) > time.Until(deadline):
			return d, ErrDeadline
		}
		l.queues.sleeps(w, time.Now().Add(d.RetryAfter))
		if err := sleep.For(ctx, d.RetryAfter); err != nil {
			return d, err
		}
	}
}

// untilTurn is how long a request that was denied waits at least: for room, and in the queue of a leaky bucket that
// denied it for its turn, which comes when all before it have left. In the place of a store it is not known how many;
// nor, if a service has another limit of its own, which of them denied it.
func (p *Policy) untilTurn(d *Decision) time.Duration {
	l := &p.limits[d.Index]
	if l.Algorithm == AlgorithmLeakyBucket && l.Capacity == d.Limit && !d.Degraded {
		return max(d.RetryAfter, d.ResetAfter)
	}
	return d.RetryAfter
}

// How long a caller that waits pauses before it asks again, after the store could not decide: the first time, and at
// most. Half of it, or more, by chance.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// undecided reports whether the store could not decide, or was not asked for want of time, so that it may help to ask
// again.
func undecided(err error) bool {
	return (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOverloaded)) && !errors.Is(err, ErrInvalid)
}

// persist asks until the store decides, or the context ends. The error then has the last cause.
func persist(ctx context.Context, ask func() (Decision, error)) (d Decision, err error) {
	var cause error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if d, err = ask(); undecided(err) {
			cause = err
			err = sleep.Jittered(ctx, pause)
			if err == nil {
				continue
			}
		}
		if err != nil && ctx.Err() != nil && cause != nil {
			err = prefix.Errorf("%w: %w", ctx.Err(), cause)
		}
		return d, err
	}
}

// waitQueues are the callers that wait, by key. The zero value has none.
type waitQueues struct {
	mu     sync.Mutex
	queues waitqueue.Queues[string]
	begun  time.Time // from which their time counts
}

// at is a time in the queues.
func (q *waitQueues) at(t time.Time) int64 { return int64(t.Sub(q.begun)) + 1 }

// A waiter is a caller in the queue of its key.
type waiter struct {
	waitqueue.Waiter[string]
	turn chan struct{} // closed when it is the first
}

// join puts a caller at the end of a key's queue and waits until it is the first. Where permits may
// come back at any time the first may be done before it asks again, so nobody is turned away for
// that.
func (q *waitQueues) join(ctx context.Context, key string, anyTime bool) (*waiter, error) {
	w := &waiter{turn: make(chan struct{})}
	w.Turn = func(int64) { close(w.turn) }
	w.Positions = []waitqueue.Position[string]{{Key: strings.Clone(key)}}
	q.mu.Lock()
	if q.begun.IsZero() {
		q.begun = time.Now()
	}
	behind := q.queues.Ahead(&w.Waiter) >= 0
	until := q.queues.First(&w.Positions[0])
	q.queues.Enter(&w.Positions[0])
	q.mu.Unlock()
	if !behind {
		return w, nil
	}
	if deadline, bounded := ctx.Deadline(); bounded && !anyTime && q.at(deadline) < until {
		q.leave(w)
		return nil, ErrDeadline
	}
	select {
	case <-w.turn:
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
	w.Positions[0].Until = q.at(until)
}

// leave takes a caller out of its queue. Behind the first comes the next.
func (q *waitQueues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queues.Leave(&w.Waiter, 0)
}
