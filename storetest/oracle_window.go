package storetest

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/stint-go/stint"
)

// A window is the count of a fixed window. Its zero start is untouched.
type window struct {
	limit      *stint.Limit
	almanac    *almanac
	start, end stint.Instant
	count      int64
	seen       stint.Instant // the newest time known when the window was read
}

func (w window) read(limit *stint.Limit, now stint.Instant) cell {
	t := max(now, w.start)
	if w.untouchedAt() > t {
		// The window is under way and something is counted in it: whatever window the
		// limit would have, this one goes on to its own end.
		return window{limit, w.almanac, w.start, w.end, w.count, w.start}
	}
	start, end := w.almanac.window(limit, t)
	return window{limit, w.almanac, start, end, 0, max(w.start, start)}
}

func (w window) time() stint.Instant { return w.seen }

func (w window) room(at stint.Instant) int64 {
	if max(at, w.seen) >= w.end {
		return w.limit.Capacity
	}
	return w.limit.Capacity - w.count
}

func (w window) guess(int64) stint.Instant { return w.end }

func (w window) readyAt() stint.Instant { return 0 }

func (w window) delay(stint.Instant) time.Duration { return 0 }

func (w window) untouchedAt() stint.Instant {
	if w.count > 0 {
		return w.end
	}
	return w.start
}

func (w window) take(n int64, _ stint.Instant) cell {
	w.count += n
	w.seen = w.start
	return w
}

func (w window) settle(n int64, now stint.Instant) (cell, int64) {
	if n > 0 {
		n = min(n, max(0, w.limit.Capacity+w.limit.Debt()-w.count))
	} else {
		n = max(n, -w.count)
	}
	return w.take(n, now), n
}

func (w window) String() string {
	return fmt.Sprintf("{%d in the window from %s to %s}", w.count, w.start, w.end)
}

// A counter is a sliding window counter. Its zero start is untouched.
type counter struct {
	limit             *stint.Limit
	start             stint.Instant // of the current window
	previous, current int64
	seen              stint.Instant // the newest time known when the counter was read
}

// length is the window's length.
func (c counter) length() stint.Instant { return micros(c.limit.Window) }

// roll returns the counter with the window of t as its current one.
func (c counter) roll(t stint.Instant) counter {
	length := c.length()
	start := t - t%length
	switch start {
	case c.start:
	case c.start + length:
		c.previous, c.current = c.current, 0
	default:
		c.previous, c.current = 0, 0
	}
	c.start = start
	return c
}

func (c counter) read(limit *stint.Limit, now stint.Instant) cell {
	t := max(now, c.start)
	seen := c.start
	if c.limit.Window != limit.Window {
		used := c.limit.Capacity - c.room(t)
		c = counter{start: t - t%micros(limit.Window), current: used}
	}
	c.limit = limit
	c = c.roll(t)
	c.seen = max(seen, c.start)
	return c
}

func (c counter) time() stint.Instant { return c.seen }

func (c counter) room(at stint.Instant) int64 {
	t := max(at, c.seen)
	c = c.roll(t)
	length := uint64(c.length())
	high, low := bits.Mul64(uint64(c.previous), length-uint64(t-c.start)) // #nosec G115 -- neither is negative
	estimate, rest := bits.Div64(high, low, length)
	return c.limit.Capacity - c.current - int64(estimate) - int64(min(rest, 1)) // #nosec G115 -- at most previous
}

func (c counter) guess(int64) stint.Instant { return c.start + c.length() }

func (c counter) readyAt() stint.Instant { return 0 }

func (c counter) delay(stint.Instant) time.Duration { return 0 }

func (c counter) untouchedAt() stint.Instant {
	switch {
	case c.current > 0:
		return c.start + 2*c.length()
	case c.previous > 0:
		return c.start + c.length()
	}
	return c.start
}

func (c counter) take(n int64, _ stint.Instant) cell {
	c.current += n
	c.seen = c.start
	return c
}

func (c counter) settle(n int64, now stint.Instant) (cell, int64) {
	if n > 0 {
		used := c.limit.Capacity - c.room(now)
		n = min(n, max(0, c.limit.Capacity+c.limit.Debt()-used))
		return c.take(n, now), n
	}
	n = max(n, -c.previous-c.current)
	first := max(n, -c.previous)
	c.previous += first
	c.current += n - first
	c.seen = c.start
	return c, n
}

func (c counter) String() string {
	return fmt.Sprintf("{window %s from %s: previous %d, current %d}",
		stint.FormatDuration(c.limit.Window), c.start, c.previous, c.current)
}
