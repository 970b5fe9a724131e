package failover

import (
	"math/big"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A share is what one of n processes may admit by itself of a policy's limits. The
// names stay, so states do when n changes.
type share struct {
	n      int
	policy *stint.Policy
	least  int64 // the least capacity
}

// shareOf returns the share of one of n processes. The last one is kept.
func (p *plan) shareOf(n int) (*share, error) {
	if kept := p.share.Load(); kept != nil && kept.n == n {
		return kept, nil
	}
	s, err := newShare(p.policy, n)
	if err != nil {
		return nil, err
	}
	p.share.Store(s)
	return s, nil
}

// newShare divides each limit by the number of processes, of which each decides its part alone.
func newShare(policy *stint.Policy, n int) (*share, error) {
	s := &share{n: n, least: bounds.MaxPermits}
	limits := policy.Limits()
	for i, undivided := range limits {
		limits[i] = divide(undivided, int64(n))
		s.least = min(s.least, limits[i].Capacity)
	}
	var err error
	s.policy, err = stint.NewPolicy(policy.Name(), limits...)
	return s, err
}

// divide is the n-th part of a limit. Where that can't be said it is the nearest limit
// that admits no more, and at least one permit at a time, in the longest period.
func divide(limit stint.Limit, n int64) stint.Limit {
	limit.Lease = 0 // there is nothing to lease from
	if n == 1 {
		return limit
	}
	limit.Capacity = max(1, limit.Cost, limit.Capacity/n)
	if limit.MaxDebt > 0 {
		if limit.MaxDebt /= n; limit.MaxDebt == 0 {
			limit.MaxDebt = stint.NoDebt
		}
	}
	if !limit.IsBucket() {
		return limit
	}
	limit.Rate = divideRate(limit.Rate, n)
	// What was rounded may take too long to drain by a little.
	if limit.Validate() != nil {
		limit.MaxDebt = stint.NoDebt
	}
	for limit.Capacity > 1 && limit.Validate() != nil {
		limit.Capacity--
	}
	return limit
}

// divideRate is the n-th part of a rate.
func divideRate(rate stint.Rate, n int64) stint.Rate {
	longest := big.NewInt(bounds.MaxPeriod.Microseconds())
	permits, period := big.NewInt(rate.Permits), big.NewInt(rate.Period.Microseconds())
	if period.Mul(period, big.NewInt(n)).Cmp(longest) > 0 {
		exact := new(big.Rat).SetFrac(permits, period)
		permits, period = exact.Num(), exact.Denom()
	}
	if period.Cmp(longest) > 0 {
		// As many permits as the longest period has whole ones, in the time that they take.
		whole := new(big.Int).Mul(permits, longest)
		if whole.Quo(whole, period); whole.Sign() == 0 {
			return stint.Per(1, bounds.MaxPeriod)
		}
		takes := new(big.Int).Mul(whole, period)
		takes.Add(takes, permits).Sub(takes, big.NewInt(1))
		permits, period = whole, takes.Quo(takes, permits)
	}
	return stint.Per(permits.Int64(), time.Duration(period.Int64())*time.Microsecond)
}
