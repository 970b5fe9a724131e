package holdcount

import (
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
)

// maxLiveHolds bounds the holds that are remembered as live. 100,000 take some 2 MB.
const maxLiveHolds = 100_000

// liveHolds remembers the holds that this process reserved, until this process ends them or their time is over. When it
// is full, further holds are not remembered. It is safe for concurrent use.
type liveHolds struct {
	desc    *prometheus.Desc
	expired prometheus.Counter
	began   time.Time
	seed    maphash.Seed

	mu sync.Mutex
	// by the hash of the ID: when its time is over, since began
	until map[uint64]time.Duration
}

// newLiveHolds counts holds from now on. Those that were reserved before, by a process that is
// gone, are not known here.
func newLiveHolds(expired prometheus.Counter) *liveHolds {
	return &liveHolds{
		desc: prometheus.NewDesc("rate_limiter_holds_live",
			"Holds that this process reserved, without those that it ended or whose time is over; at most 100,000.", nil, nil),
		expired: expired, began: time.Now(), seed: maphash.MakeSeed(), until: map[uint64]time.Duration{},
	}
}

// note updates a hold by what the store says of an operation. A hold's time is counted from the reply on, by this
// process's clock, so it is never over earlier than in the store.
func (l *liveHolds) note(op *stint.Op, d *stint.Decision, err error) {
	h, now := op.Hold(), time.Since(l.began)
	id := maphash.String(l.seed, h.ID)
	reserved := op.Verb == stint.VerbReserve && err == nil && d.Allowed && !d.Degraded
	ended := op.Verb != stint.VerbReserve && err == nil && !h.Late
	gone := h.Late || h.Lost || errors.Is(err, stint.ErrResolved) || errors.Is(err, stint.ErrUnknownReservation)
	l.mu.Lock()
	defer l.mu.Unlock()
	until, known := l.until[id]
	if known && (ended || gone || reserved && !h.Replayed) {
		delete(l.until, id)
		if known = false; until <= now && !ended {
			l.expired.Inc()
		}
	}
	if reserved && (known || !h.Replayed && len(l.until) < maxLiveHolds) {
		l.until[id] = now + time.Duration(h.ExpiresAt-d.At)*time.Microsecond
	}
}

// count drops the holds whose time is over, and returns how many are left.
func (l *liveHolds) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.began)
	for id, until := range l.until {
		if until <= now {
			delete(l.until, id)
			l.expired.Inc()
		}
	}
	return len(l.until)
}
