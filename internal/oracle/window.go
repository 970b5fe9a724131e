package oracle

import (
	"slices"

	"github.com/stint-go/stint"
)

// Fixed windows, counters and logs are lists of entries. A fixed window has one entry at most: the window that
// counts. A counter has two: those of the current window and of the one before. Of a log, each request is an
// entry.

// leaves is the instant from which on an entry does not count.
func (s *state) leaves(e entry) stint.Instant {
	switch s.limit.Algorithm {
	case stint.AlgorithmFixedWindow:
		return e.end
	case stint.AlgorithmSlidingWindowCounter:
		return e.end + micros(s.limit.Window)
	default:
		return e.start + micros(s.limit.Window)
	}
}

// counted is how many permits count at an instant, part of one counted as one. A counter's previous
// window counts by the part of it that a sliding window of the same length still covers.
func (s *state) counted(at stint.Instant) (sum int64) {
	window := int64(micros(s.limit.Window))
	for _, e := range s.entries {
		switch {
		case at >= s.leaves(e):
		case s.limit.Algorithm == stint.AlgorithmSlidingWindowCounter && at >= e.end:
			// previous x (W - e), of which W is a permit
			sum += ceiling(product(e.permits, window-int64(at-e.end)), window)
		default:
			sum += e.permits
		}
	}
	return sum
}

// readyAt is the instant before which nothing is admitted, whatever is available.
func (s *state) readyAt() stint.Instant {
	if s.limit.MinInterval == 0 || s.last == 0 {
		return 0
	}
	return s.last + micros(s.limit.MinInterval)
}

// bringEntries lets leave what does not count any more. It begins a counter's next window.
func (s *state) bringEntries(now stint.Instant) {
	isCounter := s.limit.Algorithm == stint.AlgorithmSlidingWindowCounter
	if n := len(s.entries); n > 0 && isCounter && now >= s.entries[n-1].end && now < s.leaves(s.entries[n-1]) {
		start := s.entries[n-1].end
		s.entries = append(slices.Clip(s.entries), entry{start: start, end: start + micros(s.limit.Window)})
	}
	left := func(e entry) bool { return now >= s.leaves(e) }
	if slices.ContainsFunc(s.entries, left) {
		s.entries = slices.DeleteFunc(slices.Clone(s.entries), left)
	}
	if isCounter || s.limit.Algorithm == stint.AlgorithmSlidingWindowLog {
		s.lose(left)
	}
}

// lose marks the parts of which nothing comes back any more.
func (s *state) lose(gone func(entry) bool) {
	for _, h := range s.holds {
		for i := range h.parts {
			h.parts[i].gone = h.parts[i].gone || gone(h.parts[i])
		}
	}
}

// enter counts n permits at an instant, and returns them as a part. A window in which something
// is counted keeps its own start and end, whatever the limit's are now.
func (s *state) enter(n int64, at stint.Instant) entry {
	part := entry{start: at, permits: n}
	last := len(s.entries) - 1
	entries := slices.Clone(s.entries)
	switch s.limit.Algorithm {
	case stint.AlgorithmSlidingWindowLog:
		s.entries = append(entries, part)
		return part
	case stint.AlgorithmFixedWindow:
		if last >= 0 && entries[last].permits == 0 {
			entries, last = nil, -1 // nothing is counted: the window is the one that this limit has
		}
	default:
	}
	if last < 0 || at >= entries[last].end {
		part.start, part.end = s.windows.window(&s.limit, at)
		s.entries = append(entries, part)
		return part
	}
	part.start, part.end = entries[last].start, entries[last].end
	entries[last].permits += n
	s.entries = entries
	return part
}

// enterDenied counts a request that was denied: the newest permits stay, as many as the limit.
func (s *state) enterDenied(n int64, at stint.Instant) {
	s.charge(min(n, s.limit.Capacity), at, true)
	over := -s.limit.Capacity
	for _, e := range s.entries {
		over += e.permits
	}
	s.shed(over)
}

// shed takes off up to n permits, of the oldest entries first, and tells how many.
func (s *state) shed(n int64) (back int64) {
	s.entries = slices.Clone(s.entries)
	for i := range s.entries {
		e := &s.entries[i]
		off := max(0, min(n-back, e.permits))
		e.permits, back = e.permits-off, back+off
	}
	if s.limit.Algorithm == stint.AlgorithmSlidingWindowLog {
		s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.permits == 0 })
	}
	return back
}

// giveBack gives back permits of a hold, its newest part first: to the window with that start, if it still counts;
// of a log as many of the oldest entries, while the part itself is active.
func (s *state) giveBack(h *held, n int64) (back int64) {
	for i := len(h.parts) - 1; i >= 0 && n > 0; i-- {
		p := &h.parts[i]
		off := min(p.permits, n)
		n, p.permits = n-off, p.permits-off
		if p.gone {
			continue
		}
		if s.limit.Algorithm == stint.AlgorithmSlidingWindowLog {
			back += s.shed(off)
			continue
		}
		s.entries = slices.Clone(s.entries)
		for j := range s.entries {
			if e := &s.entries[j]; e.start == p.start && e.end == p.end {
				off = min(off, e.permits)
				e.permits, back = e.permits-off, back+off
			}
		}
	}
	return back
}
