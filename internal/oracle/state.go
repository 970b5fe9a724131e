package oracle

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A state is what is recorded of one limit under one key, as the limit that wrote it last left it. Big integers
// and lists of entries are never changed in place; holds are, of a copy.
//
// What is available at an instant, with C for the capacity, P for the microseconds of the rate in lowest
// terms and W for the window:
//
//	token bucket    C - ceil(max(min(held, C + max_debt) x P, due - at) / P)   in ticks, see bucket.go
//	leaky bucket    C - ceil(max(0, due - at) / P)
//	fixed window    C - permits of the entry, before its end
//	counter         C - current - ceil(previous x (W - elapsed) / W)
//	log             C - sum of permits of entries younger than W
//	concurrency     C - held
//
// held is the sum of permits - paid over the holds. What is charged of other kinds for a hold is in
// their entries, so that held does not count there.
type state struct {
	limit   stint.Limit // that wrote it
	windows *calendarWindows

	due *big.Int      // of buckets: when nothing is outstanding any more, in ticks
	at  stint.Instant // of buckets: the last change; of windows without entries: the newest window, if it is known

	entries []entry       // of windows, counters and logs, the oldest first
	last    stint.Instant // of logs: the newest request; 0: none
	mixed   bool          // of logs: the limit has the shorter lengths of the one that wrote it and the one that reads it

	holds []*held
	over  []string // ids that have expired since the state was written

	written int // the operation that wrote it, see clockHistory
	own     worth
	all     worth // the same for other versions of the limit: later, of token buckets
}

// A worth is how long a state is worth anything to those who read it.
type worth struct {
	until    stint.Instant // from then on it equals an untouched one
	dropFrom stint.Instant // from then on a store may have dropped it
}

// An entry is permits that were taken at an instant, or in a window, which starts then. A hold's part is one, too.
type entry struct {
	start, end stint.Instant // end: of windows and counters
	permits    int64
	gone       bool // of a part: nothing of it comes back any more
}

// A held is what one id holds of one limit.
type held struct {
	id      string
	permits int64
	paid    int64 // of these, what an expiry has charged for good (Hold.OnExpiry) before the id was reserved again
	expires stint.Instant
	keep    bool    // on expiry
	number  bool    // of a fixed cost
	parts   []entry // the oldest first
}

// untouched is a state of which nothing was recorded, or which was reset.
func (o *Oracle) untouched(limit stint.Limit) *state {
	return &state{limit: limit, windows: o.windows, due: new(big.Int)}
}

// clone copies what is changed in place.
func (s *state) clone() *state {
	c := *s
	c.holds = make([]*held, len(s.holds))
	for i, h := range s.holds {
		g := *h
		g.parts = slices.Clone(h.parts)
		c.holds[i] = &g
	}
	return &c
}

// newest is the newest time that the state records, before which it never counts: the last change of a bucket, the
// start of the newest window, the newest entry of a log. 0 is none.
func (s *state) newest() stint.Instant {
	newest := max(s.at, s.last)
	if n := len(s.entries); n > 0 {
		newest = max(newest, s.entries[n-1].start)
	}
	return newest
}

// read is a copy of the state as a limit reads it at an instant. It is the one place that says what becomes of a
// changed limit. The state counts as the better of two:
//
//	carried  the limit that wrote it carries it on, expiries included, and the one that reads it takes it over now
//	run      the one that reads it has taken it over at its last change, and has carried it on since
//
// A counter of another length begins its run at the end of the window of the last change. A log is read by the shorter
// lengths of the two, and a fixed window goes on to its own end, so that these have one run alone.
func (s *state) read(limit stint.Limit, now stint.Instant) *state {
	now = max(now, s.newest())
	carried := s.clone()
	carried.expire(now)
	last := carried.clone()
	carried.bring(now)
	carried.takeOver(limit, now)
	if run := last.run(limit, now, s, carried); run != nil && run.available(now) >= carried.available(now) {
		return run
	}
	return carried
}

// changedFor says that another version of the limit wrote the state: debt alone changes how far what is held stands.
func (s *state) changedFor(limit stint.Limit) bool {
	debt, before := bounds.Debt(limit.MaxDebt, limit.Capacity), bounds.Debt(s.limit.MaxDebt, s.limit.Capacity)
	return changed(s.limit, limit) || before != debt && len(s.holds) > 0 &&
		s.limit.Algorithm == stint.AlgorithmTokenBucket
}

