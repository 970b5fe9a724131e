package storetest

import (
	"fmt"
	"math/big"
	"time"

	"github.com/stint-go/stint"
)

// A bucket is a token bucket or a leaky one. Both owe permits that are paid off
// at a constant rate: a token bucket is full again, a leaky bucket's queue is
// drained, at the instant paid.
//
// Times in it are exact, counted in ticks: with the rate reduced to R permits per
// P microseconds a microsecond is R ticks, and a permit is worth P ticks.
type bucket struct {
	leaky    bool
	capacity int64
	debt     int64
	permits  int64         // R
	period   int64         // P
	paid     *big.Int      // in ticks
	last     stint.Instant // of the last change
}

func newBucket(limit *stint.Limit) bucket {
	permits, period := limit.Rate.Permits, limit.Rate.Period.Microseconds()
	divisor := new(big.Int).GCD(nil, nil, big.NewInt(permits), big.NewInt(period)).Int64()
	return bucket{
		leaky:    limit.Algorithm == stint.AlgorithmLeakyBucket,
		capacity: limit.Capacity, debt: limit.Debt(),
		permits: permits / divisor, period: period / divisor,
		paid: new(big.Int),
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
func (b bucket) ticks(at stint.Instant) *big.Int { return product(int64(at), b.permits) }

// owed is how many permits are owed at an instant, part of one counted as one.
func (b bucket) owed(at stint.Instant) int64 {
	due := b.ticks(max(at, b.last))
	due.Sub(b.paid, due)
	if due.Sign() <= 0 {
		return 0
	}
	return ceiling(due, b.period)
}

func (b bucket) read(limit *stint.Limit, now stint.Instant) cell {
	reader := newBucket(limit)
	reader.last = b.last
	now = max(now, b.last)
	if reader.capacity == b.capacity && reader.permits == b.permits && reader.period == b.period {
		reader.paid = b.paid
		return reader
	}
	owed := b.owed(now)
	if owed == 0 {
		return reader
	}
	if !b.leaky {
		// What is held are the whole permits, at most the new capacity.
		held := min(b.capacity-owed, reader.capacity)
		owed = reader.capacity - held
	}
	if owed == 0 {
		return reader
	}
	due := product(owed, reader.period)
	if most := reader.ticks(micros(stint.MaxDrain)); due.Cmp(most) > 0 {
		due = most
	}
	reader.paid = due.Add(due, reader.ticks(now))
	return reader
}

func (b bucket) time() stint.Instant { return b.last }

func (b bucket) room(at stint.Instant) int64 { return b.capacity - b.owed(at) }

func (b bucket) guess(n int64) stint.Instant {
	due := product(b.capacity-n, b.period)
	due.Sub(b.paid, due)
	return stint.Instant(ceiling(due, b.permits))
}

func (b bucket) readyAt() stint.Instant { return 0 }

func (b bucket) delay(now stint.Instant) time.Duration {
	if !b.leaky {
		return 0
	}
	return wait(now, max(b.last, b.untouchedAt()))
}

func (b bucket) untouchedAt() stint.Instant { return stint.Instant(ceiling(b.paid, b.permits)) }

func (b bucket) take(n int64, now stint.Instant) cell { return b.owe(n, max(now, b.last)) }

// owe adds n permits to what is owed at t, or takes off -n.
func (b bucket) owe(n int64, t stint.Instant) bucket {
	start := b.ticks(t)
	paid := new(big.Int).Set(b.paid)
	if paid.Cmp(start) < 0 {
		paid.Set(start)
	}
	paid.Add(paid, product(n, b.period))
	if paid.Cmp(start) < 0 {
		paid.Set(start)
	}
	b.paid, b.last = paid, t
	return b
}

func (b bucket) settle(n int64, now stint.Instant) (cell, int64) {
	t := max(now, b.last)
	owed := b.owed(t)
	if n > 0 {
		n = min(n, max(0, b.capacity+b.debt-owed))
	} else {
		n = max(n, -owed)
	}
	return b.owe(n, t), n
}

func (b bucket) String() string {
	exact := new(big.Rat).SetFrac(b.paid, big.NewInt(b.permits))
	whole := stint.Instant(new(big.Int).Div(b.paid, big.NewInt(b.permits)).Int64())
	return fmt.Sprintf("{capacity %d, %d per %dus, paid off at %s (%sus), last %s}",
		b.capacity, b.permits, b.period, whole, exact.RatString(), b.last)
}
