// Package ways numbers the ways of an operation, so that claims can be compared without their order, and decides an
// operation on a hold that is bound to some of them.
package ways

import (
	"slices"

	"github.com/stint-go/stint"
)

// PerGroup is the difference between the numbers of the first ways of two groups. A group has at most 8 ways.
const PerGroup = 16

// Numbers is a number for each limit of an operation with these ways: 0 for one of no group, and otherwise PerGroup x
// its group, from 1, + the place of its way in that, from 0. Within a way, and among those of no group, the order of
// limits does not matter; the order of groups and of ways does.
func Numbers(ways []stint.Way) []int {
	numbers, way := make([]int, len(ways)), 0
	for i, w := range ways {
		switch w {
		case stint.Either:
			way = way - way%PerGroup + PerGroup
		case stint.Else:
			way++ // at most 7
		default: // of the way before it, or of none
		}
		if w != stint.Must {
			numbers[i] = way
		}
	}
	return numbers
}

// Combine is [stint.CombineWays] of an operation on a hold: asked are the ways as the operation has them, and bound as
// [stint.BindWays] has bound them. Of a first group that is bound, via is the number of the way.
func Combine(outcomes []stint.Outcome, asked, bound []stint.Way, via uint8, at stint.Instant) stint.Decision {
	d := stint.CombineWays(outcomes, bound, at)
	first := slices.IndexFunc(asked, func(way stint.Way) bool { return way != stint.Must })
	if d.Allowed && bound[first] != stint.Either {
		d.Via = via
	}
	return d
}
