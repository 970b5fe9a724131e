package rules

import (
	"slices"

	"github.com/stint-go/stint"
)

// A level is a rule with the client that it counts of a request.
type level struct {
	rule  *compiled
	key   string
	floor *stint.Policy // nil: the client has none
}

// free is what no floor within the level needs of a policy.
func (l *level) free(policy *stint.Policy) int64 { return policy.Limit(0).Capacity - l.rule.kept }

// findLevels finds the levels of a rule that is within others, its own last. If the client of one is not
// limited, its outcome says why.
func (m *Matches) findLevels(c *compiled, key string, ending bool) Outcome {
	m.levels = append(m.levels[:0], level{c, key, c.floorOf(m.key)})
	for p := c.parent; p != nil; p = p.parent {
		key, _, outcome := m.client(&match{compiled: p}, ending)
		if outcome != Limited {
			return outcome
		}
		m.levels = append(m.levels, level{p, key, p.floorOf(m.key)})
	}
	slices.Reverse(m.levels)
	return Limited
}

// decideWithin makes the claims of a client within the limits of others: each way has a floor and
// all that it is within, or the outermost limit alone, so that what others are sure of is left.
// With levels 0 (the outermost) to n, and floors known down to level k, the ways are tried in this
// order:
//
//	way of k:  floors k … 1 and the limit, of which the children's floors stay
//	…
//	way of 0:  the limit alone, and all of its floors stay
//
// A way below the client's own level is borrowing; it is there only if every level between may
// borrow, and charges their ceilings too.
func (h *Matched) decideWithin(levels []level, permits int64, class Percent) {
	last := len(levels) - 1
	root := levels[0].rule.own.groups[0].policy
	known := 0 // levels with a floor, from the outermost one inwards without a gap
	for known < last && levels[known+1].floor != nil {
		known++
	}
	for at := known; at >= 0; at-- {
		if slices.ContainsFunc(levels[at+1:], func(l level) bool { return !l.rule.Borrow.allowed() }) {
			break
		}
		way := uint8(known - at) // #nosec G115 -- at most 8 levels
		for i := at; i >= 0; i-- {
			policy, keep := root, int64(0)
			if i > 0 {
				policy = levels[i].floor
			}
			if i == at {
				keep = levels[i].rule.kept
				if at < last {
					keep += class.of(levels[i].free(policy))
				}
			}
			h.add(stint.Claim{Key: levels[i].key, Policy: policy, Permits: permits, Keep: keep}, viaOf(at, last), way)
		}
		for i := at + 1; i <= last; i++ {
			if policy := levels[i].rule.borrow; policy != nil {
				h.add(stint.Claim{Key: levels[i].key, Policy: policy, Permits: permits}, ViaBorrowed, way)
			}
		}
	}
	switch {
	case len(h.Vias) == 0: // neither a floor nor a loan: all of the limit is kept from it
		h.add(stint.Claim{Key: levels[0].key, Policy: root, Permits: permits, Keep: root.Limit(0).Capacity}, ViaBorrowed, 0)
		h.Ways = h.Ways[:0]
	case h.Ways[len(h.Ways)-1] == 0: // there is one way
		h.Ways = h.Ways[:0]
	}
}

// viaOf is what a way is told as: the client's own floor is guaranteed, everything else borrowed.
func viaOf(at, last int) string {
	if at == last {
		return ViaGuaranteed
	}
	return ViaBorrowed
}

// add adds a claim of a way with what it is charged as.
func (h *Matched) add(claim stint.Claim, via string, way uint8) {
	if h.Claim.Policy == nil {
		h.Claim = claim
	} else {
		h.And = append(h.And, claim)
	}
	h.Vias, h.Ways = append(h.Vias, via), append(h.Ways, way)
}

// decideOtherwise adds, as a second way, the claims by the limits of the rule that Otherwise names.
func (m *Matches) decideOtherwise(h *Matched, c *compiled, ending bool) error {
	key, t, outcome := m.client(&match{compiled: c.otherwise}, ending)
	if outcome != Limited {
		return nil
	}
	second := Matched{Rule: &c.otherwise.Rule}
	keep, _ := c.otherwise.classOf(m.request)
	if err := second.decideBy(c.otherwise, t, key, m.cost, keep); err != nil {
		return err
	}
	for range 1 + len(h.And) {
		h.Vias, h.Ways = append(h.Vias, ViaLimits), append(h.Ways, 0)
	}
	h.add(second.Claim, ViaOtherwise, 1)
	for _, claim := range second.And {
		h.add(claim, ViaOtherwise, 1)
	}
	if h.Named > 0 || second.Named > 0 {
		h.Named = len(h.Vias) // costs are the same in all of a rule's limits here
	}
	return nil
}

// includedBy is the rule that holds for the request and decides it within another one's limits; nil
// if none does.
func (m *Matches) includedBy(c *compiled, ending bool) *compiled {
	for by := c.usedBy; by != nil; by = by.usedBy {
		at := slices.IndexFunc(m.rules, func(other match) bool { return other.compiled == by })
		if at < 0 {
			continue
		}
		if m.decides(&m.rules[at], ending) {
			return by
		}
	}
	return nil
}

// decides reports whether a rule decides the request: it has a client there, and in each rule that
// it is within.
func (m *Matches) decides(c *match, ending bool) bool {
	_, _, outcome := m.client(c, ending)
	for p := c.parent; p != nil && outcome == Limited; p = p.parent {
		_, _, outcome = m.client(&match{compiled: p}, ending)
	}
	return outcome == Limited
}
