package storetest

import (
	"slices"

	"github.com/stint-go/stint"
)

// ways draws a valid operation with one group of ways or two, among claims that have to admit, if
// the policies allow it.
func (g *traffic) ways(verb stint.Verb) (op stint.Op, ok bool) {
	for range 4 {
		var claims []stint.Claim
		must := func(one int) {
			if g.oneIn(one) {
				claims = append(claims, g.claim(verb))
			}
		}
		must(4)
		if !g.addGroup(&claims, verb) {
			return op, false
		}
		must(5)
		if g.oneIn(4) {
			g.addGroup(&claims, verb)
			must(8)
		}
		op = stint.Op{Verb: verb, Claim: claims[0], And: claims[1:]}
		if op.Validate() == nil { // else a state is named where it may not be
			return op, true
		}
	}
	return op, false
}

// addGroup adds a group of two ways or three. Mostly they are those of a child that borrows from
// its parent: the child's own floor and the parent, else the parent without what it keeps for its
// children.
func (g *traffic) addGroup(claims *[]stint.Claim, verb stint.Verb) bool {
	parent, ok := g.wayClaim(verb)
	if !ok {
		return false
	}
	add := func(way stint.Way, c stint.Claim) {
		c.Way = way
		*claims = append(*claims, c)
	}
	borrows := g.intn(5) > 0
	number := 2 + g.intn(3)/2
	for n := range number {
		way := stint.Else
		if n == 0 {
			way = stint.Either
		}
		switch {
		case !borrows:
			for range 1 + g.intn(2) {
				c, _ := g.wayClaim(verb)
				add(way, c)
				way = stint.With
			}
		case n < number-1:
			child, _ := g.wayClaim(verb)
			child.Permits = parent.Permits
			if g.oneIn(4) {
				child, parent = parent, child
			}
			add(way, child)
			way = stint.With
			fallthrough
		default:
			add(way, parent)
			if g.oneIn(8) {
				other, _ := g.wayClaim(verb)
				add(stint.With, other)
			}
			parent.Keep = g.keep(g.limitOf(parent.Policy), parent.Permits)
			if g.oneIn(8) {
				parent.Permits = max(1, g.cost(g.limitOf(parent.Policy)))
			}
		}
	}
	return true
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
	return l.CountDenied || l.Algorithm == stint.AlgorithmLeakyBucket || l.Lease != 0
}
