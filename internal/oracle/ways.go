package oracle

import (
	"slices"
	"time"

	"github.com/stint-go/stint"
)

// A place is one limit of an operation.
type place struct {
	*cell
	limit   stint.Limit
	permits int64 // of its claim
	keep    int64 // how many permits of the limit its claim leaves to others
	way     stint.Way
	want    int64  // what it is asked for
	asking  string // the hold that asks for more; "" is none
	full    bool   // there are as many holds as the store allows
	number  bool   // of an end, or a Settle: nothing is asked of it that its Applied tells
	charged bool   // see [Answer.Charged]
	out     stint.Outcome
	unasked bool // see [Answer]
}

// A cell is a state that an operation is about. Ways of one group may share it.
type cell struct {
	name   name
	known  bool          // something was recorded
	before *state        // as stored
	now    *state        // as the limit reads it at the time, and what the operation makes of that
	at     stint.Instant // that time: the later of the clock and what the state records
	write  bool
}

// A plan is how an operation's limits are decided together: each of some has to admit, and of each group one way.
//
//	admitted = all of must admit, and of each group one way, whose limits all admit
//
// A group is charged on the first way that admits. A hold stays on the way that it was charged on.
type plan struct {
	all    []*place
	must   way
	groups []*group
}

// A group is the ways of which one is charged.
type group struct {
	ways []way
	on   int  // the way that is charged; -1: none admits
	held bool // the hold is on that way already: no other is asked
}

// A way is the limits of which all have to admit.
type way []*place

// newPlan groups the limits of an operation. With belongs to the way before it, Else begins the next
// way of the group, Either the next group.
func newPlan(places []*place) *plan {
	pl := &plan{all: places}
	for _, p := range places {
		last := len(pl.groups) - 1
		switch p.way {
		case stint.Must:
			pl.must = append(pl.must, p)
		case stint.Either:
			pl.groups = append(pl.groups, &group{ways: []way{{p}}})
		case stint.With:
			ways := pl.groups[last].ways
			ways[len(ways)-1] = append(ways[len(ways)-1], p)
		case stint.Else:
			pl.groups[last].ways = append(pl.groups[last].ways, way{p})
		case stint.Aside: // no claim's
		}
	}
	return pl
}

// admits reports whether all limits of the way do.
func (w way) admits() bool {
	return !slices.ContainsFunc(w, func(p *place) bool { return !p.out.Allowed })
}

// wait is the longest wait of the way's limits.
func (w way) wait() (longest time.Duration) {
	for _, p := range w {
		longest = max(longest, p.out.RetryAfter)
	}
	return longest
}

// left is the least that is left of the way's limits.
func (w way) left() int64 {
	least := w[0].out.Remaining
	for _, p := range w {
		least = min(least, p.out.Remaining)
	}
	return least
}

// choose finds the first way of each group that admits, and marks what is charged if the operation is admitted, as it
// reports.
func (pl *plan) choose() bool {
	admitted := pl.must.admits()
	for _, g := range pl.groups {
		if !g.held {
			g.on = slices.IndexFunc(g.ways, way.admits)
		}
		admitted = admitted && g.on >= 0 && g.ways[g.on].admits()
	}
	pl.mark()
	return admitted
}

// mark marks what is charged, and what is not asked.
func (pl *plan) mark() {
	for _, p := range pl.all {
		p.charged, p.unasked = true, false
	}
	for _, g := range pl.groups {
		for n, w := range g.ways {
			for _, p := range w {
				p.charged, p.unasked = n == g.on, g.held && n != g.on
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

// deciding are the limits, in order, of which one decides what the operation is told. Denied, a group's waits are
// those of the way that waits least; admitted, its way is the one with the most left; the first on a tie. A hold
// is told of its own way.
func (pl *plan) deciding(allowed bool) (places []*place) {
	counts := slices.Clone(pl.must)
	for _, g := range pl.groups {
		best := g.ways[0]
		for _, w := range g.ways {
			if allowed && w.left() > best.left() || !allowed && w.wait() < best.wait() {
				best = w
			}
		}
		if g.held {
			best = g.ways[g.on]
		}
		counts = append(counts, best...)
	}
	return slices.DeleteFunc(slices.Clone(pl.all), func(p *place) bool { return !slices.Contains(counts, p) })
}

// decide makes the decision of the limits' outcomes: the deciding limit is, on denial, the one with the longest
// wait, on admission the one with the least left; the first on a tie.
func (pl *plan) decide(allowed bool, at stint.Instant) stint.Decision {
	d := stint.Decision{Allowed: allowed, At: at}
	var decides *place
	for _, p := range pl.deciding(allowed) {
		if allowed { // else nothing is held up
			d.Delay = max(d.Delay, p.out.Delay)
		}
		if decides == nil || allowed && p.out.Remaining < decides.out.Remaining ||
			!allowed && p.out.RetryAfter > decides.out.RetryAfter {
			decides = p
		}
	}
	d.Index = int16(slices.Index(pl.all, decides)) // #nosec G115 -- at most 1000 limits
	d.Limit, d.Remaining, d.ResetAfter = decides.out.Limit, decides.out.Remaining, decides.out.ResetAfter
	if !allowed {
		d.RetryAfter = decides.out.RetryAfter
	} else if len(pl.groups) > 0 {
		d.Via = uint8(pl.groups[0].on) // #nosec G115 -- at most 8 ways
	}
	return d
}

// apply sets what was applied of an operation: the least of its limits', but of those of which nothing is asked.
func (pl *plan) apply(d *stint.Decision) {
	first := true
	for _, p := range pl.all {
		if n := p.out.Applied; !p.number {
			if first || max(n, -n) < max(d.Applied, -d.Applied) {
				d.Applied = n
			}
			first = false
		}
	}
}