// run is the second of the two, of a state at its last change, which may have been an expiry; nil: there is none.
// carried is the first.
func (s *state) run(limit stint.Limit, now stint.Instant, written, carried *state) *state {
	switch {
	case !s.changedFor(limit):
	case s.limit.IsBucket():
		run := s.clone()
		run.takeOver(limit, s.at)
		run.bring(now)
		return run
	case limit.Algorithm == stint.AlgorithmSlidingWindowCounter && limit.Window != s.limit.Window:
		if len(written.entries) == 0 || written.entries[len(written.entries)-1].end > now {
			return nil
		}
		newest, run := written.entries[len(written.entries)-1], *carried
		run.entries = nil
		if newest.permits > 0 {
			run.enter(newest.permits, newest.end)
		}
		run.bring(now)
		return &run
	}
	return nil
}

// bring brings the state to an instant by the limit that wrote it. No hold expires until then.
func (s *state) bring(now stint.Instant) {
	if s.limit.IsBucket() {
		s.bringBucket(now)
	} else {
		s.bringEntries(now)
	}
}

// takeOver lets another limit read a state that has been brought to now.
func (s *state) takeOver(limit stint.Limit, now stint.Instant) {
	old := *s
	s.limit = limit
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		s.takeOverBucket(&old, now)
	case stint.AlgorithmSlidingWindowCounter:
		if used := old.counted(now); old.limit.Window != limit.Window {
			// What the old one estimates is counted in the new one's window. Nothing comes back of it.
			s.entries = nil
			s.lose(func(entry) bool { return true })
			if used > 0 {
				s.enter(used, now)
			}
		}
	case stint.AlgorithmSlidingWindowLog:
		s.mixed = old.limit.Window != limit.Window || old.limit.MinInterval != limit.MinInterval
		s.limit.Window = min(s.limit.Window, old.limit.Window)
		s.limit.MinInterval = min(s.limit.MinInterval, old.limit.MinInterval)
		if (s.mixed || len(s.entries) == 0) && s.readyAt() <= now {
			s.last = 0
		}
		s.bringEntries(now)
	default: // A fixed window under way goes on to its own end. Places are as many as are held.
	}
}

// available is how many permits could be taken at an instant, if nothing else happens until then; less than 0 in debt.
func (s *state) available(at stint.Instant) int64 {
	at = max(at, s.newest())
	switch {
	case s.limit.Algorithm == stint.AlgorithmConcurrency:
		_, permits := s.live()
		return s.limit.Capacity - permits
	case s.limit.IsBucket():
		return s.limit.Capacity - s.outstanding(at)
	}
	return s.limit.Capacity - s.counted(at)
}

// admits tells whether n permits are admitted at an instant, beside those that are kept for others.
func (s *state) admits(n, keep int64, at stint.Instant) bool {
	return s.available(at)-keep >= n && max(at, s.newest()) >= s.readyAt()
}

// remaining is how many permits are left at an instant above those that are kept.
func (s *state) remaining(keep int64, at stint.Instant) int64 { return max(0, s.available(at)-keep) }

// untouchedAt is the first instant from which on the state equals an untouched one, if nothing is held.
func (s *state) untouchedAt() stint.Instant {
	if s.limit.IsBucket() {
		return s.dueAt()
	}
	at := s.readyAt()
	for _, e := range s.entries {
		if e.permits > 0 {
			at = max(at, s.leaves(e))
		}
	}
	return at
}

// isUntouched tells whether the state equals an untouched one at an instant.
func (s *state) isUntouched(at stint.Instant) bool { return s.untouchedAt() <= max(at, s.newest()) }

// charge takes n permits at an instant; admitted says that it is a request, and not a debt. It returns
// a hold's part of it, which is empty for buckets and places: their permits are of no window.
func (s *state) charge(n int64, at stint.Instant, admitted bool) (part entry) {
	switch {
	case s.limit.IsBucket():
		s.add(n, at)
		return entry{}
	case s.limit.Algorithm == stint.AlgorithmConcurrency:
		return entry{}
	}
	if admitted && s.limit.Algorithm == stint.AlgorithmSlidingWindowLog {
		s.last = at
	}
	return s.enter(n, at)
}

// settleBound is the largest amount that a charge or a refund counts with: what exceeds it has the same effect.
const settleBound = 2 * bounds.MaxPermits

// debit charges what is not asked whether it is admitted, down to the limit's debt, and tells how much.
func (s *state) debit(n int64, at stint.Instant) (applied int64) {
	applied = max(0, min(n, settleBound, s.available(at)+bounds.Debt(s.limit.MaxDebt, s.limit.Capacity)))
	if applied > 0 {
		s.charge(applied, at, false)
	}
	return applied
}

