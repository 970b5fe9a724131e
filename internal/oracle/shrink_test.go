package oracle_test

import (
	"slices"
	"testing"
)

// shrink returns fewer steps after which a store still differs from the model: without whole steps, without
// operations of a batch.
func shrink(t *testing.T, open newStore, maxHolds int, seed uint64, steps []step) []step {
	tries := 4000
	fails := func(steps []step) (int, bool) {
		if tries--; tries < 0 {
			return 0, false
		}
		fault, done := newRun(t, open, maxHolds, seed).all(steps)
		return done, fault != ""
	}
	done, ok := fails(steps)
	if !ok {
		return steps // it does not fail again; all steps are printed
	}
	steps = steps[:done]
	for before := -1; before != size(steps) && tries > 0; {
		before = size(steps)
		for length := len(steps) / 2; length > 0; length /= 2 {
			for from := len(steps) - length; from >= 0; {
				less := slices.Delete(slices.Clone(steps), from, from+length)
				if done, ok := fails(less); ok {
					steps = less[:done]
				}
				from = min(from, len(steps)) - length
			}
		}
		for i := len(steps) - 1; i >= 0; i-- {
			for _, less := range withoutOps(steps, min(i, len(steps)-1)) {
				if done, ok := fails(less); ok {
					steps = less[:done]
					break
				}
			}
		}
	}
	return steps
}

func size(steps []step) (n int) {
	for _, s := range steps {
		n += 1 + len(s.ops)
	}
	return n
}

// withoutOps leaves out operations of a batch.
func withoutOps(steps []step, at int) (lists [][]step) {
	for i := range steps[at].ops {
		if len(steps[at].ops) > 1 {
			less := slices.Clone(steps)
			less[at].ops = slices.Delete(slices.Clone(steps[at].ops), i, i+1)
			lists = append(lists, less)
		}
	}
	return lists
}
