package oracle

import (
	"slices"

	"github.com/stint-go/stint"
)

// first is the first instant from now on at which a condition holds that stays true, if nobody takes, renews or
// ends; far if it never does. Expiries are walked in their order. At each the state is read anew; between two of
// them it is as it was read. The guess is when it may be, of what was read; it only saves searching.
func (s *state) first(
	limit stint.Limit, now stint.Instant,
	guess func(read *state) stint.Instant, holds func(read *state, at stint.Instant) bool,
) stint.Instant {
	walk, at := s.clone(), now
	walk.holds = slices.DeleteFunc(walk.holds, func(h *held) bool { return h.permits <= h.paid }) // nothing comes of these
	for {
		read, next := walk.read(limit, at), far
		then := func(stint.Instant) *state { return read }
		if s.changedFor(limit) { // whose two runs go on
			then = func(at stint.Instant) *state { return walk.read(limit, at) }
		} else {
			walk.expire(at)
		}
		if h := walk.nextAfter(at); h != nil {
			next = h.expires
		}
		end := next
		if end < far {
			end-- // an expiry is a last change, from which a run by the reader begins anew
		}
		found := search(at, end, guess(read), func(at stint.Instant) bool { return holds(then(at), at) })
		switch {
		case found < far:
			return found
		case next == far:
			return far
		}
		at = next
	}
}

// search is the first instant from now to an end at which a condition holds that stays true; far if it
// does not. A guess is right if the condition holds then, and not a microsecond earlier. Otherwise the
// distance doubles until the condition holds (at most 2^52 us, 142 years), and is halved from there.
func search(now, end, guess stint.Instant, holds func(at stint.Instant) bool) stint.Instant {
	if holds(now) {
		return now
	}
	if guess > now && guess <= end && holds(guess) && !holds(guess-1) {
		return guess
	}
	low, high := now, now+1
	for high < end && high-now < 1<<52 && !holds(high) {
		low, high = high, high+2*(high-now)
	}
	if high = min(high, end); high == far || !holds(high) {
		return far
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; holds(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// guess is when n permits may first be available, if nothing is held: of a bucket, once the backlog is
// worth capacity - n; of a window or a log, once so many entries have left. Of a counter it is late,
// since its previous window leaves bit by bit; search finds that out.
func (s *state) guess(n int64) stint.Instant {
	if s.limit.IsBucket() {
		permits, _ := rate(&s.limit)
		return stint.Instant(ceiling(minus(s.due, s.worth(s.limit.Capacity-n)), permits))
	}
	available := s.limit.Capacity
	for _, e := range slices.Backward(s.entries) {
		if available -= e.permits; available < n {
			return s.leaves(e)
		}
	}
	return 0
}
