package algorithm

import (
	"sort"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A Log is the state of a sliding window log: what was admitted, oldest first. The
// zero value is untouched. Permits of one instant are one record, and each record
// carries the running total, so that every question is a binary search.
type Log struct {
	records []record
	// the total at or below which permits have left or were given back
	gone int64
	// the newest recorded request, 0 when there is none; charges are not requests
	request stint.Instant
	// set by adopt: the time below which a log as new does not run back
	floor stint.Instant
}

// record says that the running total reached total at the instant.
type record struct {
	at    stint.Instant
	total int64
}

// RecordBytes is what one record of a log takes in memory.
const RecordBytes = 16

// Records is how many records the log has room for, in use or not.
func (l *Log) Records() int { return cap(l.records) }

// Kept is the log as a store keeps it, without what adopt sets.
func (l *Log) Kept() Log {
	kept := *l
	kept.floor = 0
	return kept
}

// newest is the newest time that the log records.
func (l *Log) newest() stint.Instant {
	if last := len(l.records) - 1; last >= 0 && l.records[last].total > l.gone {
		return max(l.records[last].at, l.request, l.floor)
	}
	return max(l.request, l.floor)
}

// total is the running total of all that was ever recorded.
func (l *Log) total() int64 {
	if last := len(l.records) - 1; last >= 0 {
		return l.records[last].total
	}
	return l.gone
}

// until is the running total of what was recorded at or before t.
func (l *Log) until(t stint.Instant) int64 {
	i := sort.Search(len(l.records), func(i int) bool { return l.records[i].at > t })
	if i == 0 {
		return l.gone
	}
	return max(l.gone, l.records[i-1].total)
}

// reached is when the running total reached n; n is at most the total.
func (l *Log) reached(n int64) stint.Instant {
	i := sort.Search(len(l.records), func(i int) bool { return l.records[i].total >= n })
	return l.records[i].at
}

// append records n permits at t, which is not before the newest record.
func (l *Log) append(t stint.Instant, n int64) {
	total := l.total() + n
	if last := len(l.records) - 1; last >= 0 && l.records[last].at == t {
		l.records[last].total = total
		return
	}
	l.records = append(l.records, record{t, total})
}

// compact drops the records that have gone once they are half of all, so that the
// cost of each append stays constant.
func (l *Log) compact() {
	i := sort.Search(len(l.records), func(i int) bool { return l.records[i].total > l.gone })
	switch left := len(l.records) - i; {
	case left == 0 && cap(l.records) > 64:
		l.records = nil
	case i >= left && cap(l.records) > 4*left && cap(l.records) > 64:
		l.records = append(make([]record, 0, 2*left), l.records[i:]...)
	case i >= left:
		l.records = l.records[:copy(l.records, l.records[i:])]
	}
}

// Coarsen halves the records of a log for which there is no memory, and reports whether
// it takes less now. Of two neighbours the later one stands for both: permits leave late
// rather than early, so a limit is never exceeded.
func (l *Log) Coarsen() bool {
	i := sort.Search(len(l.records), func(i int) bool { return l.records[i].total > l.gone })
	live := l.records[i:]
	kept := make([]record, 0, (len(live)+1)/2)
	for i := range live {
		if i%2 == 1 || i == len(live)-1 {
			kept = append(kept, live[i])
		}
	}
	if cap(kept) >= cap(l.records) {
		return false
	}
	l.records = kept
	return true
}

// slidingWindowLog admits at most limit permits over every half-open span (t - window, t], exactly:
// an entry leaves at exactly its time plus the window. It is immutable and safe for concurrent use.
type slidingWindowLog struct {
	limit       int64
	debt        int64
	window      int64 // microseconds
	minInterval int64 // microseconds; 0 for none
	countDenied bool
}

// newSlidingWindowLog prepares a valid limit.
func newSlidingWindowLog(limit stint.Limit) *slidingWindowLog {
	return &slidingWindowLog{
		limit: limit.Capacity, debt: bounds.Debt(limit.MaxDebt, limit.Capacity), window: limit.Window.Microseconds(),
		minInterval: limit.MinInterval.Microseconds(), countDenied: limit.CountDenied,
	}
}

// apply carries out an action of n permits on the log, so that keep more find room.
func (w *slidingWindowLog) apply(action Action, log *Log, now stint.Instant, n, keep int64, out *stint.Outcome) {
	t := max(now, log.newest())
	gone := log.until(t - stint.Instant(w.window))
	active := log.total() - gone
	out.Limit = w.limit
	out.RetryAfter, out.Delay, out.Applied = 0, 0, 0
	out.Allowed = action == Settle || active+n <= w.limit-keep && n <= w.limit-keep && w.spaced(log, t)
	switch {
	case action == Settle:
		out.Applied = w.settle(log, t, gone, n)
		t = max(now, log.newest()) // earlier, when all that held back the time was refunded
	case action == Take && out.Allowed:
		w.write(log, gone)
		log.append(t, n)
		log.request = t
	case action == Deny && w.countDenied:
		w.write(log, gone)
		log.append(t, min(n, w.limit))
		log.request = t
		log.gone = max(log.gone, log.total()-w.limit)
	}
	gone = max(gone, log.until(t-stint.Instant(w.window)))
	active = log.total() - gone
	if action != Settle && (!out.Allowed || action == Deny) {
		out.RetryAfter = w.wait(log, now, t, gone, active, n, keep)
	}
	out.Remaining = max(0, w.limit-keep-active)
	out.ResetAfter = w.resetAfter(log, now, t, active)
}

// spaced reports whether a request at t keeps the least interval.
func (w *slidingWindowLog) spaced(log *Log, t stint.Instant) bool {
	return w.minInterval == 0 || log.request == 0 || int64(t-log.request) >= w.minInterval
}

// write readies the log for being written by this limit: what has left has left for good.
func (w *slidingWindowLog) write(log *Log, gone int64) {
	log.gone, log.floor = gone, 0
	log.compact()
}

// settle charges n permits at t, as far as limit and debt allow, or refunds -n, as far as so many
// are active: the oldest records go first, which are the ones that would leave the window next. It
// returns what was applied. gone is what has left the window before t.
func (w *slidingWindowLog) settle(log *Log, t stint.Instant, gone, n int64) int64 {
	active := log.total() - gone
	if n > 0 {
		n = clamp(n, w.limit+w.debt-active)
	} else {
		n = -clamp(-n, active)
	}
	if n == 0 {
		return 0
	}
	w.write(log, gone)
	if n > 0 {
		log.append(t, n)
		return n
	}
	log.gone += -n // the oldest go first
	log.compact()
	return n
}

// wait is how long after now n permits are admitted, and keep more are left.
func (w *slidingWindowLog) wait(log *Log, now, t stint.Instant, gone, active, n, keep int64) time.Duration {
	if n > w.limit-keep {
		return stint.Never
	}
	at := now
	if over := active + n + keep - w.limit; over > 0 {
		at = log.reached(gone+over) + stint.Instant(w.window)
	}
	if !w.spaced(log, t) {
		at = max(at, log.request+stint.Instant(w.minInterval))
	}
	return micros(int64(at - now))
}

// resetAfter is how long until the log is as if nothing had been taken: until the newest record
// leaves the window, and the interval since the last request is over.
func (w *slidingWindowLog) resetAfter(log *Log, now, t stint.Instant, active int64) time.Duration {
	at := now
	if active > 0 {
		at = log.records[len(log.records)-1].at + stint.Instant(w.window)
	}
	if !w.spaced(log, t) {
		at = max(at, log.request+stint.Instant(w.minInterval))
	}
	return micros(int64(at - now))
}

// leaves is how long until at most so many permits are counted.
func (w *slidingWindowLog) leaves(log *Log, now stint.Instant, most int64) time.Duration {
	t := max(now, log.newest())
	gone := log.until(t - stint.Instant(w.window))
	over := log.total() - gone - most
	if over <= 0 {
		return 0
	}
	return micros(int64(log.reached(gone+over) + stint.Instant(w.window) - now))
}

// adopt readies a log for a limit, or the reader of another version's: it keeps the entries, less those that
// have left; isChanged says that it is a reader, by which an interval that has ended does not begin again. It
// changes the log at hand and none of the records.
func (w *slidingWindowLog) adopt(log *Log, now stint.Instant, isChanged bool) {
	t := max(now, log.newest())
	log.gone = log.until(t - stint.Instant(w.window))
	if (isChanged || log.total() == log.gone) && w.spaced(log, t) {
		log.request, log.floor = 0, t // a new log, except its time
	}
}

// worthless returns when the log equals an untouched one, and the longest that a
// record matters, in microseconds.
func (w *slidingWindowLog) worthless(log *Log) (at stint.Instant, life int64) {
	at = log.request + stint.Instant(w.minInterval)
	if log.total() > log.gone {
		at = max(at, log.records[len(log.records)-1].at+stint.Instant(w.window))
	}
	return at, max(w.window, w.minInterval)
}
