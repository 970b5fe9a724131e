package storetest

import (
	"math/bits"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
)

// A chooser makes the random choices. 0 stands for the simplest choice, so that what is shrunk
// becomes simple. Everything random in this package is drawn by one, so that rapid can shrink it
// and a seed repeats it.
type chooser struct {
	next func() uint64
	// group makes choices that belong together, and can be left out together.
	group func(choose func(chooser))
}

// newChooser returns a chooser whose choices can't be shrunk.
func newChooser(next func() uint64) chooser {
	return chooser{next, func(choose func(chooser)) { choose(newChooser(next)) }}
}

// oneOrMore calls choose once, and again with a probability of again/of after each time.
func (c chooser) oneOrMore(again, of int, choose func(chooser)) {
	for more := true; more; {
		c.group(func(c chooser) {
			choose(c)
			more = c.intn(of) >= of-again
		})
	}
}

// int64n draws a number from 0 to n-1.
func (c chooser) int64n(n int64) int64 {
	high, _ := bits.Mul64(c.next(), uint64(n)) // #nosec G115 -- n is positive
	return int64(high)                         // #nosec G115 -- less than n
}

// intn is int64n for small numbers.
func (c chooser) intn(n int) int { return int(c.int64n(int64(n))) }

// oneIn is true once in n times.
func (c chooser) oneIn(n int) bool { return c.intn(n) == n-1 }

// upTo draws a time from 1 to bound.
func (c chooser) upTo(bound stint.Instant) stint.Instant {
	return 1 + stint.Instant(c.int64n(int64(max(bound, 1))))
}

// near draws a number from 1 to bound, close to one of the two.
func (c chooser) near(bound int64) int64 {
	return pick(c, 1+c.int64n(min(bound, 3)), bound, bound-c.int64n(min(bound, 3)), 1+c.int64n(bound))
}

// pick draws one of several values; the first is the simplest.
func pick[T any](c chooser, from ...T) T { return from[c.intn(len(from))] }

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

// limit draws a valid limit of the algorithm: small and friendly, awkward, close to
// the bounds of what is accepted, or tiny.
func (c chooser) limit(algorithm stint.Algorithm) stint.Limit {
	const us = time.Microsecond
	for {
		l := stint.Limit{Algorithm: algorithm}
		switch kind := c.intn(20); {
		case kind < 10:
			l.Capacity = 1 + c.int64n(12)
			l.Rate = stint.Per(1+c.int64n(10), pick(c, time.Second, 100*time.Millisecond, time.Minute, time.Hour))
			l.Window = pick(c, time.Second, 100*time.Millisecond, 10*time.Second, time.Minute, 24*time.Hour)
		case kind < 15:
			l.Capacity = pick[int64](c, 1, 2, 3, 7, 97, 100, 1000)
			l.Rate = pick(c, awkwardRates[:]...)
			l.Window = pick(c, 7*time.Second, 1_000_003*us, 1009*us, 86_399_999_999*us)
		case kind < 18:
			l.Capacity = c.near(bounds.MaxPermits)
			l.Rate = stint.Per(c.near(bounds.MaxPermits), time.Duration(c.near(bounds.MaxPeriod.Microseconds()))*us)
			l.Window = bounds.MaxPeriod - time.Duration(c.intn(3))*us
		default:
			l.Capacity = 1 + c.int64n(2)
			l.Rate = stint.Per(1, bounds.MinPeriod+time.Duration(c.intn(2))*us)
			l.Window = bounds.MinPeriod + time.Duration(c.intn(2))*us
		}
		switch algorithm {
		case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
			l.Window = 0
		case stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowLog, stint.AlgorithmSlidingWindowCounter:
			l.Rate = stint.Rate{}
		default:
			return unknown[stint.Limit]("random parameters", algorithm)
		}
		c.options(&l)
		if l.Validate() == nil {
			return l
		}
	}
}

// options sets what is optional with the limit's algorithm.
func (c chooser) options(l *stint.Limit) {
	switch c.intn(8) {
	case 5:
		l.MaxDebt = stint.NoDebt
	case 6:
		l.MaxDebt = 1 + c.int64n(l.Capacity)
	case 7:
		l.MaxDebt = c.near(bounds.MaxPermits)
	}
	if l.Algorithm == stint.AlgorithmFixedWindow {
		l.FirstRequest = c.oneIn(3)
		if l.Denials = l.FirstRequest && c.oneIn(2); l.Denials {
			l.MaxDebt = 0
		}
	}
	if l.Algorithm == stint.AlgorithmFixedWindow && !l.FirstRequest && c.intn(5) > 2 {
		l.Window = 0
		l.Calendar = stint.CalendarMinute + stint.Calendar(c.intn(6)) // #nosec G115 -- below 6
		l.TimeZone = pick(c, zones[:]...)
	}
	if l.Algorithm == stint.AlgorithmSlidingWindowLog {
		l.CountDenied = c.oneIn(4)
		if c.oneIn(3) {
			l.MinInterval = pick(c, time.Microsecond, time.Second, l.Window/3, l.Window, bounds.MaxPeriod,
				time.Duration(1+c.int64n(2*l.Window.Microseconds()))*time.Microsecond).Truncate(time.Microsecond)
		}
	}
}

// changed draws what a limit may be changed to under the same name.
func (c chooser) changed(old stint.Limit) stint.Limit {
	for {
		l := old
		switch c.intn(8) {
		case 0:
			l.Capacity = 1 + c.int64n(2*old.Capacity)
		case 1:
			l.Capacity = pick(c, 1, 2*old.Capacity, old.Capacity/2, old.Capacity+1, old.Capacity-1)
		case 2: // the same rate in other words, where there is a rate
			l.Rate.Permits, l.Rate.Period = 2*old.Rate.Permits, 2*old.Rate.Period
		case 3:
			other := c.limit(old.Algorithm)
			l.Rate, l.Window, l.Calendar, l.TimeZone = other.Rate, other.Window, other.Calendar, other.TimeZone
			l.FirstRequest, l.Denials = other.FirstRequest, other.Denials
		case 4:
			l.MaxDebt, l.MinInterval, l.CountDenied = 0, 0, false
			if l.Algorithm != stint.AlgorithmFixedWindow {
				c.options(&l)
			}
		case 5: // a window of another length, or of another zone
			l.Window = l.Window / 2 * time.Duration(1+c.intn(4))
			if l.Calendar != 0 {
				l.TimeZone = pick(c, zones[:]...)
			}
		default:
			l = c.limit(old.Algorithm).Named(old.Name)
		}
		if l.Validate() == nil {
			return l
		}
	}
}

// policies draws a policy, at times of several limits, and at times what it is changed to later.
func (c chooser) policies(first stint.Algorithm) []*stint.Policy {
	for {
		algorithm := first
		var limits []stint.Limit
		c.oneOrMore(1, 3, func(c chooser) {
			limits = append(limits, c.limit(algorithm).Named(pick(c, limitNames[:]...)))
			algorithm = pick(c, notation.Algorithms()...) // of the next
		})
		at := c.intn(len(limits))
		limits[0], limits[at] = limits[at], limits[0]
		policy, err := stint.NewPolicy(pick(c, policyNames[:]...), limits...)
		if err != nil { // two limits of one name and algorithm
			continue
		}
		policies := []*stint.Policy{policy}
		for range c.intn(3) / 2 * (1 + c.intn(2)) {
			changed := policy.Limits()
			for i := range changed {
				changed[i] = c.changed(changed[i])
			}
			if p, err := stint.NewPolicy(policy.Name(), changed...); err == nil {
				policies = append(policies, p)
			}
		}
		return policies
	}
}
