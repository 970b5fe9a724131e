package failover

import (
	"context"
	"sync/atomic"
	"time"
)

// A deadline is a context that ends at a time, at the latest. It is as
// context.WithDeadline makes one, but has no timer, and is not known to its parent,
// until somebody asks for Done: many decisions never wait, since what they need is in
// the process. Like those it has to be released.
type deadline struct {
	context.Context // the parent
	base            time.Time
	at              time.Duration // since base: reading one clock is cheaper than two
	timeout         time.Duration
	timer           atomic.Pointer[timer]
	released        atomic.Bool
}

// A timer is a context with a timer: it ends the deadline in time for those that wait for it.
type timer struct {
	context.Context
	cancel context.CancelFunc
}

// withTimeout returns a context that ends after the timeout, or nil when the parent
// ends no later by itself. The base may be any time.
func withTimeout(parent context.Context, base time.Time, timeout time.Duration) *deadline {
	at := time.Since(base) + timeout
	if earlier, bounded := parent.Deadline(); bounded && earlier.Sub(base) <= at {
		return nil
	}
	return &deadline{Context: parent, base: base, at: at, timeout: timeout}
}

// Deadline implements [context.Context].
func (d *deadline) Deadline() (time.Time, bool) { return d.base.Add(d.at), true }

// Timeout is for how long the call may take in all. Stores that tell a busy process from a
// server that is slow ask for it.
func (d *deadline) Timeout() time.Duration { return d.timeout }

// Done implements [context.Context]. The first call starts the timer.
func (d *deadline) Done() <-chan struct{} { return d.start().Done() }

func (d *deadline) start() *timer {
	if w := d.timer.Load(); w != nil {
		return w
	}
	w := &timer{}
	w.Context, w.cancel = context.WithDeadline(d.Context, d.base.Add(d.at))
	if !d.timer.CompareAndSwap(nil, w) {
		w.cancel()
		w = d.timer.Load()
	}
	if d.released.Load() {
		w.cancel()
	}
	return w
}

// Err implements [context.Context].
func (d *deadline) Err() error {
	w := d.timer.Load()
	if w == nil && d.Context.Err() == nil && time.Since(d.base) < d.at && !d.released.Load() {
		return nil
	}
	if w == nil {
		w = d.start() // so that the answer stays
	}
	return w.Err()
}

// Value implements [context.Context]. Contexts made of this one find the timer by it,
// and need no goroutine.
func (d *deadline) Value(key any) any {
	if w := d.timer.Load(); w != nil {
		return w.Value(key)
	}
	return d.Context.Value(key)
}

// release ends the context, as a context.CancelFunc does. A nil deadline has nothing to end.
func (d *deadline) release() {
	if d == nil {
		return
	}
	d.released.Store(true)
	if w := d.timer.Load(); w != nil {
		w.cancel()
	}
}
