package oracle

import (
	"cmp"
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
	spot    spot
	want    int64  // what it is asked for
	asking  string // the hold that asks for more; "" is none
	full    bool   // there are as many holds as the store allows
	number  bool   // of an end, or a Settle: nothing is asked of it that its Applied tells
	charged bool   // see [Answer.Charged]
	out     stint.Outcome
	unasked bool // see [Answer]
}

// A spot is where a claim stands among the ways of an operation: of which way of which group, counted from 1. The zero
// value is of none: it has to admit.
type spot struct {
	group, way int
	optional   bool // the group's last way is empty
}

// A member is a claim of an operation.
type member struct {
	claim stint.Claim
	spot
}

// members are the claims of an operation in the order in which their limits are told: the claim itself, if there is
// one, And, and the groups.
func members(op stint.Op) (list []member) {
	if op.Policy != nil {
		list = append(list, member{claim: op.Claim})
	}
	for _, c := range op.And {
		list = append(list, member{claim: c})
	}
	if op.Extra == nil {
		return list
	}
	for g, ways := range op.Extra.Groups {
		optional := len(ways[len(ways)-1]) == 0
		for w, claims := range ways {
			for _, c := range claims {
				list = append(list, member{c, spot{g + 1, w + 1, optional}})
			}
		}
	}
	return list
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
// A group is charged on the first way that admits. An empty way, which may be the last, has no limit that does not. A
// hold stays on the way that it was charged on, unless that is the empty one: it may move on from that.
type plan struct {
	all    []*place
	must   way
	groups []*group
}

// A group is the ways of which one is charged.
type group struct {
	ways []way // the last is empty in an optional group
	on   int   // the way that is charged; -1: none admits
	held bool  // the hold is on that way already: no other is asked
}

// A way is the limits of which all have to admit.
type way []*place

// newPlan groups the limits of an operation.
func newPlan(op stint.Op, places []*place) *plan {
	pl := &plan{all: places}
	if op.Extra != nil {
		for _, ways := range op.Extra.Groups {
			pl.groups = append(pl.groups, &group{ways: make([]way, len(ways))})
		}
	}
	for _, p := range places {
		if p.spot.group == 0 {
			pl.must = append(pl.must, p)
			continue
		}
		w := &pl.groups[p.spot.group-1].ways[p.spot.way-1]
		*w = append(*w, p)
	}
	return pl
}

// isOptional reports whether the group may charge nothing.
func (g *group) isOptional() bool { return len(g.ways[len(g.ways)-1]) == 0 }

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

// stay keeps the groups on the ways that a hold is on. One that is on an empty way stays there if it ends; if it is
// reserved again that group is asked anew.
func (pl *plan) stay(on []int, ends bool) {
	for i, g := range pl.groups {
		g.on, g.held = on[i], ends || len(g.ways[on[i]]) > 0
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

// deciding are the limits, in order, of which one decides what the operation is told. Admitted, a group's way is the
// one that is charged; denied, the one that waits least, the first on a tie. A hold is told of its own way.
// A group that may charge nothing counts for a hold that is on one of its ways alone.
func (pl *plan) deciding(allowed bool) (places []*place) {
	counts := slices.Clone(pl.must)
	for _, g := range pl.groups {
		if g.isOptional() && !g.held {
			continue
		}
		best := g.ways[max(0, g.on)]
		if !allowed && !g.held {
			best = slices.MinFunc(g.ways, func(a, b way) int { return cmp.Compare(a.wait(), b.wait()) })
		}
		counts = append(counts, best...)
	}
	if others := slices.DeleteFunc(slices.Clone(counts), func(p *place) bool { return p.limit.Denials }); allowed &&
		len(others) > 0 {
		counts = others // what is left of denials is not what is admitted next
	}
	return slices.DeleteFunc(slices.Clone(pl.all), func(p *place) bool { return !slices.Contains(counts, p) })
}

// decide makes the decision of the limits' outcomes: the deciding limit is, on denial, the one with the longest
// wait, on admission the one with the least left, of those that don't count denials; the first
// on a tie. If none counts it is the operation's first.
func (pl *plan) decide(allowed bool, at stint.Instant) stint.Decision {
	d := stint.Decision{Allowed: allowed, At: at}
	decides := pl.all[0]
	for n, p := range pl.deciding(allowed) {
		if allowed { // else nothing is held up
			d.Delay = max(d.Delay, p.out.Delay)
		}
		if n == 0 || allowed && p.out.Remaining < decides.out.Remaining ||
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
