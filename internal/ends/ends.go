// Package ends sends the ends of holds again that a store could not decide: commits and cancels, which are
// idempotent. Their callers have nobody who would send them again.
//
//	var queue ends.Queue
//	...
//	queue.End(ctx, cost, tellers) // when a request's handler is done
//	...
//	err = queue.Drain(ctx) // before the program ends
//
// The goroutine that sends them lives as long as there are any.
package ends

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/running"
)

const (
	// Most bounds the ends that wait in a queue, so that a store that stays away takes no more memory.
	Most = 10_000
	// atOnce is how many are sent at the same time.
	atOnce = 64
	// shortest and longest bound the pauses after a round of which nothing arrived. Each is up to twice the one before.
	shortest = 100 * time.Millisecond
	longest  = 5 * time.Second
	// endTime bounds one try.
	endTime = 5 * time.Second
)

// An End is the end of a hold.
type End struct {
	// Send sends it. Nil says that it arrived. An error that no repetition mends gives it up.
	Send func(context.Context) error
	// Until is when it is given up, by this process's clock: the store has forgotten the hold by then.
	Until time.Time
	// GaveUp is told the last error when it is given up, in another goroutine. Default: nil, nobody is told.
	GaveUp func(error)
}

// A Queue has the ends that are sent again. The zero value is empty and ready. It is safe for concurrent use.
type Queue struct {
	mu      sync.Mutex
	waiting []failed // in the order in which they are sent
	sending int
	lost    uint64
	runs    *sender // nil: there is no goroutine that sends
}

// failed is an end, and why the last try failed.
type failed struct {
	End
	err error
}

// sender is the goroutine that sends.
type sender struct {
	ended  chan struct{} // closed when nothing is left
	hurry  chan struct{}
	giveUp context.CancelFunc
}

// End ends what a request holds, if it does, by its cost; the client may be gone. An end that fails is sent again. If
// tellers is not nil, it says who is told an [enforce.EndError] then: now at once, and later if the end is given up,
// from another goroutine.
func (q *Queue) End(ctx context.Context, cost *running.Cost, tellers func() (now, later func(error))) {
	if cost.Hold == nil {
		return
	}
	end := cost.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	err := end.Send(ctx)
	if err == nil {
		return
	}
	now, later := func(error) {}, func(error) {}
	if tellers != nil {
		now, later = tellers()
	}
	again := end // which alone is allocated
	failed := enforce.EndError{
		Hold: cost.Hold, Verb: end.Verb, Permits: end.Permits, Until: end.Until, Err: err, Send: again.Send,
	}
	last := failed
	failed.Repeated = q.Add(err, End{Send: again.Send, Until: end.Until, GaveUp: func(err error) {
		last.Err = err
		later(&last)
	}})
	now(&failed)
}

// Add adds an end that failed with an error, and reports whether it is sent again: not if the error is final, its time
// is over or the queue is full. Then it counts as given up, and GaveUp is not told.
func (q *Queue) Add(err error, end End) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if decide.IsFault(err) || !time.Now().Before(end.Until) || len(q.waiting)+q.sending >= Most {
		q.lost++
		return false
	}
	q.waiting = append(q.waiting, failed{end, err})
	if q.runs == nil {
		ctx, giveUp := context.WithCancel(context.Background())
		q.runs = &sender{ended: make(chan struct{}), hurry: make(chan struct{}, 1), giveUp: giveUp}
		go q.run(ctx, q.runs)
	}
	return true
}

// Counts says how many ends wait, and how many were given up.
func (q *Queue) Counts() (waiting int, lost uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) + q.sending, q.lost
}

// Drain sends at once what waits, and returns when nothing does. What has not arrived when the context ends is given
// up; then the error wraps the context's.
func (q *Queue) Drain(ctx context.Context) error {
	q.mu.Lock()
	runs, before := q.runs, q.lost
	q.mu.Unlock()
	if runs == nil {
		return nil
	}
	select {
	case runs.hurry <- struct{}{}:
	default: // told already
	}
	select {
	case <-runs.ended:
	case <-ctx.Done():
		runs.giveUp()
		<-runs.ended
	}
	if _, lost := q.Counts(); lost > before {
		return prefix.Errorf("%d commits and cancels of holds were given up: %w", lost-before, cmp.Or(ctx.Err(), errLost))
	}
	return nil
}

// errLost is why a drain fails whose context has not ended.
var errLost = errors.New("the store refused them, or their time was over")

// run sends what waits until nothing does.
func (q *Queue) run(ctx context.Context, runs *sender) {
	defer runs.giveUp()
	for pause := shortest; ; {
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-runs.hurry:
			pause = 0
		case <-ctx.Done():
		}
		timer.Stop()
		arrived, more := q.round(ctx)
		if !more {
			return
		}
		pause = min(max(2*pause, shortest), longest)
		if arrived {
			pause = 0 // the store is there
		}
	}
}

// round sends the first of those that wait, and puts those that failed behind the others. When the context has ended,
// all are given up.
func (q *Queue) round(ctx context.Context) (arrived, more bool) {
	q.mu.Lock()
	n := min(len(q.waiting), atOnce)
	if ctx.Err() != nil {
		n = len(q.waiting)
	}
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.sending = n
	q.mu.Unlock()

	if ctx.Err() == nil {
		var sent sync.WaitGroup
		for i := range batch {
			sent.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, endTime)
				defer cancel()
				batch[i].err = batch[i].Send(ctx)
			})
		}
		sent.Wait()
	}

	var lost []failed
	q.mu.Lock()
	for _, e := range batch {
		switch {
		case e.err == nil:
			arrived = true
		case decide.IsFault(e.err), ctx.Err() != nil, !time.Now().Before(e.Until):
			lost = append(lost, e)
		default:
			q.waiting = append(q.waiting, e)
		}
	}
	q.sending, q.lost = 0, q.lost+uint64(len(lost))
	q.mu.Unlock()
	for _, e := range lost {
		if e.GaveUp != nil {
			e.GaveUp(e.err)
		}
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		return arrived, true
	}
	close(q.runs.ended)
	q.runs = nil
	return arrived, false
}
