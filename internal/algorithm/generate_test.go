package algorithm_test

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
)

// A generator draws limits and steps, with a liking for the places where
// transitions go wrong.
type generator struct {
	*rand.Rand
	algorithm stint.Algorithm
	admits    bool // whether three steps in four are to admit
}

// limits draws the limits of a run: one, and a few that others changed it to.
func (g generator) limits() []stint.Limit {
	limits := []stint.Limit{g.limit()}
	for range g.IntN(3) {
		other := g.limit()
		if g.IntN(3) > 0 {
			other = g.variant(limits[0])
		}
		limits = append(limits, other)
	}
	return limits
}

// limit draws a limit that Validate accepts.
func (g generator) limit() stint.Limit {
	for {
		l := stint.Limit{Algorithm: g.algorithm, Capacity: g.permits()}
		switch g.algorithm {
		case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
			l.Rate = stint.Per(g.permits(), g.period())
		case stint.AlgorithmFixedWindow:
			if g.IntN(3) == 0 {
				l.Calendar = stint.Calendar(1 + g.IntN(int(stint.CalendarYear)))
				l.TimeZone = zones[g.IntN(len(zones))]
			} else {
				l.Window, l.FirstRequest = g.period(), g.IntN(3) == 0
			}
		case stint.AlgorithmSlidingWindowLog:
			l.Window = g.period()
			l.CountDenied = g.IntN(3) == 0
			if g.IntN(3) == 0 {
				l.MinInterval = g.interval(l.Window)
			}
		case stint.AlgorithmSlidingWindowCounter:
			l.Window = g.period()
		default:
			panic("no parameters are drawn for " + g.algorithm.String())
		}
		switch g.IntN(4) {
		case 0:
			l.MaxDebt = stint.NoDebt
		case 1:
			l.MaxDebt = g.permits()
		}
		if l.Validate() == nil {
			return l
		}
	}
}

// variant changes one parameter.
func (g generator) variant(l stint.Limit) stint.Limit {
	changed, other := l, g.limit()
	switch g.IntN(4) {
	case 0:
		changed.Capacity = max(1, min(l.Capacity+g.Int64N(7)-3, bounds.MaxPermits))
	case 1:
		changed.Capacity = other.Capacity
	case 2:
		changed.MaxDebt, changed.MinInterval, changed.CountDenied = other.MaxDebt, other.MinInterval, other.CountDenied
	default:
		changed.Rate, changed.Window, changed.Calendar, changed.TimeZone = other.Rate, other.Window, other.Calendar, other.TimeZone
		changed.FirstRequest = other.FirstRequest
	}
	if changed.Validate() != nil {
		return other
	}
	return changed
}

// permits is small and friendly, awkward, or huge.
func (g generator) permits() int64 {
	switch g.IntN(5) {
	case 0:
		return 1 + g.Int64N(4)
	case 1:
		return []int64{5, 7, 10, 60, 100, 1000}[g.IntN(6)]
	case 2:
		return 1 + g.Int64N(200)
	case 3:
		return 1 + g.Int64N(bounds.MaxPermits)
	default:
		return bounds.MaxPermits - []int64{0, 1, 7, 63}[g.IntN(4)]
	}
}

func (g generator) period() time.Duration {
	switch g.IntN(6) {
	case 0:
		return []time.Duration{bounds.MinPeriod, time.Second, time.Minute, time.Hour, 24 * time.Hour}[g.IntN(5)]
	case 1:
		return time.Duration(1+g.Int64N(100)) * time.Second / 4
	case 2:
		return bounds.MinPeriod + time.Duration(g.Int64N(1e6))*time.Microsecond
	case 3:
		return bounds.MinPeriod + time.Duration(g.Int64N((bounds.MaxPeriod-bounds.MinPeriod).Microseconds()))*time.Microsecond
	case 4:
		return bounds.MaxPeriod - []time.Duration{0, time.Microsecond, 53 * time.Microsecond}[g.IntN(3)]
	default:
		return 3 * time.Second // with 2 permits, 2/3s
	}
}

func (g generator) interval(window time.Duration) time.Duration {
	us := window.Microseconds()
	switch g.IntN(4) {
	case 0:
		return time.Microsecond
	case 1:
		return bounds.MaxPeriod
	default:
		return time.Duration(1+g.Int64N(us)) * time.Microsecond
	}
}

// The instants at which runs start lie between 2000 and 2100; what goes beyond 2200
// is not generated, so that times stay far below 2^53.
const (
	year2000 = stint.Instant(946_684_800_000_000)
	year2100 = stint.Instant(4_102_444_800_000_000)
	year2200 = stint.Instant(7_258_118_400_000_000)
)

// run generates a run of steps and the answers to them of the Go algorithm.
func (g generator) run(length int) ([]stint.Limit, []step, []result, []algorithm.Entry) {
	return g.runWhile(func(done int) bool { return done < length })
}

