package storetest

import (
	"slices"
	"time"

	"github.com/stint-go/stint"
)

// A wayList says which limits of an operation are decided together. Limits are named by their place in the operation.
type wayList struct {
	must   []int   // have to admit
	groups []group // of each, one way has to
}

// A group is the ways between which an operation chooses, in order.
type group []way

// A way is the limits of which all have to admit.
type way []int

func waysOf(ops []limitOp) (w wayList) {
	for i, op := range ops {
		last := len(w.groups) - 1
		switch op.way {
		case stint.Must:
			w.must = append(w.must, i)
		case stint.Either:
			w.groups = append(w.groups, group{way{i}})
		case stint.With:
			g := w.groups[last]
			g[len(g)-1] = append(g[len(g)-1], i)
		case stint.Else:
			w.groups[last] = append(w.groups[last], way{i})
		case stint.Aside: // no claim's
		}
	}
	return w
}

// admits tells whether all limits of the way do.
func (w way) admits(outcomes []stint.Outcome) bool {
	return !slices.ContainsFunc(w, func(i int) bool { return !outcomes[i].Allowed })
}

// wait is the longest of the way's limits.
func (w way) wait(outcomes []stint.Outcome) (longest time.Duration) {
	for _, i := range w {
		longest = max(longest, outcomes[i].RetryAfter)
	}
	return longest
}

// left is the least that is left of the way's limits.
func (w way) left(outcomes []stint.Outcome) int64 {
	least := outcomes[w[0]].Remaining
	for _, i := range w {
		least = min(least, outcomes[i].Remaining)
	}
	return least
}

// choose finds the limits that are charged if the operation is admitted: those of no group, and of each group those of the
// first way that admits.
func (w wayList) choose(outcomes []stint.Outcome) (charged []bool, allowed bool) {
	charged, allowed = make([]bool, len(outcomes)), way(w.must).admits(outcomes)
	for _, i := range w.must {
		charged[i] = true
	}
	for _, g := range w.groups {
		first := g.first(outcomes)
		if first < 0 {
			allowed = false
			continue
		}
		for _, i := range g[first] {
			charged[i] = true
		}
	}
	return charged, allowed
}

// first is the number of the first way that admits, or -1.
func (g group) first(outcomes []stint.Outcome) int {
	return slices.IndexFunc(g, func(w way) bool { return w.admits(outcomes) })
}

// via is the number of the way that the first group is admitted by.
func (w wayList) via(outcomes []stint.Outcome) uint8 {
	if len(w.groups) == 0 {
		return 0
	}
	return uint8(w.groups[0].first(outcomes)) // #nosec G115 -- the operation is admitted, and has at most 1000 limits
}

// standing are the limits, in order, that an operation's answer is made of. Of each group those of one way count: of a
// denied operation the way that waits least, of an admitted one the way that has most left, the first on a tie.
func (w wayList) standing(outcomes []stint.Outcome, allowed bool) []int {
	counts := slices.Clone(w.must)
	for _, g := range w.groups {
		best := g[0]
		for _, other := range g[1:] {
			if allowed && other.left(outcomes) > best.left(outcomes) ||
				!allowed && other.wait(outcomes) < best.wait(outcomes) {
				best = other
			}
		}
		counts = append(counts, best...)
	}
	slices.Sort(counts)
	return counts
}