// refund gives back as much as is recorded, and tells how much.
func (s *state) refund(n int64, at stint.Instant) (applied int64) {
	n = min(n, settleBound)
	switch {
	case s.limit.IsBucket():
		return s.drain(n, at)
	case s.limit.Algorithm == stint.AlgorithmConcurrency:
		return 0
	}
	return s.shed(n)
}

// hold is what an id holds; nil: nothing.
func (s *state) hold(id string) *held {
	for _, h := range s.holds {
		if h.id == id {
			return h
		}
	}
	return nil
}

// drop removes a hold, and moves no permits.
func (s *state) drop(id string) {
	s.holds = slices.DeleteFunc(s.holds, func(h *held) bool { return h.id == id })
}

// live is how many holds there are that hold more than what an expiry has charged, and how many permits they hold
// together.
func (s *state) live() (holds int, permits int64) {
	for _, h := range s.holds {
		if h.permits > h.paid {
			holds, permits = holds+1, permits+h.permits-h.paid
		}
	}
	return holds, permits
}

// next is the hold that expires first.
func (s *state) next() (first *held) { return s.nextAfter(math.MinInt64) }

// nextAfter is the one that does after an instant.
func (s *state) nextAfter(at stint.Instant) (first *held) {
	for _, h := range s.holds {
		if h.expires > at && (first == nil || h.expires < first.expires) {
			first = h
		}
	}
	return first
}

// expire lets expire what is due, each hold at its own instant, in the order of the instants. If nothing is due,
// the state is left as it was written. So it is if what expires holds nothing but what an earlier expiry has charged.
func (s *state) expire(now stint.Instant) {
	for h := s.next(); h != nil && h.expires <= now; h = s.next() {
		if h.permits == h.paid {
			s.drop(h.id)
			continue
		}
		s.bring(max(h.expires, s.newest()))
		s.over = append(slices.Clip(s.over), h.id)
		s.end(h, h.staysOnExpiry(), h.expires)
	}
}

// staysOnExpiry is how many permits an expiry keeps: all, by Hold.OnExpiry or of a fixed cost, or none.
func (h *held) staysOnExpiry() int64 {
	if h.keep || h.number {
		return h.permits
	}
	return 0
}

// end ends a hold of which some permits stay, at most what is held, and tells how many came back. Of a
// token bucket or a window that is min(held - stays, held - paid), less what no longer counts; of a
// leaky bucket it is 0, of concurrency all.
func (s *state) end(h *held, stays int64, at stint.Instant) (back int64) {
	at = max(at, s.newest())
	if s.limit.IsBucket() && h.permits > h.paid {
		s.bring(at)
	}
	s.drop(h.id)
	back = min(h.permits-stays, h.permits-h.paid) // what an expiry has charged is charged
	switch s.limit.Algorithm {
	case stint.AlgorithmConcurrency:
		return h.permits
	case stint.AlgorithmLeakyBucket: // whose turns were handed out
		return 0
	case stint.AlgorithmTokenBucket:
		if h.permits <= h.paid {
			return 0 // nothing was held any more
		}
		return s.drain(back, at)
	default:
		return s.giveBack(h, back)
	}
}

// String describes the state completely: states of one text answer alike.
func (s *state) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "{by %s:", DescribeLimit(s.limit))
	if s.limit.IsBucket() {
		permits, _ := rate(&s.limit)
		fmt.Fprintf(&b, " due at %sus", new(big.Rat).SetFrac(s.due, big.NewInt(permits)).RatString())
	}
	for _, e := range s.entries {
		fmt.Fprintf(&b, " %d at %s until %s,", e.permits, e.start, e.end)
	}
	fmt.Fprintf(&b, " last request %s, newest %s", s.last, s.at)
	for _, h := range s.holds {
		fmt.Fprintf(&b, ", %+v", *h)
	}
	return b.String() + "}"
}

// wait is the time from now until an instant.
func wait(now, until stint.Instant) time.Duration {
	switch {
	case until >= far:
		return stint.Never
	case until <= now:
		return 0
	}
	return time.Duration(until-now) * time.Microsecond
}

// micros is a duration in microseconds.
func micros(d time.Duration) stint.Instant { return stint.Instant(d.Microseconds()) }

// far stands for an instant that never comes. Sums of far and a wait do not overflow.
const far = stint.Instant(1) << 61
