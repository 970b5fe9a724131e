package algorithm

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// windowState is the state of a fixed window: the count of the window
// [Start, End). The zero value is untouched.
type windowState struct {
	Start, End stint.Instant
	Count      int64
}

// fixedWindow admits at most limit permits per window. Windows start at multiples of their length
// since the Unix epoch, follow a calendar, or begin with the first permits that are counted. Its known
// weakness: up to twice the limit can pass within one length around a boundary. One of denials counts what is
// denied, and a Take leaves it as it is. It is safe for concurrent use. With count c, limit L and cost n a request is
// admitted if c + n <= L - keep, and
// until the window's end nothing comes back:
//
//	permits
//	  L |    ______|    ______
//	    |   /      |   /        count per window
//	  0 |__/_______|__/_______  time
//	    start     end
type fixedWindow struct {
	limit    int64
	debt     int64
	counts   Action    // by which permits are counted: Take, or Deny where denials are
	length   int64     // microseconds; 0 with a calendar
	step     int64     // windows start at multiples of it: its length, or 1 where the first permits begin one
	calendar *calendar // nil without
}

// newFixedWindow prepares a valid limit.
func newFixedWindow(limit stint.Limit) *fixedWindow {
	debt := bounds.Debt(limit.MaxDebt, limit.Capacity)
	w := &fixedWindow{limit: limit.Capacity, debt: debt, length: limit.Window.Microseconds()}
	if w.step = w.length; limit.FirstRequest {
		w.step = 1
	}
	if limit.Denials {
		w.counts = Deny
	}
	if limit.Calendar != 0 {
		w.calendar = newCalendar(limit.Calendar, limit.TimeZone)
	}
	return w
}

// window returns the window that holds t.
func (w *fixedWindow) window(t stint.Instant) (start, end stint.Instant) {
	if w.calendar != nil {
		return w.calendar.window(t)
	}
	start = t - t%stint.Instant(w.step)
	return start, start + stint.Instant(w.length)
}

// at brings the state to now. A window under way with permits counted goes on to its
// own end, whichever limit wrote it. Otherwise the limit's own window starts empty.
func (w *fixedWindow) at(state *windowState, now stint.Instant) windowState {
	t := max(now, state.Start)
	if state.Count > 0 && t < state.End {
		return *state
	}
	start, end := w.window(t)
	return windowState{Start: start, End: end}
}

// apply carries out an action of n permits on the state, which this limit wrote or
// another one of any window, so that keep more are left.
func (w *fixedWindow) apply(action Action, state *windowState, now stint.Instant, n, keep int64, out *stint.Outcome) {
	s := w.at(state, now)
	wait := micros(int64(s.End - now))
	out.Limit = w.limit
	out.Allowed = true
	out.RetryAfter, out.Delay, out.Applied = 0, 0, 0
	switch {
	case action == Settle:
		if n > 0 {
			out.Applied = clamp(n, w.limit+w.debt-s.Count)
		} else {
			out.Applied = -clamp(-n, s.Count)
		}
		if out.Applied != 0 {
			s.Count += out.Applied
			*state = s
		}
	case n > w.limit-keep:
		out.Allowed, out.RetryAfter = false, stint.Never
	case s.Count+n > w.limit-keep:
		out.Allowed, out.RetryAfter = false, wait
	case action == w.counts:
		s.Count += n
		*state = s
		if action == Deny && s.Count+n > w.limit { // what it says of waits is of what comes now
			out.RetryAfter = wait
		}
	}
	if w.counts == Deny {
		out.Denials = true
	}
	out.Remaining = max(0, w.limit-keep-s.Count)
	out.ResetAfter = 0
	if s.Count > 0 {
		out.ResetAfter = wait
	}
}

// admit takes n permits k times, one after another, as often as they fit, and returns
// how often. It is k times Apply, in one step and without outcomes.
func (w *fixedWindow) admit(state *windowState, now stint.Instant, n, keep, k int64) int64 {
	if n > w.limit-keep {
		return 0
	}
	s := w.at(state, now)
	admitted := min(k, max(0, w.limit-keep-s.Count)/n)
	if admitted > 0 {
		s.Count += admitted * n
		*state = s
	}
	return admitted
}

// refundTaken gives back n permits that were taken at an instant, if its window is still
// the state's, and reports whether that changed the state.
func (w *fixedWindow) refundTaken(state *windowState, now stint.Instant, n int64, taken stint.Instant) bool {
	s := w.at(state, now)
	if taken < s.Start || taken >= s.End || s.Count == 0 {
		return false
	}
	s.Count = max(0, s.Count-n)
	*state = s
	return true
}

// leaves is how long until at most so many permits are counted.
func (w *fixedWindow) leaves(state *windowState, now stint.Instant, most int64) time.Duration {
	if s := w.at(state, now); s.Count > most {
		return micros(int64(s.End - now))
	}
	return 0
}
