package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A Warning is something in a rule that is allowed, and may be other than was meant. Warnings are
// told by the log, by `stint rules validate` and by the admin API; none keeps a rule from being in
// force.
type Warning struct {
	// Kind says it in a few words that are the same for all rules, behind "a rule", such as "leaves
	// little to borrow".
	Kind string
	// Detail says what is the matter, and names no client, which may be an API key.
	Detail string
	// Change says what to do. Default: "", nothing need be done.
	Change string
	// Errors says that requests for which the rule holds are errors.
	Errors bool
	// Mistake says that the rule can't be meant so: with Options.Review it is a fault.
	Mistake bool
	// Evident says that the rule's own text says so: that is news only where the rule was another
	// before.
	Evident bool
}

// String is the detail, and what to do.
func (w Warning) String() string {
	if w.Change == "" {
		return w.Detail
	}
	return w.Detail + "; " + w.Change
}

// Warnings are those about a rule of the set, if any: clustered says that states are on a cluster.
func (s *Set) Warnings(id string, clustered bool) (list []Warning) {
	c := s.byID[id]
	if c == nil {
		return nil
	}
	list = c.warnOfMistakes(list)
	list = c.warnOfReserve(list)
	list = c.warnOfHolds(list)
	list = c.warnOfFloors(list)
	if clustered && !c.Disabled {
		list = c.warnOfPartitions(list)
		s.apartOnce.Do(func() { s.apart = s.findApart() })
		if w, known := s.apart[id]; known {
			list = append(list, w)
		}
	}
	return list
}

// warnOfReserve warns of what is decided for reserves alone, by the rule or by overrides of it.
func (c *compiled) warnOfReserve(list []Warning) []Warning {
	w := Warning{Kind: "is left out but for reserves"}
	if c.NeedsReserve() {
		w.Detail, w.Evident = "it has a concurrency limit: only reserves are decided by it, "+
			"evaluate and forward-auth leave it out", true
		return append(list, w)
	}
	first, n := 0, 0
	for i := range c.Overrides {
		if hasPlaces(c.Overrides[i].Limits) {
			if n++; n == 1 {
				first = i
			}
		}
	}
	const consequence = "only reserves are decided by %s, evaluate and forward-auth admit %s without this rule"
	switch n {
	case 0:
		return list
	case 1:
		w.Detail = fmt.Sprintf("it has a concurrency limit in overrides[%d]: "+consequence, first, "it", "its client")
	default:
		w.Detail = fmt.Sprintf("it has a concurrency limit in %d overrides, overrides[%d] the first: "+consequence, n, first,
			"them", "their clients")
	}
	return append(list, w)
}

// warnOfHolds warns of buckets that are too small for what is held: estimates a second are at most
// the capacity divided by how long they are held. In formulas, a bucket of capacity C refilled at
// R/P holds n requests of one permit for a time T each only if n <= C, and n = R/P x T at the rate
// of the refill: C x P < R x T is warned of.
func (c *compiled) warnOfHolds(list []Warning) []Warning {
	if !c.NeedsReserve() && c.Reserve == (Reserve{}) {
		return list
	}
	ttl := cmp.Or(c.Reserve.TTL, bounds.DefaultHoldTTL)
	for i, l := range c.Limits {
		if l.Algorithm == stint.AlgorithmTokenBucket &&
			float64(l.Capacity)*float64(l.Rate.Period) < float64(l.Rate.Permits)*float64(ttl) {
			list = append(list, Warning{Kind: "holds more than its bucket has", Detail: fmt.Sprintf(
				"limits[%d], a bucket of %d, is less than what %s refills in reserve.ttl, %s, "+
					"so holds of that length slow its clients down",
				i, l.Capacity, l.Rate, stint.FormatDuration(ttl))})
		}
	}
	return list
}

// warnOfFloors warns of a limit of which little is left for borrowing, less than a tenth, and of floors
// that several clients of the outermost rule have in common, so that one of them can use up what another
// is sure of.
func (c *compiled) warnOfFloors(list []Warning) []Warning {
	if c.parent == nil {
		return list
	}
	root := c.parent
	for root.parent != nil {
		root = root.parent
	}
	capacity := root.Limits[0].Capacity
	if left := capacity - root.kept; root == c.parent && c.Borrow.Allowed() && left*10 < capacity {
		list = append(list, Warning{Kind: "leaves little to borrow", Detail: fmt.Sprintf(
			"%d of %d permits are in no floor, less than a tenth: those who borrow have small bursts", left, capacity)})
	}
	separates := func(scope string) bool {
		return scope == Global || scope == Custom(c.PartitionBy) || slices.Contains(c.Scope, scope) && !c.hasParameter(scope)
	}
	if len(c.floors) > 0 && slices.ContainsFunc(root.Scope, func(scope string) bool { return !separates(scope) }) {
		list = append(list, Warning{
			Kind:   "has floors that several clients share",
			Detail: fmt.Sprintf("all clients of rule %s have its floors in common, so one can use up those of another", root.ID),
			Change: fmt.Sprintf("tell them apart by the same partition_by in all of these rules, or begin its scope with %s",
				strings.Join(c.parent.Scope, ", ")),
		})
	}
	return list
}

// kindApart is the kind of rules that a request may meet in several partitions.
const kindApart = "can't be decided on a cluster"

// warnOfPartitions warns of a rule where a request may be charged to it and to another one whose clients are in other
// partitions.
func (c *compiled) warnOfPartitions(list []Warning) []Warning {
	for _, other := range []*compiled{c.parent, c.otherwise} {
		if other != nil && !c.sharesPartition(other) {
			return append(list, Warning{
				Kind: kindApart,
				Detail: fmt.Sprintf("its clients and those of rule %s are in different partitions of a cluster, "+
					"so requests are errors", other.ID),
				Change: "set the same partition_by in both, and in all rules that match the same requests",
				Errors: true,
			})
		}
	}
	return list
}
