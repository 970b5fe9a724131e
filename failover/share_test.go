package failover_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/bounds"
)

func TestDivide(t *testing.T) {
	day := 24 * time.Hour
	log := stint.SlidingWindowLog(10, time.Minute).WithMinInterval(time.Second).CountingDenied().Named("n")
	third := log
	third.Capacity = 3
	for name, row := range map[string]struct {
		limit stint.Limit
		n     int64
		want  stint.Limit
	}{
		"one process":      {stint.TokenBucket(7, stint.PerSecond(3)).WithLease(2), 1, stint.TokenBucket(7, stint.PerSecond(3))},
		"a bucket":         {stint.TokenBucket(100, stint.PerSecond(10)), 4, stint.TokenBucket(25, stint.Per(10, 4*time.Second))},
		"a prime":          {stint.LeakyBucket(100, stint.PerMinute(7)), 3, stint.LeakyBucket(33, stint.Per(7, 3*time.Minute))},
		"at least one":     {stint.FixedWindow(3, time.Hour), 10, stint.FixedWindow(1, time.Hour)},
		"debt":             {stint.SlidingWindowCounter(10, time.Hour).WithMaxDebt(7), 2, stint.SlidingWindowCounter(5, time.Hour).WithMaxDebt(3)},
		"debt of none":     {stint.FixedWindow(10, time.Hour).WithMaxDebt(1), 2, stint.FixedWindow(5, time.Hour).WithMaxDebt(stint.NoDebt)},
		"no debt":          {stint.FixedWindow(10, time.Hour).WithMaxDebt(stint.NoDebt), 2, stint.FixedWindow(5, time.Hour).WithMaxDebt(stint.NoDebt)},
		"a log":            {log, 3, third},
		"a calendar":       {stint.CalendarWindow(9, stint.CalendarDay, "Europe/Berlin"), 2, stint.CalendarWindow(4, stint.CalendarDay, "Europe/Berlin")},
		"the longest":      {stint.TokenBucket(8, stint.Per(8, 366*day)), 4, stint.TokenBucket(2, stint.Per(1, 183*day))},
		"longer than that": {stint.TokenBucket(9, stint.Per(9, 366*day)), 2, stint.TokenBucket(4, stint.Per(1, 366*day*2/9))},
		"nearly so":        {stint.TokenBucket(7, stint.Per(7, 366*day)), 3, stint.TokenBucket(2, stint.Per(2, (366*day*6/7).Truncate(time.Microsecond)+time.Microsecond))},
		"too slow to say":  {stint.TokenBucket(1, stint.Per(1, 300*day)), 5, stint.TokenBucket(1, stint.Per(1, 366*day))},
	} {
		if got := failover.Divide(row.limit, row.n); got != row.want || got.Validate() != nil {
			t.Errorf("%s: %+v (%v), want %+v", name, got, got.Validate(), row.want)
		}
	}
}

// A share is valid, keeps what is not divided, and its rate is the n-th part: exactly,
// or less by under a millionth, or the slowest there is.
func TestDivideRandomly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := stint.Per(rapid.Int64Range(1, bounds.MaxPermits).Draw(t, "permits"),
			time.Duration(rapid.Int64Range(1000, bounds.MaxPeriod.Microseconds()).Draw(t, "period"))*time.Microsecond)
		limit := stint.TokenBucket(rapid.Int64Range(1, bounds.MaxPermits).Draw(t, "capacity"), rate)
		limit.MaxDebt = rapid.Int64Range(-1, 1000).Draw(t, "debt")
		if limit.Validate() != nil {
			return
		}
		n := rapid.Int64Range(1, 1_000_000).Draw(t, "n")
		got := failover.Divide(limit, n)
		if err := got.Validate(); err != nil {
			t.Fatalf("%+v: %v", got, err)
		}
		if most := max(1, limit.Capacity/n); got.Capacity > most || got.Capacity < most-1 {
			t.Fatalf("capacity %d, want %d", got.Capacity, most)
		}
		exact := big.NewRat(limit.Rate.Permits, 1)
		exact.Quo(exact, big.NewRat(limit.Rate.Period.Microseconds(), 1)).Quo(exact, big.NewRat(n, 1))
		is := big.NewRat(got.Rate.Permits, got.Rate.Period.Microseconds())
		slowest := big.NewRat(1, bounds.MaxPeriod.Microseconds())
		switch {
		case is.Cmp(exact) == 0:
		case exact.Cmp(slowest) < 0 && is.Cmp(slowest) == 0:
		case is.Cmp(exact) > 0:
			t.Fatalf("the rate is %s, more than %s", is, exact)
		default:
			if least := new(big.Rat).Mul(exact, big.NewRat(999_999, 1_000_000)); is.Cmp(least) < 0 {
				t.Fatalf("the rate is %s, less than %s by much", is, exact)
			}
		}
	})
}
