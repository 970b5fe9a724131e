package storetest

import (
	"fmt"
	"math/big"
	"time"

	"github.com/stint-go/stint"
)

// A bucketState is that of a token bucket or a leaky one. In both, permits are outstanding,
// which become fewer at a constant rate. None is left at the instant due: then a token
// bucket is full again, and a leaky bucket's queue has drained.
//
// Times in it are exact, counted in ticks: with the rate reduced to R permits per
// P microseconds a microsecond is R ticks, and a permit is worth P ticks.
type bucketState struct {
	leaky    bool
	capacity int64
	debt     int64
	permits  int64         // R
	period   int64         // P
	due      *big.Int      // in ticks
	last     stint.Instant // of the last change
}

func newBucketState(limit *stint.Limit) bucketState {
	permits, period := limit.Rate.Permits, limit.Rate.Period.Microseconds()
	divisor := new(big.Int).GCD(nil, nil, big.NewInt(permits), big.NewInt(period)).Int64()
	return bucketState{
		leaky:    limit.Algorithm == stint.AlgorithmLeakyBucket,
		capacity: limit.Capacity, debt: limit.Debt(),
		permits: permits / divisor, period: period / divisor,
		due: new(big.Int),
	}
}

// product is a x b exactly.
func product(a, b int64) *big.Int {
	x := big.NewInt(a)
	return x.Mul(x, big.NewInt(b))
}

// ceiling is a / b rounded up, for b > 0.
func ceiling(a *big.Int, b int64) int64 {
	divisor := big.NewInt(b)
	sum := new(big.Int).Add(a, big.NewInt(b-1))
	return sum.Div(sum, divisor).Int64() // Div rounds down for a positive divisor
}

// ticks is an instant in ticks.
func (b bucketState) ticks(at stint.Instant) *big.Int { return product(int64(at), b.permits) }

// outstanding is how many permits are outstanding at an instant, part of one counted as one.
func (b bucketState) outstanding(at stint.Instant) int64 {
	due := b.ticks(max(at, b.last))
	due.Sub(b.due, due)
	if due.Sign() <= 0 {
		return 0
	}
	return ceiling(due, b.period)
}

func (b bucketState) adopt(limit *stint.Limit, now stint.Instant) limitState {
	adopted := newBucketState(limit)
	adopted.last = b.last
	now = max(now, b.last)
	if adopted.capacity == b.capacity && adopted.permits == b.permits && adopted.period == b.period {
		adopted.due = b.due
		return adopted
	}
	outstanding := b.outstanding(now)
	if outstanding == 0 {
		return adopted
	}
	if !b.leaky {
		// What is held are the whole permits, at most the new capacity.
		held := min(b.capacity-outstanding, adopted.capacity)
		outstanding = adopted.capacity - held
	}
	if outstanding == 0 {
		return adopted
	}
	due := product(outstanding, adopted.period)
	if most := adopted.ticks(micros(stint.MaxDrain)); due.Cmp(most) > 0 {
		due = most
	}
	adopted.due = due.Add(due, adopted.ticks(now))
	return adopted
}

func (b bucketState) time() stint.Instant { return b.last }

func (b bucketState) available(at stint.Instant) int64 { return b.capacity - b.outstanding(at) }

func (b bucketState) guess(n int64) stint.Instant {
	due := product(b.capacity-n, b.period)
	due.Sub(b.due, due)
	return stint.Instant(ceiling(due, b.permits))
}

func (b bucketState) readyAt() stint.Instant { return 0 }

func (b bucketState) delay(now stint.Instant) time.Duration {
	if !b.leaky {
		return 0
	}
	return wait(now, max(b.last, b.untouchedAt()))
}

func (b bucketState) untouchedAt() stint.Instant { return stint.Instant(ceiling(b.due, b.permits)) }

func (b bucketState) take(n int64, now stint.Instant) limitState { return b.add(n, max(now, b.last)) }

// add adds n permits to what is outstanding at t, or takes off -n.
func (b bucketState) add(n int64, t stint.Instant) bucketState {
	start := b.ticks(t)
	due := new(big.Int).Set(b.due)
	if due.Cmp(start) < 0 {
		due.Set(start)
	}
	due.Add(due, product(n, b.period))
	if due.Cmp(start) < 0 {
		due.Set(start)
	}
	b.due, b.last = due, t
	return b
}

func (b bucketState) settle(n int64, now stint.Instant) (limitState, int64) {
	t := max(now, b.last)
	outstanding := b.outstanding(t)
	if n > 0 {
		n = min(n, max(0, b.capacity+b.debt-outstanding))
	} else {
		n = max(n, -outstanding)
	}
	return b.add(n, t), n
}

func (b bucketState) String() string {
	exact := new(big.Rat).SetFrac(b.due, big.NewInt(b.permits))
	whole := stint.Instant(new(big.Int).Div(b.due, big.NewInt(b.permits)).Int64())
	return fmt.Sprintf("{capacity %d, %d per %dus, due at %s (%sus), last %s}",
		b.capacity, b.permits, b.period, whole, exact.RatString(), b.last)
}
