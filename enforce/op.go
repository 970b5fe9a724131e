package enforce

import (
	"slices"

	"github.com/stint-go/stint"
)

// all is in the place of a way's number at claims that all have to admit.
const all = -1

// built is an operation of claims, whose memory is kept for the next one.
type built struct {
	claims []stint.Claim
	ways   []stint.Way
	groups [][]stint.Way
	extra  stint.Extra
}

// op makes an operation of claims, of which those that have to admit come first; the ways of each rule are a group.
func (b *built) op(claims []Claimed) (op stint.Op) {
	b.claims = b.claims[:0]
	plain := 0
	for i := range claims {
		b.claims = append(b.claims, claims[i].Claim)
		if claims[i].way == all {
			plain++
		}
	}
	if plain > 0 {
		op.Claim = b.claims[0]
	}
	if plain > 1 {
		op.And = b.claims[1:plain]
	}
	b.extra = stint.Extra{}
	if plain == len(claims) {
		return op
	}
	b.ways, b.groups = slices.Grow(b.ways[:0], 2*len(claims)), b.groups[:0]
	for from := plain; from < len(claims); {
		first := len(b.ways)
		to := from
		for to < len(claims) && claims[to].Rule == claims[from].Rule {
			way := to
			for to++; to < len(claims) && claims[to].Rule == claims[way].Rule && claims[to].way == claims[way].way; to++ {
			}
			b.ways = append(b.ways, b.claims[way:to])
		}
		if claims[from].marks() {
			b.ways = append(b.ways, nil) // which takes nothing
		}
		b.groups = append(b.groups, b.ways[first:])
		from = to
	}
	b.extra.Groups = b.groups
	op.Extra = &b.extra
	return op
}

// op is the claims as one operation. Limits of all claims are counted through: claim i's limits are
// those from the sum of the lengths before it on.
func (v *Verdict) op(verb stint.Verb) stint.Op {
	op := v.built.op(v.claims)
	op.Verb, op.Each = verb, v.outcomes(op.Limits())
	return op
}

// on is op for an operation on a hold.
func (v *Verdict) on(verb stint.Verb, hold *stint.HoldOp) stint.Op {
	op := v.op(verb)
	op.Extra = &v.built.extra
	op.Extra.Hold = hold
	return op
}

// order puts the claims that have to admit before those of ways, as an operation has them.
func (v *Verdict) order() {
	isOrdered := func(a, b Claimed) int { return rank(a) - rank(b) }
	if !slices.IsSortedFunc(v.claims, isOrdered) {
		slices.SortStableFunc(v.claims, isOrdered)
	}
}

// rank is 0 of a claim that has to admit. Those of rules that mark are the last, since what is told of ways is of the
// first group.
func rank(c Claimed) int {
	switch {
	case c.way == all:
		return 0
	case !c.marks():
		return 1
	}
	return 2
}
