package oracle_test

import (
	"slices"
	"testing"

	"github.com/stint-go/stint"
)

// shrink returns fewer and smaller steps after which a store still differs from the model: without whole steps, without
// operations of a batch, without claims, without limits of a policy.
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
		for _, smaller := range []func([]step, int) [][]step{withoutOps, withoutClaims, withoutLimits} {
			for i := len(steps) - 1; i >= 0; i-- {
				for _, less := range smaller(steps, min(i, len(steps)-1)) {
					if done, ok := fails(less); ok {
						steps = less[:done]
						break
					}
				}
			}
		}
	}
	return steps
}

func size(steps []step) (n int) {
	for _, s := range steps {
		n++
		for _, op := range s.ops {
			n += 1 + len(op.And) + op.Limits()
		}
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

// withoutClaims leaves out a policy's claim wherever it goes together with another.
func withoutClaims(steps []step, at int) (lists [][]step) {
	for _, op := range steps[at].ops {
		for _, c := range op.And {
			for _, name := range []string{op.Policy.Name(), c.Policy.Name()} {
				lists = append(lists, each(steps, func(op *stint.Op) {
					claims := append([]stint.Claim{op.Claim}, op.And...)
					claims = slices.DeleteFunc(claims, func(c stint.Claim) bool { return c.Policy.Name() == name })
					if len(claims) > 0 {
						for i := range claims { // what was behind the first of a group's claims goes on as a group
							if claims[i].Way >= stint.With && (i == 0 || claims[i-1].Way == stint.Must) {
								claims[i].Way = stint.Either
							}
						}
						op.Claim, op.And = claims[0], claims[1:]
					}
				}))
			}
		}
	}
	return lists
}

// withoutLimits leaves out one limit in all versions of a policy.
func withoutLimits(steps []step, at int) (lists [][]step) {
	for _, op := range steps[at].ops {
		for _, c := range append([]stint.Claim{op.Claim}, op.And...) {
			for _, gone := range c.Policy.Limits() {
				if c.Policy.Len() == 1 {
					continue
				}
				made := map[*stint.Policy]*stint.Policy{}
				without := func(p *stint.Policy) *stint.Policy {
					if p.Name() != c.Policy.Name() {
						return p
					}
					if made[p] == nil {
						limits := slices.DeleteFunc(p.Limits(), func(l stint.Limit) bool { return l.Name == gone.Name })
						made[p], _ = stint.NewPolicy(p.Name(), limits...)
					}
					return made[p]
				}
				lists = append(lists, each(steps, func(op *stint.Op) {
					op.Policy = without(op.Policy)
					op.And = slices.Clone(op.And)
					for i := range op.And {
						op.And[i].Policy = without(op.And[i].Policy)
					}
				}))
			}
		}
	}
	return lists
}

// each is the steps with a change to all operations. An operation that is not valid any more is left out.
func each(steps []step, change func(*stint.Op)) []step {
	changed := make([]step, 0, len(steps))
	for _, s := range steps {
		ops := make([]stint.Op, 0, len(s.ops))
		for _, op := range s.ops {
			change(&op)
			if op.Validate() == nil {
				ops = append(ops, op)
			}
		}
		if s.ops = ops; len(ops) > 0 || s.reset != nil {
			changed = append(changed, s)
		}
	}
	return changed
}
