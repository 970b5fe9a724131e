package memstore

import (
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/ways"
)

// prepare finds the states. It reports whether the hold is known by the same ones.
func (r *holdOp) prepare() (same bool, err error) {
	r.ops, err = r.store.limitOps(r.op, nil)
	r.outs, r.asked = make([]stint.Outcome, len(r.ops)), r.op.Ways()
	if r.hold == nil || len(r.ops) != len(r.hold.hashes) {
		return false, err
	}
	same = slices.Equal(r.asked, r.hold.ways)
	for i := 0; same && i < len(r.ops); i++ {
		same = r.ops[i].hash == r.hold.hashes[i]
	}
	if !same {
		r.order = r.orderIn(r.hold)
	}
	return same || r.order != nil, err
}

// orderIn finds the limits in a hold that has them in another order; nil: it has others. Only the order of limits
// within a way, and of those of no group, may be another one.
func (r *holdOp) orderIn(h *hold) (order []int) {
	mine, theirs := ways.Numbers(r.asked), ways.Numbers(h.ways)
	if len(mine) != len(theirs) {
		return nil
	}
	used := make([]bool, len(h.hashes))
	for i := range r.ops {
		j := 0
		for j < len(used) && (used[j] || h.hashes[j] != r.ops[i].hash || len(mine) > 0 && mine[i] != theirs[j]) {
			j++
		}
		if j == len(used) {
			return nil
		}
		used[j] = true
		order = append(order, j)
	}
	return order
}

// part is what the hold has of limit i of the operation.
func (r *holdOp) part(i int) *part { return &r.hold.parts[r.place(i)] }

// place is where the hold has limit i of the operation.
func (r *holdOp) place(i int) int {
	if r.order == nil {
		return i
	}
	return r.order[i]
}

// costs are what a commit says each limit has cost, as the hold has them.
func (r *holdOp) costs() []int64 {
	costs := make([]int64, len(r.ops))
	for i := range r.ops {
		costs[r.place(i)] = r.ops[i].permits
	}
	return costs
}

// again reports whether the operation asks for the end that the hold has had.
func (r *holdOp) again(end stint.HoldEnd) bool {
	if r.op.Verb == stint.Commit {
		return end == stint.HoldCommitted && slices.Equal(r.costs(), r.hold.actual)
	}
	return r.op.Verb == stint.Cancel && end == stint.HoldCancelled
}
