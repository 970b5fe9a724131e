package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint"
)

// zones are time zones with something to stumble over: none, an offset of an odd
// quarter of an hour, clocks changed by an hour, by half an hour, at midnight.
var zones = [...]string{
	"", "UTC", "Asia/Kathmandu", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana",
}

// awkwardRates don't divide evenly, or only in one direction.
var awkwardRates = [...]stint.Rate{
	{Permits: 7, Period: time.Minute},
	{Permits: 2, Period: 3 * time.Second},
	{Permits: 3, Period: time.Second},
	{Permits: 1000, Period: 24 * time.Hour},
	{Permits: 11, Period: 1_000_003 * time.Microsecond},
	{Permits: 13, Period: 7 * time.Millisecond},
	{Permits: 999_983, Period: 86_399_999_999 * time.Microsecond},
	{Permits: 6, Period: 4 * time.Second}, // reduces to 3/2s
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// near draws a number from 1 to bound, close to one of the two.
func near(rng *rand.Rand, bound int64) int64 {
	switch rng.IntN(4) {
	case 0:
		return bound
	case 1:
		return bound - rng.Int64N(min(bound, 3))
	case 2:
		return 1 + rng.Int64N(min(bound, 3))
	}
	return 1 + rng.Int64N(bound)
}

// randomLimit draws a valid limit of the algorithm: small and friendly, awkward,
// close to the bounds of what is accepted, or tiny.
func randomLimit(rng *rand.Rand, algorithm stint.Algorithm) stint.Limit {
	for {
		l := stint.Limit{Algorithm: algorithm}
		switch kind := rng.IntN(20); {
		case kind < 10:
			l.Capacity = 1 + rng.Int64N(12)
			l.Rate = stint.Per(1+rng.Int64N(10), pick(rng, 100*time.Millisecond, time.Second, time.Minute, time.Hour))
			l.Window = pick(rng, 100*time.Millisecond, time.Second, 10*time.Second, time.Minute, 24*time.Hour)
		case kind < 15:
			l.Capacity = pick[int64](rng, 1, 2, 3, 7, 97, 100, 1000)
			l.Rate = pick(rng, awkwardRates[:]...)
			l.Window = pick(rng, 7*time.Second, 1_000_003*time.Microsecond, 1009*time.Microsecond, 86_399_999_999*time.Microsecond)
		case kind < 18:
			l.Capacity = near(rng, stint.MaxPermits)
			l.Rate = stint.Per(near(rng, stint.MaxPermits), time.Duration(near(rng, stint.MaxPeriod.Microseconds()))*time.Microsecond)
			l.Window = stint.MaxPeriod - time.Duration(rng.IntN(3))*time.Microsecond
		default:
			l.Capacity = 1 + rng.Int64N(2)
			l.Rate = stint.Per(1, stint.MinPeriod+time.Duration(rng.IntN(2))*time.Microsecond)
			l.Window = stint.MinPeriod + time.Duration(rng.IntN(2))*time.Microsecond
		}
		if l.IsBucket() {
			l.Window = 0
		} else {
			l.Rate = stint.Rate{}
		}
		drawOptions(rng, &l)
		if l.Validate() == nil {
			return l
		}
	}
}

// drawOptions sets what is optional with the limit's algorithm.
func drawOptions(rng *rand.Rand, l *stint.Limit) {
	switch rng.IntN(8) {
	case 0:
		l.MaxDebt = stint.NoDebt
	case 1:
		l.MaxDebt = 1 + rng.Int64N(l.Capacity)
	case 2:
		l.MaxDebt = near(rng, stint.MaxPermits)
	}
	if l.Algorithm == stint.AlgorithmFixedWindow && rng.IntN(5) < 2 {
		l.Window = 0
		l.Calendar = stint.CalendarMinute + stint.Calendar(rng.IntN(6)) // #nosec G115 -- below 6
		l.TimeZone = pick(rng, zones[:]...)
	}
	if l.Algorithm == stint.AlgorithmSlidingWindowLog {
		l.CountDenied = rng.IntN(4) == 0
		if rng.IntN(3) == 0 {
			l.MinInterval = pick(rng, time.Microsecond, time.Second, l.Window/3, l.Window, stint.MaxPeriod,
				time.Duration(1+rng.Int64N(2*l.Window.Microseconds()))*time.Microsecond).Truncate(time.Microsecond)
		}
	}
}

// changedLimit draws what a limit may be changed to under the same name.
func changedLimit(rng *rand.Rand, old stint.Limit) stint.Limit {
	for {
		l := old
		switch rng.IntN(8) {
		case 0:
			l.Capacity = 1 + rng.Int64N(2*old.Capacity)
		case 1:
			l.Capacity = pick(rng, 1, 2*old.Capacity, old.Capacity/2, old.Capacity+1, old.Capacity-1)
		case 2: // the same rate in other words, where there is a rate
			l.Rate.Permits, l.Rate.Period = 2*old.Rate.Permits, 2*old.Rate.Period
		case 3:
			other := randomLimit(rng, old.Algorithm)
			l.Rate, l.Window, l.Calendar, l.TimeZone = other.Rate, other.Window, other.Calendar, other.TimeZone
		case 4:
			l.MaxDebt, l.MinInterval, l.CountDenied = 0, 0, false
			if l.Algorithm != stint.AlgorithmFixedWindow {
				drawOptions(rng, &l)
			}
		case 5: // a window of another length, or of another zone
			l.Window = l.Window / 2 * time.Duration(1+rng.IntN(4))
			if l.Calendar != stint.CalendarNone {
				l.TimeZone = pick(rng, zones[:]...)
			}
		default:
			l = randomLimit(rng, old.Algorithm).Named(old.Name)
		}
		if l.Validate() == nil {
			return l
		}
	}
}
