package algorithm

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// counterState is the state of a sliding window counter: the counts of the window
// that starts at Start and of the one before. The zero value is untouched.
type counterState struct {
	Start             stint.Instant
	Previous, Current int64
}

// slidingWindowCounter estimates a sliding window from two fixed ones: with e of the current window
// elapsed, previous x (window - e) / window + current. It admits when the estimate plus the cost is
// at most the limit, in integers, so the estimate never exceeds the limit. It is immutable and safe
// for concurrent use. The previous window's count fades in a line, as if its requests had been
// evenly spread:
//
//	weight of the previous window
//	1 |\
//	  | \
//	0 |__\___ elapsed of the current window
//	  0   window
type slidingWindowCounter struct {
	limit  int64
	debt   int64
	window int64 // microseconds
}

// newSlidingWindowCounter prepares a valid limit.
func newSlidingWindowCounter(limit stint.Limit) *slidingWindowCounter {
	debt := bounds.Debt(limit.MaxDebt, limit.Capacity)
	return &slidingWindowCounter{limit: limit.Capacity, debt: debt, window: limit.Window.Microseconds()}
}

// at brings the state to now and returns what has elapsed of its window.
func (c *slidingWindowCounter) at(state *counterState, now stint.Instant) (s counterState, elapsed int64) {
	t := int64(max(now, state.Start))
	elapsed = t % c.window
	s.Start = stint.Instant(t - elapsed)
	switch int64(s.Start - state.Start) {
	case 0:
		s = *state
	case c.window:
		s.Previous = state.Current
	}
	return s, elapsed
}

// used is the estimate, rounded up.
func (c *slidingWindowCounter) used(s *counterState, elapsed int64) int64 {
	if s.Previous == 0 {
		return s.Current
	}
	return s.Current + mulDivCeil(s.Previous, c.window-elapsed, c.window)
}

// apply carries out an action of n permits on the state, so that keep more are left.
func (c *slidingWindowCounter) apply(
	action Action,
	state *counterState,
	now stint.Instant,
	n, keep int64,
	out *stint.Outcome,
) {
	s, elapsed := c.at(state, now)
	used := c.used(&s, elapsed)
	out.Limit = c.limit
	out.Allowed = true
	out.RetryAfter, out.Delay, out.Applied = 0, 0, 0
	switch {
	case action == Settle:
		if out.Applied = c.settle(&s, used, n); out.Applied != 0 {
			used = c.used(&s, elapsed)
			*state = s
		}
	case n > c.limit-keep:
		out.Allowed, out.RetryAfter = false, stint.Never
	case used+n > c.limit-keep:
		out.Allowed = false
		out.RetryAfter = micros(c.wait(&s, elapsed, c.limit-n-keep) + int64(s.Start) + elapsed - int64(now))
	case action == Take:
		s.Current += n
		used += n
		*state = s
	}
	out.Remaining = max(0, c.limit-keep-used)
	switch {
	case s.Current > 0:
		out.ResetAfter = micros(int64(s.Start-now) + 2*c.window)
	case s.Previous > 0:
		out.ResetAfter = micros(int64(s.Start-now) + c.window)
	default:
		out.ResetAfter = 0
	}
}

// admit takes n permits k times, one after another, as often as they fit, and returns
// how often. It is k times Apply, in one step and without outcomes.
func (c *slidingWindowCounter) admit(state *counterState, now stint.Instant, n, keep, k int64) int64 {
	if n > c.limit-keep {
		return 0
	}
	s, elapsed := c.at(state, now)
	admitted := min(k, max(0, c.limit-keep-c.used(&s, elapsed))/n)
	if admitted > 0 {
		s.Current += admitted * n
		*state = s
	}
	return admitted
}

// refundTaken gives back n permits that were taken at an instant, from the counter of its
// window, and reports whether that changed the state.
func (c *slidingWindowCounter) refundTaken(state *counterState, now stint.Instant, n int64, taken stint.Instant) bool {
	s, _ := c.at(state, now)
	counter := &s.Current
	if taken < s.Start {
		counter = &s.Previous
	}
	if taken < s.Start-stint.Instant(c.window) || *counter == 0 {
		return false
	}
	*counter = max(0, *counter-n)
	*state = s
	return true
}

// settle charges or refunds n and returns what it applied. A refund takes the
// previous counter first.
func (c *slidingWindowCounter) settle(s *counterState, used, n int64) int64 {
	if n > 0 {
		n = clamp(n, c.limit+c.debt-used)
		s.Current += n
		return n
	}
	n = clamp(-n, s.Previous+s.Current)
	fromPrevious := min(n, s.Previous)
	s.Previous -= fromPrevious
	s.Current -= n - fromPrevious
	return -n
}

// wait is how long after the elapsed time at most so many permits are counted, when it is more now: within this
// window once enough of the previous one has passed out, else in the next.
func (c *slidingWindowCounter) wait(s *counterState, elapsed, most int64) int64 {
	free := most - s.Current
	if free >= 0 && s.Previous > 0 {
		if f := mulDiv(free, c.window, s.Previous); f >= 1 {
			return c.window - f - elapsed
		}
	}
	wait := c.window - elapsed
	if s.Current > most {
		wait += c.window - mulDiv(most, c.window, s.Current)
	}
	return wait
}

// leaves is how long until at most so many permits are counted, a part counted whole.
func (c *slidingWindowCounter) leaves(state *counterState, now stint.Instant, most int64) time.Duration {
	s, elapsed := c.at(state, now)
	if c.used(&s, elapsed) <= most {
		return 0
	}
	return micros(c.wait(&s, elapsed, most) + int64(s.Start) + elapsed - int64(now))
}

// worthless returns when the state equals an untouched one, and the longest that a
// state lives, in microseconds.
func (c *slidingWindowCounter) worthless(state *counterState) (at stint.Instant, life int64) {
	at = state.Start + stint.Instant(c.window)
	if state.Current > 0 {
		at += stint.Instant(c.window)
	}
	return at, 2 * c.window
}
