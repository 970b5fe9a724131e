package oracle_test

import (
	"fmt"
	"math/big"

	"github.com/stint-go/stint"
)

// A bucket is a token bucket by RESERVATIONS.md, counted in permits: used(now) = max(min(held, C + max_debt), used - what
// has refilled since).
type bucket struct {
	limit stint.Limit
	used  *big.Rat // at last
	last  int64    // its last change
	held  int64
}

func (b *bucket) reset() { b.used, b.last, b.held = rat(0), 0, 0 }

func (b *bucket) refilled(micros int64) *big.Rat {
	r := big.NewRat(b.limit.Rate.Permits, b.limit.Rate.Period.Microseconds())
	return r.Mul(r, rat(micros))
}

// least is what can't refill.
func (b *bucket) least() *big.Rat { return rat(min(b.held, b.limit.Capacity+b.limit.Debt())) }

func (b *bucket) usedAt(now int64) *big.Rat {
	used := new(big.Rat).Sub(b.used, b.refilled(max(0, now-b.last)))
	return greater(used, b.least())
}

// level is what the bucket holds; below 0 in debt.
func (b *bucket) level(now int64) *big.Rat {
	return new(big.Rat).Sub(rat(b.limit.Capacity), b.usedAt(now))
}

func (b *bucket) admits(n, keep, now int64) bool { return b.level(now).Cmp(rat(n+keep)) >= 0 }

// bring brings the bucket to a change.
func (b *bucket) bring(now int64) { b.used, b.last = b.usedAt(now), max(now, b.last) }

func (b *bucket) take(n, now int64) {
	b.bring(now)
	b.used.Add(b.used, rat(n))
}

func (b *bucket) reserve(n, now int64) {
	b.take(n, now)
	b.held += n
}

// debit is a charge that is not asked; it is clipped at max_debt.
func (b *bucket) debit(n, now int64) (applied int64) {
	level := b.level(now)
	applied = max(0, min(n, floor(level.Add(level, rat(b.limit.Debt())))))
	if applied > 0 {
		b.take(applied, now)
	}
	return applied
}

// end ends a hold of n permits, of which some stay.
func (b *bucket) end(n, stays, now int64) {
	b.bring(now)
	b.held -= n
	b.used.Sub(b.used, rat(n-stays))
	b.used = greater(b.used, b.least())
}

// A rateCheck checks on every interval [a, b] that what was admitted is at most C + R x (b - a) / P. What a hold took counts
// when it was reserved, as far as it cost that in the end; so it is counted once the hold has ended. After the charge of a
// debt D that is not asked, C + D is the bound on it, and C on what is admitted then, the debt included.
type rateCheck struct {
	limit  stint.Limit
	events []*event
	full   *big.Rat // when the bucket is full again that only takes, in microseconds
	fault  string
}

// An event is what was taken at an instant.
type event struct {
	at, n  int64
	open   bool // its hold has not ended
	forced bool // it was not asked
}

func newRateCheck(limit stint.Limit) *rateCheck { return &rateCheck{limit: limit, full: rat(0)} }

func (r *rateCheck) reset() { r.events, r.full = nil, rat(0) }

func (r *rateCheck) add(at, n int64, open, forced bool) *event {
	e := &event{at, n, open, forced}
	r.events = append(r.events, e)
	r.count()
	return e
}

// count counts what is known: up to the first that a hold has not ended of.
func (r *rateCheck) count() {
	for len(r.events) > 0 && !r.events[0].open && r.fault == "" {
		e := r.events[0]
		r.events = r.events[1:]
		if e.n == 0 {
			continue
		}
		permit := big.NewRat(r.limit.Rate.Period.Microseconds(), r.limit.Rate.Permits)
		r.full = greater(r.full, rat(e.at))
		r.full.Add(r.full, new(big.Rat).Mul(rat(e.n), permit))
		bound := r.limit.Capacity
		if e.forced {
			bound += r.limit.Debt()
		}
		most := new(big.Rat).Mul(rat(bound), permit)
		if most.Add(most, rat(e.at)).Cmp(r.full) < 0 {
			r.fault = fmt.Sprintf("%d permits at %.6f are beyond the rate", e.n, float64(e.at-int64(dawn))/1e6)
		}
	}
}

// keep says how many of a hold's permits stay, the oldest first; or, of 0 to come, that all do.
func (r *rateCheck) keep(parts []*event, stays int64) {
	for _, e := range parts {
		e.n = min(e.n, stays)
		stays -= e.n
		e.open = false
	}
	r.count()
}
