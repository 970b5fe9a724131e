package storetest

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// A Clock is a pinned clock: it stands still until it is set. The zero value
// stands at the Unix epoch. It is safe for concurrent use.
type Clock struct {
	// now is in microseconds.
	now atomic.Int64
}

// NewClock returns a clock that stands at the instant.
func NewClock(at stint.Instant) *Clock {
	c := &Clock{}
	c.Set(at)
	return c
}

// Now is the time that the clock shows. It has the shape of a store's clock.
func (c *Clock) Now() time.Time { return c.Instant().Time() }

// Instant is the same time as decisions tell it.
func (c *Clock) Instant() stint.Instant { return stint.Instant(c.now.Load()) }

// Set moves the clock to the instant, back as well as forth.
func (c *Clock) Set(at stint.Instant) { c.now.Store(int64(at)) }

// Advance moves the clock by d, in whole microseconds, and returns the new time.
// A negative d is a step back.
func (c *Clock) Advance(d time.Duration) stint.Instant {
	return stint.Instant(c.now.Add(d.Microseconds()))
}
