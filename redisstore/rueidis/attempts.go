package rueidis

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// After an attempt that failed, the next one waits, ever longer and somewhat by chance: many
// processes don't wear down a server that comes back, and those who wait still hear why there is
// no connection before a usual deadline is over.
const (
	firstRest = 10 * time.Millisecond
	lastRest  = 50 * time.Millisecond
)

// attempts are made one after another by a loop, until its owner is closed. Others wait for them.
type attempts struct {
	life context.Context
	end  context.CancelFunc
	loop sync.WaitGroup

	mu    sync.Mutex
	rest  time.Duration // after the next one that fails
	done  chan struct{} // closed when the attempt under way, or the next one, is over
	fault error         // why the latest failed
}

func newAttempts() *attempts {
	a := &attempts{rest: firstRest, done: make(chan struct{})}
	a.life, a.end = context.WithCancel(context.Background())
	return a
}

// over tells those who wait how an attempt ended. After one that failed it rests.
func (a *attempts) finish(fault error) {
	a.mu.Lock()
	close(a.done)
	a.done, a.fault = make(chan struct{}), fault
	a.mu.Unlock()
	if fault == nil {
		a.rest = firstRest
		return
	}
	select {
	case <-a.life.Done():
	case <-time.After(jitter(a.rest)):
		a.rest = min(2*a.rest, lastRest)
	}
}

// wait waits for an attempt, unless it has succeeded already, and returns why it failed.
func (a *attempts) wait(ctx context.Context, succeeded func() bool) error {
	a.mu.Lock()
	done := a.done
	a.mu.Unlock()
	if succeeded() { // before the attempt of done began
		return nil
	}
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.life.Done():
		return errClosed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fault
}

// jitter is a time between half of another and all of it, by chance, so that processes
// do not keep step.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2) //nolint:gosec // nobody gains by guessing it
}
