package oracle_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// policies are some versions of one policy.
func (g *generator) policies(name string) []*stint.Policy {
	kinds := make([]int, 1+g.rng.IntN(4))
	for i := range kinds {
		if kinds[i] = g.rng.IntN(6); g.ways && kinds[i] == 1 {
			kinds[i] = 0 // a leaky bucket can't be one of several ways
		}
	}
	list := make([]*stint.Policy, 1)
	if g.changes {
		list = make([]*stint.Policy, 2+g.rng.IntN(2))
	}
	limits := make([]stint.Limit, len(kinds))
	for v := range list {
		for i, kind := range kinds {
			if v > 0 && g.rng.IntN(2) == 0 {
				g.alter(&limits[i])
				continue
			}
			limits[i] = g.limit(kind).Named(fmt.Sprint("l", i))
		}
		limits := slices.Clone(limits)
		if v > 0 && g.rng.IntN(2) == 0 { // the order of limits is not theirs
			g.rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
		}
		list[v] = must.Get(stint.NewPolicy(name, limits...))(g.t)
	}
	return list
}

func (g *generator) period() time.Duration {
	return time.Duration(g.pick(1000, 2000, 5000, 7000, 1+g.rng.Int64N(20_000), 60_000)) * time.Millisecond
}

func (g *generator) limit(kind int) (l stint.Limit) {
	capacity := 1 + g.rng.Int64N(g.pick(6, 12, 40))
	if g.many {
		capacity = 120 + g.rng.Int64N(100)
	}
	switch kind {
	case 0:
		l = stint.TokenBucket(capacity, stint.Per(1+g.rng.Int64N(9), g.period()))
	case 1:
		l = stint.LeakyBucket(capacity, stint.Per(1+g.rng.Int64N(9), g.period())).WithCost(1 + g.rng.Int64N(min(3, capacity)))
	case 2:
		l = stint.FixedWindow(capacity, g.period())
		switch g.rng.IntN(6) {
		case 0:
			l = stint.CalendarWindow(capacity, stint.CalendarMinute+stint.Calendar(g.rng.IntN(2)), "")
		case 1, 2, 3:
			l.FirstRequest = true
		}
	case 3:
		l = stint.SlidingWindowCounter(capacity, g.period())
	case 4:
		l = stint.SlidingWindowLog(capacity, g.period())
		if g.rng.IntN(3) == 0 {
			l.MinInterval = time.Duration(g.rng.IntN(2_000_000)) * time.Microsecond
		}
	default:
		l = stint.Concurrency(capacity)
		if g.rng.IntN(3) == 0 {
			l = l.WithCost(1)
		}
		return l
	}
	if g.rng.IntN(3) == 0 {
		l.MaxDebt = g.pick(stint.NoDebt, 1, 2, 5)
	}
	if g.rng.IntN(4) == 0 && l.Cost == 0 {
		l = l.WithCost(1 + g.rng.Int64N(min(2, capacity)))
	}
	return l
}

// alter changes one parameter of a limit.
func (g *generator) alter(l *stint.Limit) {
	switch g.rng.IntN(5) {
	case 0:
		l.Capacity = max(1, l.Capacity+g.rng.Int64N(7)-3)
		l.Cost = min(l.Cost, l.Capacity)
	case 1:
		if l.IsBucket() {
			l.Rate.Permits = 1 + g.rng.Int64N(9)
		} else if l.Algorithm != stint.AlgorithmConcurrency && l.Calendar == 0 {
			l.Window = g.period()
		}
	case 2:
		if l.IsBucket() {
			l.Rate.Period = g.period()
		} else if l.Algorithm == stint.AlgorithmSlidingWindowLog {
			l.MinInterval = time.Duration(g.pick(0, g.rng.Int64N(2_000_000))) * time.Microsecond
		} else if l.Algorithm == stint.AlgorithmFixedWindow && l.Calendar == 0 {
			l.FirstRequest = !l.FirstRequest
		}
	case 3:
		if l.Algorithm != stint.AlgorithmConcurrency {
			l.MaxDebt = g.pick(0, stint.NoDebt, 1, 2, 5)
		}
	case 4:
		if l.Algorithm == stint.AlgorithmLeakyBucket {
			l.Cost = 1 + g.rng.Int64N(min(3, l.Capacity))
		} else {
			l.Cost = g.pick(0, 1, min(2, l.Capacity))
		}
	}
}

// blocking are versions of a policy with a limit on denials, and mostly with others beside it.
func (g *generator) blocking() (list []*stint.Policy) {
	for range 1 + g.rng.IntN(3) {
		limits := []stint.Limit{
			stint.FixedWindow(1+g.rng.Int64N(g.pick(1, 4, 12)), g.period()).FromFirst().OfDenials().Named("block"),
		}
		if g.rng.IntN(8) == 0 { // another version counts what is taken
			limits[0].Denials = false
		}
		for i := range g.rng.IntN(3) {
			limits = append(limits, g.limit(2+g.rng.IntN(3)).Named(fmt.Sprint("l", i)))
			limits[len(limits)-1].CountDenied = limits[len(limits)-1].Algorithm == stint.AlgorithmSlidingWindowLog && g.rng.IntN(3) == 0
		}
		g.rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
		list = append(list, must.Get(stint.NewPolicy("blocks", limits...))(g.t))
		if !g.changes {
			break
		}
	}
	return list
}
