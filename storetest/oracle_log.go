package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// A logState is that of a sliding window log: what was recorded when, oldest first.
type logState struct {
	limit   *stint.Limit
	entries []entry
	last    stint.Instant // of the newest request; 0: none
	newest  stint.Instant // the newest time known when the state was adopted
}

// An entry is permits taken at one instant.
type entry struct {
	at      stint.Instant
	permits int64
}

// active are the entries that still count at t: those later than t - W.
func (l logState) active(t stint.Instant) []entry {
	for i, e := range l.entries {
		if e.at > t-micros(l.limit.Window) {
			return l.entries[i:]
		}
	}
	return nil
}

func (l logState) adopt(limit *stint.Limit, now stint.Instant) limitState {
	t := max(now, l.time())
	adopted := logState{limit: limit, newest: l.time()}
	active := l.active(t)
	if len(active) == 0 && l.readyAt() <= t {
		return adopted
	}
	adopted.entries, adopted.last = active, l.last
	return adopted
}

func (l logState) time() stint.Instant {
	newest := max(l.newest, l.last)
	if len(l.entries) > 0 {
		newest = max(newest, l.entries[len(l.entries)-1].at)
	}
	return newest
}

func (l logState) available(at stint.Instant) int64 {
	available := l.limit.Capacity
	for _, e := range l.active(max(at, l.time())) {
		available -= e.permits
	}
	return available
}

func (l logState) guess(n int64) stint.Instant {
	available := l.limit.Capacity
	for i := len(l.entries) - 1; i >= 0; i-- {
		available -= l.entries[i].permits
		if available < n {
			return l.entries[i].at + micros(l.limit.Window)
		}
	}
	return 0
}

func (l logState) readyAt() stint.Instant {
	if l.limit.MinInterval == 0 || l.last == 0 {
		return 0
	}
	return l.last + micros(l.limit.MinInterval)
}

func (l logState) delay(stint.Instant) time.Duration { return 0 }

func (l logState) untouchedAt() stint.Instant {
	at := l.readyAt()
	if len(l.entries) > 0 {
		at = max(at, l.entries[len(l.entries)-1].at+micros(l.limit.Window))
	}
	return at
}

// with returns a log of the entries and the newest request, as it is stored.
func (l logState) with(entries []entry, last stint.Instant) logState {
	return logState{limit: l.limit, entries: entries, last: last}
}

// add returns the entries and one more.
func (l logState) add(n int64, t stint.Instant) []entry {
	entries := make([]entry, 0, len(l.entries)+1)
	return append(append(entries, l.entries...), entry{t, n})
}

func (l logState) take(n int64, now stint.Instant) limitState {
	t := max(now, l.time())
	return l.with(l.add(n, t), t)
}

// record adds a denied request under count_denied: the newest permits stay, as
// many as the limit.
func (l logState) record(n int64, now stint.Instant) logState {
	t := max(now, l.time())
	entries := l.add(n, t)
	kept := int64(0)
	for i := len(entries) - 1; i >= 0; i-- {
		if kept+entries[i].permits >= l.limit.Capacity {
			entries[i].permits = l.limit.Capacity - kept
			return l.with(entries[i:], t)
		}
		kept += entries[i].permits
	}
	return l.with(entries, t)
}

func (l logState) settle(n int64, now stint.Instant) (limitState, int64) {
	t := max(now, l.time())
	active := l.active(t)
	used := l.limit.Capacity - l.available(now)
	if n > 0 {
		n = min(n, max(0, l.limit.Capacity+l.limit.Debt()-used))
		return l.with(l.add(n, t), l.last), n
	}
	n = max(n, -used)
	left := make([]entry, 0, len(active))
	refund := -n
	for _, e := range active {
		back := min(refund, e.permits)
		refund -= back
		if e.permits > back {
			left = append(left, entry{e.at, e.permits - back})
		}
	}
	return l.with(left, l.last), n
}

func (l logState) String() string {
	var b strings.Builder
	fmt.Fprintf(
		&b, "{window %s, min_interval %s:", stint.FormatDuration(l.limit.Window), stint.FormatDuration(l.limit.MinInterval),
	)
	for _, e := range l.entries {
		fmt.Fprintf(&b, " %d at %s,", e.permits, e.at)
	}
	fmt.Fprintf(&b, " last request %s}", l.last)
	return b.String()
}
