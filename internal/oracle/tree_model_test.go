package oracle_test

import (
	"fmt"
	"math/big"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A rateCheck checks on every interval [a, b] that what was admitted is at most C + R x (b - a) / P. What a hold
// took counts when it was reserved, as far as it cost that in the end; so it is counted once the hold has ended.
// After the charge of a debt D that is not asked, C + D is the bound on it, and C on what is admitted then, the
// debt included.
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
			bound += bounds.Debt(r.limit.MaxDebt, r.limit.Capacity)
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
