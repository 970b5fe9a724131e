package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// A journal is a sliding window log: what was recorded when, oldest first.
type journal struct {
	limit   *stint.Limit
	entries []entry
	last    stint.Instant // of the newest request; 0: none
	seen    stint.Instant // the newest time known when the journal was read
}

// An entry is permits taken at one instant.
type entry struct {
	at      stint.Instant
	permits int64
}

// active are the entries that still count at t: those later than t - W.
func (j journal) active(t stint.Instant) []entry {
	for i, e := range j.entries {
		if e.at > t-micros(j.limit.Window) {
			return j.entries[i:]
		}
	}
	return nil
}

func (j journal) read(limit *stint.Limit, now stint.Instant) cell {
	t := max(now, j.time())
	reader := journal{limit: limit, seen: j.time()}
	active := j.active(t)
	if len(active) == 0 && j.readyAt() <= t {
		return reader
	}
	reader.entries, reader.last = active, j.last
	return reader
}

func (j journal) time() stint.Instant {
	newest := max(j.seen, j.last)
	if len(j.entries) > 0 {
		newest = max(newest, j.entries[len(j.entries)-1].at)
	}
	return newest
}

func (j journal) room(at stint.Instant) int64 {
	room := j.limit.Capacity
	for _, e := range j.active(max(at, j.time())) {
		room -= e.permits
	}
	return room
}

func (j journal) guess(n int64) stint.Instant {
	room := j.limit.Capacity
	for i := len(j.entries) - 1; i >= 0; i-- {
		room -= j.entries[i].permits
		if room < n {
			return j.entries[i].at + micros(j.limit.Window)
		}
	}
	return 0
}

func (j journal) readyAt() stint.Instant {
	if j.limit.MinInterval == 0 || j.last == 0 {
		return 0
	}
	return j.last + micros(j.limit.MinInterval)
}

func (j journal) delay(stint.Instant) time.Duration { return 0 }

func (j journal) untouchedAt() stint.Instant {
	at := j.readyAt()
	if len(j.entries) > 0 {
		at = max(at, j.entries[len(j.entries)-1].at+micros(j.limit.Window))
	}
	return at
}

// with returns a journal of the entries and the newest request, as it is stored.
func (j journal) with(entries []entry, last stint.Instant) journal {
	return journal{limit: j.limit, entries: entries, last: last}
}

// add returns the entries and one more.
func (j journal) add(n int64, t stint.Instant) []entry {
	entries := make([]entry, 0, len(j.entries)+1)
	return append(append(entries, j.entries...), entry{t, n})
}

func (j journal) take(n int64, now stint.Instant) cell {
	t := max(now, j.time())
	return j.with(j.add(n, t), t)
}

// record adds a denied request under count_denied: the newest permits stay, as
// many as the limit.
func (j journal) record(n int64, now stint.Instant) journal {
	t := max(now, j.time())
	entries := j.add(n, t)
	kept := int64(0)
	for i := len(entries) - 1; i >= 0; i-- {
		if kept+entries[i].permits >= j.limit.Capacity {
			entries[i].permits = j.limit.Capacity - kept
			return j.with(entries[i:], t)
		}
		kept += entries[i].permits
	}
	return j.with(entries, t)
}

func (j journal) settle(n int64, now stint.Instant) (cell, int64) {
	t := max(now, j.time())
	active := j.active(t)
	used := j.limit.Capacity - j.room(now)
	if n > 0 {
		n = min(n, max(0, j.limit.Capacity+j.limit.Debt()-used))
		return j.with(j.add(n, t), j.last), n
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
	return j.with(left, j.last), n
}

func (j journal) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{window %s, min_interval %s:", stint.FormatDuration(j.limit.Window), stint.FormatDuration(j.limit.MinInterval))
	for _, e := range j.entries {
		fmt.Fprintf(&b, " %d at %s,", e.permits, e.at)
	}
	fmt.Fprintf(&b, " last request %s}", j.last)
	return b.String()
}
