package chaos_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// An admission is permits that the store admitted a client.
type admission struct {
	at      stint.Instant
	permits int64
}

// A ledger holds what the store admitted a client to the policy's limits, exactly and
// over every span of time. It knows of no admission whose answer was lost, so it finds
// no fault where there is none. It keeps what has come since it was last checked, and
// of what came earlier only what may still count.
type ledger struct {
	pages    []page
	admitted []admission // since the last check, in any order
}

func newLedger(policy *stint.Policy) *ledger {
	l := &ledger{}
	for i := range policy.Len() {
		l.pages = append(l.pages, page{limit: policy.Limit(i)})
	}
	return l
}

func (l *ledger) admit(a admission) { l.admitted = append(l.admitted, a) }

// check goes through what was admitted by the store's time. No admission that comes
// later may be older than those.
func (l *ledger) check() error {
	slices.SortFunc(l.admitted, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	var faults []error
	for _, a := range l.admitted {
		for i := range l.pages {
			faults = append(faults, l.pages[i].admit(a))
		}
	}
	l.admitted = nil
	return errors.Join(faults...)
}

// A page is a limit and what of the admissions still counts for it.
type page struct {
	limit  stint.Limit
	free   stint.Instant // when a bucket's permits have all come back
	recent []admission   // what a window counts, by time
}

func (p *page) admit(a admission) error {
	var used int64
	switch window := stint.Instant(p.limit.Window.Microseconds()); p.limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		each := stint.Instant(p.limit.Rate.Period.Microseconds() / p.limit.Rate.Permits)
		p.free = max(p.free, a.at) + stint.Instant(a.permits)*each
		used = int64((p.free - a.at + each - 1) / each)
	case stint.AlgorithmFixedWindow:
		used = p.since(a, a.at-a.at%window)
	case stint.AlgorithmSlidingWindowLog:
		used = p.since(a, a.at-window+1)
	default: // of a sliding window counter
		start := a.at - a.at%window
		both := p.since(a, start-window)
		var current int64
		for _, r := range p.recent {
			if r.at >= start {
				current += r.permits
			}
		}
		left := int64(window - (a.at - start))
		used = current + ((both-current)*left+int64(window)-1)/int64(window)
	}
	if used > p.limit.Capacity {
		return fmt.Errorf("%v admitted %d permits at %v and then held %d, want %d at most",
			p.limit.Algorithm, a.permits, a.at.Time().Format(time.StampMicro), used, p.limit.Capacity)
	}
	return nil
}

// since counts what was admitted from a time on, with one more, and forgets the rest.
func (p *page) since(a admission, from stint.Instant) (sum int64) {
	p.recent = append(slices.DeleteFunc(p.recent, func(r admission) bool { return r.at < from }), a)
	for _, r := range p.recent {
		sum += r.permits
	}
	return sum
}

// What a limit just admits passes, and one permit more is found.
func TestLedger(t *testing.T) {
	const window = time.Second
	limits := []stint.Limit{
		stint.TokenBucket(10, stint.PerSecond(10)),
		stint.LeakyBucket(10, stint.PerSecond(10)),
		stint.FixedWindow(10, window),
		stint.SlidingWindowLog(10, window),
		stint.SlidingWindowCounter(10, window),
	}
	// Half a window after ten permits buckets have five again, windows none.
	again := []int64{5, 5, 0, 0, 0}
	// Half of the next window has passed: the counter still has half of the ten.
	next := []int64{10, 10, 10, 10, 5}
	for i, limit := range limits {
		policy := must.Get(stint.NewPolicy("", limit))(t)
		for _, more := range []struct {
			at      time.Duration
			permits int64
		}{{window / 2, again[i]}, {window * 3 / 2, next[i]}} {
			for _, extra := range []int64{0, 1} {
				start := stint.Instant(1_790_000_000_000_000)
				l := newLedger(policy)
				if more.permits+extra > 0 {
					l.admit(admission{start.Add(more.at), more.permits + extra})
				}
				l.admit(admission{start, 4})
				l.admit(admission{start, 6})
				if err := l.check(); (err != nil) != (extra > 0) {
					t.Errorf("%v: %d permits after %v: %v", limit.Algorithm, more.permits+extra, more.at, err)
				}
			}
		}
	}
}
