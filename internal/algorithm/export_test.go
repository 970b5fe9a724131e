package algorithm

import (
	"time"

	"github.com/stint-go/stint"
)

// Horizon is how far a schedule may reach, in microseconds.
const Horizon = horizon

// An Entry is what a log records of one instant.
type Entry struct {
	At      stint.Instant
	Permits int64
}

// Entries lists what the log still holds, oldest first.
func (l *Log) Entries() []Entry {
	var entries []Entry
	total := l.gone
	for _, r := range l.records {
		if r.total > total {
			entries = append(entries, Entry{r.at, r.total - total})
			total = r.total
		}
	}
	return entries
}

// Summary is the log in three numbers: the permits it holds, the time of the newest
// of them, 0 if there are none, and of the newest request.
func (l *Log) Summary() (held int64, newest, request stint.Instant) {
	if held = l.total() - l.gone; held > 0 {
		newest = l.records[len(l.records)-1].at
	}
	return held, newest, l.request
}

// Periods is how many periods x reaches into, as a schedule of that period finds it.
func Periods(x, period uint64) int64 {
	s := newSchedule(stint.TokenBucket(1, stint.Per(1, time.Duration(period)*time.Microsecond)))
	return s.periods(x)
}