// runWhile is a run for as long as more says so of the steps done.
func (g generator) runWhile(more func(done int) bool) (limits []stint.Limit, steps []step, results []result, entries []algorithm.Entry) {
	limits = g.limits()
	twin := newTwin(limits)
	now := year2000 + stint.Instant(g.Int64N(int64(year2100-year2000)))
	limit := 0
	var last result
	for more(len(steps)) && now < year2200 {
		if g.IntN(16) == 0 {
			limit = g.IntN(len(limits))
		}
		now = g.next(limits[limit], now, last)
		s := step{limit: limit, now: now}
		s.action, s.n = g.action(limits[limit], last)
		s.keep = g.keep(limits[limit])
		if g.admits && len(steps)%4 > 0 {
			s.action, s.n, s.k = admit, g.cost(limits[limit], last), g.times()
		}
		r := twin.step(s)
		if s.action == admit {
			s.room = r.remaining
		} else {
			last = r
		}
		steps, results = append(steps, s), append(results, r)
	}
	return limits, steps, results, twin.entries()
}

// next draws the time of the next step.
func (g generator) next(limit stint.Limit, now stint.Instant, last result) stint.Instant {
	span := length(limit)
	ahead := func(us int64) stint.Instant { return now + stint.Instant(max(0, us)) }
	switch g.IntN(16) {
	case 0, 1, 2, 3:
		return now
	case 4, 5:
		return ahead(last.retry)
	case 6:
		return ahead(last.retry - 1)
	case 7:
		return ahead(last.grows - g.Int64N(2))
	case 8:
		return ahead(last.reset - g.Int64N(2))
	case 9:
		return now - now%stint.Instant(span) + stint.Instant(span-g.Int64N(2)) // a window's edge
	case 10:
		return ahead(g.Int64N(2 * span))
	case 11:
		return ahead(span)
	case 12: // the clock steps back
		back := []int64{1, 1 + g.Int64N(span), 2 * span, 1000}[g.IntN(4)]
		return max(year2000, now-stint.Instant(back))
	default:
		return ahead(g.Int64N(1 + span/16))
	}
}

// length is a typical time of the limit's, in microseconds: its window, or how long
// a bucket takes from empty to full.
func length(limit stint.Limit) int64 {
	switch {
	case limit.IsBucket():
		drain := float64(limit.Capacity) * float64(limit.Rate.Period.Microseconds()) / float64(limit.Rate.Permits)
		return max(1, int64(drain))
	case limit.Calendar != 0:
		unit := []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 168 * time.Hour, 720 * time.Hour, 8760 * time.Hour}
		return unit[limit.Calendar-1].Microseconds()
	case limit.Window > 0:
		return limit.Window.Microseconds()
	default:
		panic("no typical time is known of " + limit.Algorithm.String())
	}
}

func (g generator) action(limit stint.Limit, last result) (algorithm.Action, int64) {
	switch g.IntN(16) {
	case 0, 1:
		return algorithm.Peek, g.cost(limit, last)
	case 2, 3:
		return algorithm.Deny, g.cost(limit, last)
	case 4, 5:
		return algorithm.Settle, g.amount(limit)
	case 6:
		if limit.Algorithm == stint.AlgorithmLeakyBucket {
			return algorithm.Settle, g.amount(limit) // turns can't be given back
		}
		return algorithm.Settle, -g.amount(limit)
	default:
		return algorithm.Take, g.cost(limit, last)
	}
}

func (g generator) cost(limit stint.Limit, last result) int64 {
	switch g.IntN(10) {
	case 0:
		return max(1, last.remaining)
	case 1:
		return last.remaining + 1
	case 2:
		return limit.Capacity
	case 3:
		return limit.Capacity + 1
	case 4:
		return 1 + g.Int64N(limit.Capacity)
	case 5:
		return []int64{math.MaxInt64, 1 << 53, 2 * bounds.MaxPermits}[g.IntN(3)]
	case 6:
		return 1 + g.Int64N(1+limit.Capacity/8)
	default:
		return 1
	}
}

// keep is how many permits have to be left: most often none.
func (g generator) keep(limit stint.Limit) int64 {
	switch g.IntN(8) {
	case 0:
		return 1 + g.Int64N(limit.Capacity)
	case 1:
		return 1 + g.Int64N(1+limit.Capacity/4)
	case 2:
		return []int64{1, limit.Capacity - 1, limit.Capacity, limit.Capacity + 1}[g.IntN(4)]
	default:
		return 0
	}
}

// times is how often a cost is asked for at once.
func (g generator) times() int64 {
	switch g.IntN(32) {
	case 0:
		return 1 + g.Int64N(1000)
	case 1, 2, 3, 4:
		return 1 + g.Int64N(50)
	default:
		return 1 + g.Int64N(4)
	}
}

func (g generator) amount(limit stint.Limit) int64 {
	switch g.IntN(6) {
	case 0:
		return 1
	case 1:
		return 1 + g.Int64N(limit.Capacity)
	case 2:
		return limit.Capacity
	case 3:
		return limit.Capacity + bounds.Debt(limit.MaxDebt, limit.Capacity)
	case 4:
		return math.MaxInt64
	default:
		return 1 + g.Int64N(3)
	}
}
