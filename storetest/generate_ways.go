package storetest

import (
	"slices"

	"github.com/stint-go/stint"
)

// ways draws a valid operation with one group of ways or two, mostly without claims that have to admit beside them, if
// the policies allow it.
func (g *traffic) ways(verb stint.Verb) (op stint.Op, ok bool) {
	for range 4 {
		op = stint.Op{Verb: verb}
		if g.oneIn(3) {
			op.Claim = g.claim(verb)
			if g.oneIn(4) {
				op.And = append(op.And, g.claim(verb))
			}
		}
		group := g.group(verb)
		if group == nil {
			return op, false
		}
		op.Extra = &stint.Extra{Groups: [][]stint.Way{group}}
		if g.oneIn(4) {
			op.Extra.Groups = append(op.Extra.Groups, g.group(verb))
		}
		if op.Validate() == nil { // else a state is named where it may not be
			return op, true
		}
	}
	return op, false
}

// group draws two ways or three; nil if the policies allow none. Mostly they are those of a child that borrows from its
// parent: the child's own floor and the parent, else the parent without what it keeps for its children. At times the
// last one is empty.
func (g *traffic) group(verb stint.Verb) (group []stint.Way) {
	parent, ok := g.wayClaim(verb)
	if !ok {
		return nil
	}
	number := 2 + g.intn(3)/2
	if borrows := g.intn(5) > 0; !borrows {
		for range number {
			var way stint.Way
			for range 1 + g.intn(2) {
				c, _ := g.wayClaim(verb)
				way = append(way, c)
			}
			group = append(group, way)
		}
		return g.optional(group)
	}
	for n := range number {
		var way stint.Way
		if n < number-1 {
			child, _ := g.wayClaim(verb)
			child.Permits = parent.Permits
			if g.oneIn(4) {
				child, parent = parent, child
			}
			way = append(way, child)
		}
		way = append(way, parent)
		if g.oneIn(8) {
			other, _ := g.wayClaim(verb)
			way = append(way, other)
		}
		group = append(group, way)
		parent.Keep = g.keep(g.limitOf(parent.Policy), parent.Permits)
		if g.oneIn(8) {
			parent.Permits = max(1, g.cost(g.limitOf(parent.Policy)))
		}
	}
	return g.optional(group)
}

// optional makes the last way of a group empty at times, or all but the first.
func (g *traffic) optional(group []stint.Way) []stint.Way {
	switch g.intn(8) {
	case 0:
		group = append(group[:1], nil)
	case 1:
		group[len(group)-1] = nil
	}
	return group
}

// wayClaim draws a claim that can be one of several ways, if there is a policy for it.
func (g *traffic) wayClaim(verb stint.Verb) (c stint.Claim, ok bool) {
	for range 8 {
		if c = g.claim(verb); !slices.ContainsFunc(c.Policy.Limits(), noWay) {
			return c, true
		}
	}
	for _, versions := range g.policies {
		for _, c.Policy = range versions {
			if !slices.ContainsFunc(c.Policy.Limits(), noWay) {
				return c, true
			}
		}
	}
	return c, false
}

// noWay tells whether a limit can't be one of several ways.
func noWay(l stint.Limit) bool {
	return l.CountDenied || l.Denials || l.Algorithm == stint.AlgorithmLeakyBucket || l.Lease != 0
}
