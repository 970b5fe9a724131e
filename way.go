package stint

import (
	"fmt"

	"github.com/stint-go/stint/internal/bounds"
)

// A Way is one of several alternatives: claims that are charged together.
//
// A group of ways is tried in order, in the same atomic step as the rest of its operation. The first way whose limits
// all admit is charged, it alone, and the operation's answer says which (see [Decision.Via]). An operation is admitted
// if its claims of no group all admit, and a way of each group does. An empty way, which only a group's last may be,
// always admits and charges nothing: such a group is charged if it fits and all else admits, and never decides.
//
// Ways of one group may share a state, under limits that are equal, and may keep different amounts
// of it. Nothing else in the operation may name that state. Ways can't have limits that count
// denied requests, leaky buckets or limits with leases.
type Way []Claim

// wayNumber is the number of way w of a group g.
func wayNumber(group []Way, g, w int) uint16 {
	return bounds.WayNumber(len(group[len(group)-1]) == 0, g, w)
}

// areAlternatives reports whether numbers are of different ways of one group.
func areAlternatives(a, b uint16) bool { return a != b && a>>bounds.WayBits == b>>bounds.WayBits }

// agrees reports whether no limits of two policies name a state in common and differ.
func (p *Policy) agrees(q *Policy) bool {
	if p == q {
		return true
	}
	for _, a := range p.limits {
		for _, b := range q.limits {
			if a.Name == b.Name && a.Algorithm == b.Algorithm && a != b {
				return false
			}
		}
	}
	return true
}

// validateGroups reports what is wrong with the operation's groups, their claims aside.
func (op *Op) validateGroups() error {
	groups := op.Groups()
	if groups != nil && op.Verb == VerbSettle {
		return Invalid("groups", len(groups), "the claims of the way that was charged alone (see Decision.Via)")
	}
	if len(groups) > bounds.MaxOpLimits {
		return Invalid("groups", len(groups), fmt.Sprintf("at most %d", bounds.MaxOpLimits))
	}
	for g, group := range groups {
		if len(group) == 0 || len(group) > bounds.MaxWays {
			return Invalid(fmt.Sprintf("groups[%d]", g), len(group), fmt.Sprintf("1 to %d ways", bounds.MaxWays))
		}
		for w, way := range group {
			if len(way) == 0 && (w == 0 || w < len(group)-1) {
				return Invalid(fmt.Sprintf("groups[%d][%d]", g, w), "no claim",
					"claims, but in the last of several ways, which may take nothing")
			}
			for i := range way {
				if p := way[i].Policy; p != nil && p.notWay != nil {
					return p.notWay
				}
			}
		}
	}
	return nil
}

// firstWays is how many ways the operation's first group has; 0 if it has none.
func (op *Op) firstWays() int {
	if groups := op.Groups(); groups != nil {
		return len(groups[0])
	}
	return 0
}
