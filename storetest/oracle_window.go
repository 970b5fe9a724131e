package storetest

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/stint-go/stint"
)

// A window is the count of a fixed window. Its zero start is untouched.
type windowState struct {
	limit      *stint.Limit
	windows    *calendarWindows
	start, end stint.Instant
	count      int64
	newest     stint.Instant // the newest time known when the window was read
}

func (w windowState) adopt(limit *stint.Limit, now stint.Instant) limitState {
	t := max(now, w.start)
	if w.untouchedAt() > t {
		// The window is under way and something is counted in it: whatever window the
		// limit would have, this one goes on to its own end.
		return windowState{limit, w.windows, w.start, w.end, w.count, w.start}
	}
	start, end := w.windows.window(limit, t)
	return windowState{limit, w.windows, start, end, 0, max(w.start, start)}
}

func (w windowState) time() stint.Instant { return w.newest }

func (w windowState) available(at stint.Instant) int64 {
	if max(at, w.newest) >= w.end {
		return w.limit.Capacity
	}
	return w.limit.Capacity - w.count
}

func (w windowState) guess(int64) stint.Instant { return w.end }

func (w windowState) readyAt() stint.Instant { return 0 }

func (w windowState) delay(stint.Instant) time.Duration { return 0 }

func (w windowState) untouchedAt() stint.Instant {
	if w.count > 0 {
		return w.end
	}
	return w.start
}

func (w windowState) take(n int64, _ stint.Instant) limitState {
	w.count += n
	w.newest = w.start
	return w
}

func (w windowState) settle(n int64, now stint.Instant) (limitState, int64) {
	if n > 0 {
		n = min(n, max(0, w.limit.Capacity+w.limit.Debt()-w.count))
	} else {
		n = max(n, -w.count)
	}
	return w.take(n, now), n
}

func (w windowState) String() string {
	return fmt.Sprintf("{%d in the window from %s to %s}", w.count, w.start, w.end)
}

// A counter is a sliding window counter. Its zero start is untouched.
type counterState struct {
	limit             *stint.Limit
	start             stint.Instant // of the current window
	previous, current int64
	newest            stint.Instant // the newest time known when the counter was read
}

// length is the window's length.
func (c counterState) length() stint.Instant { return micros(c.limit.Window) }

// roll returns the counter with the window of t as its current one.
func (c counterState) roll(t stint.Instant) counterState {
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

func (c counterState) adopt(limit *stint.Limit, now stint.Instant) limitState {
	t := max(now, c.start)
	newest := c.start
	if c.limit.Window != limit.Window {
		used := c.limit.Capacity - c.available(t)
		c = counterState{start: t - t%micros(limit.Window), current: used}
	}
	c.limit = limit
	c = c.roll(t)
	c.newest = max(newest, c.start)
	return c
}

func (c counterState) time() stint.Instant { return c.newest }

func (c counterState) available(at stint.Instant) int64 {
	t := max(at, c.newest)
	c = c.roll(t)
	length := uint64(c.length())
	high, low := bits.Mul64(uint64(c.previous), length-uint64(t-c.start)) // #nosec G115 -- neither is negative
	estimate, rest := bits.Div64(high, low, length)
	return c.limit.Capacity - c.current - int64(estimate) - int64(min(rest, 1)) // #nosec G115 -- at most previous
}

func (c counterState) guess(int64) stint.Instant { return c.start + c.length() }

func (c counterState) readyAt() stint.Instant { return 0 }

func (c counterState) delay(stint.Instant) time.Duration { return 0 }

func (c counterState) untouchedAt() stint.Instant {
	switch {
	case c.current > 0:
		return c.start + 2*c.length()
	case c.previous > 0:
		return c.start + c.length()
	}
	return c.start
}

func (c counterState) take(n int64, _ stint.Instant) limitState {
	c.current += n
	c.newest = c.start
	return c
}

func (c counterState) settle(n int64, now stint.Instant) (limitState, int64) {
	if n > 0 {
		used := c.limit.Capacity - c.available(now)
		n = min(n, max(0, c.limit.Capacity+c.limit.Debt()-used))
		return c.take(n, now), n
	}
	n = max(n, -c.previous-c.current)
	first := max(n, -c.previous)
	c.previous += first
	c.current += n - first
	c.newest = c.start
	return c, n
}

func (c counterState) String() string {
	return fmt.Sprintf("{window %s from %s: previous %d, current %d}",
		stint.FormatDuration(c.limit.Window), c.start, c.previous, c.current)
}
