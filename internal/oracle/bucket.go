package oracle

import (
	"math/big"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// Of a token bucket or a leaky one, permits are outstanding, which become fewer at a constant rate. None is left
// at the instant due: then a token bucket is full again, and a leaky bucket's queue has drained; its next turn is
// then.
//
// What is held of a token bucket still stands in it: it refills only up to that.
//
// Times are exact, counted in ticks: of the rate in lowest terms, R permits per P microseconds, a microsecond is R
// ticks, and a permit is worth P ticks.

// rate is a limit's rate in lowest terms.
func rate(limit *stint.Limit) (permits, period int64) {
	permits, period = limit.Rate.Permits, limit.Rate.Period.Microseconds()
	divisor, rest := permits, period
	for rest != 0 {
		divisor, rest = rest, divisor%rest
	}
	return permits / divisor, period / divisor
}

// samePace says that two buckets drain alike.
func samePace(a, b *stint.Limit) bool {
	permits, period := rate(a)
	p, w := rate(b)
	return permits == p && period == w
}

// ticks is an instant in ticks, worth what permits are worth.
func (s *state) ticks(at stint.Instant) *big.Int {
	permits, _ := rate(&s.limit)
	return product(int64(at), permits)
}

// worth is n permits in ticks.
func (s *state) worth(n int64) *big.Int {
	_, period := rate(&s.limit)
	return product(n, period)
}

// dueAt is when nothing is outstanding any more.
func (s *state) dueAt() stint.Instant {
	permits, _ := rate(&s.limit)
	return stint.Instant(ceiling(s.due, permits))
}

// restedAt is when a token bucket would be full if it had been empty at its last change.
func (s *state) restedAt() stint.Instant {
	if s.limit.Algorithm != stint.AlgorithmTokenBucket {
		return 0
	}
	permits, _ := rate(&s.limit)
	return s.at + stint.Instant(ceiling(s.worth(s.limit.Capacity), permits))
}

// least is the part of the backlog that does not drain: what is held of a token bucket, in ticks.
func (s *state) least() *big.Int {
	if s.limit.Algorithm != stint.AlgorithmTokenBucket || len(s.holds) == 0 {
		return new(big.Int)
	}
	_, permits := s.live()
	return s.worth(min(permits, s.limit.Capacity+bounds.Debt(s.limit.MaxDebt, s.limit.Capacity)))
}

// backlog is what is outstanding at an instant, in ticks: max(min(held, C + max_debt) x P, due - at).
func (s *state) backlog(at stint.Instant) *big.Int {
	return larger(minus(s.due, s.ticks(at)), s.least())
}

// outstanding is how many permits are, part of one counted as one.
func (s *state) outstanding(at stint.Instant) int64 {
	_, period := rate(&s.limit)
	return ceiling(s.backlog(at), period)
}

// add makes n permits more outstanding.
func (s *state) add(n int64, at stint.Instant) {
	s.due = plus(plus(s.ticks(at), s.backlog(at)), s.worth(n))
	s.at = at
}

// drain takes off up to n permits, but not of what is held, and tells how many, part of one counted as one.
func (s *state) drain(n int64, at stint.Instant) int64 {
	_, period := rate(&s.limit)
	s.at = max(at, s.newest())
	backlog := s.backlog(s.at)
	spare := minus(backlog, s.least())
	n = min(n, ceiling(spare, period))
	s.due = plus(s.ticks(s.at), larger(minus(backlog, s.worth(n)), s.least()))
	return n
}

// turn is when a request that is admitted at an instant may go ahead.
func (s *state) turn(at stint.Instant) stint.Instant {
	if s.limit.Algorithm != stint.AlgorithmLeakyBucket {
		return 0
	}
	return max(at, s.newest(), s.dueAt())
}

// bringBucket brings a bucket to an instant. While permits are held the backlog may stand still, so
// due moves on with the time.
func (s *state) bringBucket(now stint.Instant) {
	if backlog := s.backlog(now); backlog.Sign() > 0 {
		s.due = plus(s.ticks(now), backlog)
	}
}

// takeOverBucket takes over what another limit has left: of a token bucket the whole permits that are there, at
// most its own capacity; of a leaky one the permits queued, rounded up. What another limit has full is full here once
// that limit could have filled it since the last change: else two limits in turn would each fill the other's.
func (s *state) takeOverBucket(old *state, now stint.Instant) {
	permits, period := rate(&s.limit)
	oldPermits, oldPeriod := rate(&old.limit)
	if permits == oldPermits && period == oldPeriod && s.limit.Capacity == old.limit.Capacity {
		return
	}
	outstanding := old.outstanding(now)
	if outstanding == 0 && old.restedAt() <= now { // it is due at the instant at which it was
		s.due = roundedUp(new(big.Int).Mul(s.due, big.NewInt(permits)), oldPermits)
		return
	}
	if s.limit.Algorithm == stint.AlgorithmTokenBucket {
		outstanding = s.limit.Capacity - min(old.limit.Capacity-outstanding, s.limit.Capacity)
	}
	if s.due = s.worth(outstanding); s.due.Cmp(s.ticks(micros(bounds.MaxDrain))) > 0 {
		s.due = s.ticks(micros(bounds.MaxDrain)) // no bucket takes longer to recover
	}
	s.due = plus(s.due, s.ticks(now))
}

// Exact arithmetic. Operands stay as they are.

func product(a, b int64) *big.Int {
	x := big.NewInt(a)
	return x.Mul(x, big.NewInt(b))
}

func plus(a, b *big.Int) *big.Int  { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }

func larger(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

// ceiling is a / b rounded up, for b > 0.
func ceiling(a *big.Int, b int64) int64 { return roundedUp(a, b).Int64() }

// roundedUp is a / b rounded up, for b > 0, of any size.
func roundedUp(a *big.Int, b int64) *big.Int {
	sum := plus(a, big.NewInt(b-1))
	return sum.Div(sum, big.NewInt(b)) // Div rounds down for a positive divisor
}
