// Package ways numbers the ways of an operation, so that claims can be compared without their order.
package ways

import "github.com/stint-go/stint"

// Numbers is a number for each limit of an operation with these ways: 0 for one of no group, and otherwise 16 x its
// group, from 1, + the place of its way in that, from 0. Within a way, and among those of no group, the order of limits
// does not matter; the order of groups and of ways does.
func Numbers(ways []stint.Way) []int {
	numbers, way := make([]int, len(ways)), 0
	for i, w := range ways {
		switch w {
		case stint.Either:
			way = way&^15 + 16
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
