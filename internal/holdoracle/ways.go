package holdoracle

import (
	"time"

	"github.com/stint-go/stint"
)

// A plan is how an operation's limits are decided together: each of some has to admit, and of each group one way.
type plan struct {
	all    []*place
	must   []*place
	groups []*group
}

// A group is the ways of which one is charged.
type group struct {
	ways [][]*place
	on   int  // the way that is charged; -1: none admits
	held bool // the hold is on that way already: no other is asked
}

func newPlan(places []*place) *plan {
	pl := &plan{all: places}
	var g *group
	for _, p := range places {
		switch p.way {
		case stint.Must:
			pl.must = append(pl.must, p)
		case stint.Either:
			g = &group{ways: [][]*place{{p}}}
			pl.groups = append(pl.groups, g)
		case stint.With:
			last := len(g.ways) - 1
			g.ways[last] = append(g.ways[last], p)
		case stint.Else:
			g.ways = append(g.ways, []*place{p})
		case stint.Aside: // no claim's
		}
	}
	return pl
}

// choose finds the first way of each group that admits, by what each place says alone, and marks what is charged. It
// reports whether the operation is admitted.
func (pl *plan) choose() bool {
	admitted := admit(pl.must)
	for _, g := range pl.groups {
		if g.held {
			admitted = admitted && admit(g.ways[g.on])
			continue
		}
		g.on = -1
		for n, way := range g.ways {
			if g.on < 0 && admit(way) {
				g.on = n
			}
		}
		admitted = admitted && g.on >= 0
	}
	pl.mark()
	return admitted
}

// mark marks what is charged, if the operation is admitted, and what is not asked.
func (pl *plan) mark() {
	for _, p := range pl.all {
		p.charged, p.unasked = true, false
	}
	for _, g := range pl.groups {
		for n, way := range g.ways {
			for _, p := range way {
				p.charged = n == g.on
				p.unasked = g.held && n != g.on
			}
		}
	}
}

// stay keeps the groups on the ways that a hold is on.
func (pl *plan) stay(on []int) {
	for i, g := range pl.groups {
		g.on, g.held = on[i], true
	}
	pl.mark()
}

// on are the ways that are charged.
func (pl *plan) on() (ways []int) {
	for _, g := range pl.groups {
		ways = append(ways, g.on)
	}
	return ways
}

func admit(places []*place) bool {
	for _, p := range places {
		if !p.alone {
			return false
		}
	}
	return true
}

// deciding are the places of which one decides what the operation is told. Denied, a group's waits are those of the way that
// waits least; admitted, its way is the one with the most left; the first on a tie. A hold waits for its own way alone.
func (pl *plan) deciding(allowed bool) map[*place]bool {
	counts := map[*place]bool{}
	count := func(places []*place) {
		for _, p := range places {
			counts[p] = true
		}
	}
	count(pl.must)
	for _, g := range pl.groups {
		best := g.ways[0]
		if !allowed && g.held {
			best = g.ways[g.on]
		} else {
			for _, way := range g.ways {
				if allowed && left(way) > left(best) || !allowed && longest(way) < longest(best) {
					best = way
				}
			}
		}
		count(best)
	}
	return counts
}

func left(way []*place) int64 {
	least := way[0].out.Remaining
	for _, p := range way {
		least = min(least, p.out.Remaining)
	}
	return least
}

func longest(way []*place) (wait time.Duration) {
	for _, p := range way {
		wait = max(wait, p.out.RetryAfter)
	}
	return wait
}

// decide makes the decision of the limits' outcomes: "the deciding limit is, on denial, the one with the longest wait, on
// admission the one with the smallest Remaining; the first on a tie".
func (pl *plan) decide(allowed bool, at stint.Instant) stint.Decision {
	d := stint.Decision{Allowed: allowed, At: at}
	counts := pl.deciding(allowed)
	var b *place
	for i, p := range pl.all {
		if !counts[p] {
			continue
		}
		if d.Allowed { // else nothing is held up: "how long to hold an admitted request"
			d.Delay = max(d.Delay, p.out.Delay)
		}
		if b == nil || allowed && p.out.Remaining < b.out.Remaining || !allowed && p.out.RetryAfter > b.out.RetryAfter {
			b, d.Index = p, int16(i)
		}
	}
	d.Limit, d.Remaining, d.ResetAfter = b.out.Limit, b.out.Remaining, b.out.ResetAfter
	if !allowed {
		d.RetryAfter = b.out.RetryAfter
	} else if len(pl.groups) > 0 {
		d.Via = uint8(pl.groups[0].on)
	}
	return d
}
