package oracle_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
)

// step lets some time pass, and does one random operation on the store and on the model. It returns in what they
// differ.
func (tr *tree) step() string {
	tr.pass()
	tr.expire()
	n := tr.nodes[tr.rng.IntN(len(tr.nodes))]
	if len(n.children) > 0 && tr.rng.IntN(3) > 0 { // mostly users ask
		n = n.children[tr.rng.IntN(len(n.children))]
	}
	switch kind := tr.rng.IntN(40); {
	case kind < 18:
		return tr.take(n)
	case kind < 24:
		return tr.reserve(n)
	case kind < 27:
		return tr.grow()
	case kind < 34:
		return tr.end()
	case kind < 36 && tr.overdrafts:
		return tr.settle(n)
	case kind < 37 && tr.resets && tr.rng.IntN(3) == 0:
		return tr.reset(n)
	case kind < 38 && tr.changes:
		tr.change(n)
		return ""
	}
	return tr.take(n)
}

// pass moves the clock, at times to an expiry, at times back, but not to before an expiry, and by less than a second.
func (tr *tree) pass() {
	short := tr.period.Microseconds() / tr.nodes[0].limit.Rate.Permits
	switch kind := tr.rng.IntN(40); {
	case tr.busy && kind%8 < 6:
	case kind < 16:
		tr.clock.Advance(time.Duration(tr.rng.Int64N(tr.pick(2, short+1, 4*short+1))) * time.Microsecond)
	case kind < 20 && !tr.busy:
		tr.clock.Advance(time.Duration(tr.rng.Int64N(tr.period.Microseconds())) * time.Microsecond)
	case kind < 21 && !tr.busy:
		tr.clock.Advance(time.Duration(tr.rng.Int64N(20)) * tr.period)
	case kind < 23 && len(tr.holds) > 0:
		if at := tr.holds[tr.rng.IntN(len(tr.holds))].expires + stint.Instant(tr.rng.IntN(3)-1); at > tr.clock.Instant() {
			tr.clock.Set(at)
		}
	case kind < 25 && tr.back:
		tr.setBack(max(tr.clock.Instant()-stint.Instant(tr.rng.Int64N(farthestBack)), tr.highest-farthestBack, tr.safe))
	}
	tr.highest = max(tr.highest, tr.clock.Instant())
}

// setBack sets the clock back.
func (tr *tree) setBack(to stint.Instant) {
	before := tr.clock.Instant()
	if to >= before {
		return
	}
	tr.clock.Set(to)
	for _, n := range tr.nodes {
		if to < n.paidAt {
			n.late, n.paid = n.late+n.paid, 0
		}
	}
	for _, n := range tr.nodes[1:] {
		late := n.limit.Capacity
		if !tr.changes { // else it may refill by another rate still
			late = min(late, ceil(quo(rat(int64(before-to)), permitTime(n.limit))))
		}
		n.parent.late += late
	}
}

// expire lets holds expire, in order of instants.
func (tr *tree) expire() {
	now := tr.clock.Instant()
	slices.SortStableFunc(tr.holds, func(a, b *treeHold) int { return int(a.expires - b.expires) })
	for _, h := range tr.holds {
		if h.expired || h.expires > now {
			continue
		}
		h.expired = true
		tr.safe = max(tr.safe, h.expires)
	}
	tr.holds = slices.DeleteFunc(tr.holds, func(h *treeHold) bool { // it is forgotten soon
		return h.expired && now > h.expires+stint.Instant(max(2*h.ttl, time.Minute).Microseconds())-stint.Instant(time.Second.Microseconds())
	})
}

// permits draws a cost: mostly small, else about what is left of something.
func (tr *tree) permits(n *node) int64 {
	path := n.path()
	at := path[tr.rng.IntN(len(path))]
	return max(1, tr.pick(1, 1, 1+tr.rng.Int64N(3), at.left, at.left-at.floors(), at.left+1, 1+tr.rng.Int64N(at.limit.Capacity)))
}

// ask has a request decided, and counts how.
func (tr *tree) ask(op stint.Op) (d stint.Decision, fault string) {
	d, _, fault = tr.decide(op)
	switch {
	case !d.Allowed:
		tr.denied++
	case d.Via == 0:
		tr.floored++
	default:
		tr.borrowed++
	}
	return d, fault
}

func (tr *tree) take(n *node) string {
	permits := tr.permits(n)
	d, fault := tr.ask(n.op(stint.VerbTake, permits))
	tr.say("%s takes %d: %v, via %d", n.name, permits, d, d.Via)
	return fault
}

func (tr *tree) reserve(n *node) string {
	h := &treeHold{of: n, ttl: time.Second + time.Duration(tr.rng.Int64N(20_000_000))*time.Microsecond, keep: tr.rng.IntN(3) == 0}
	for _, old := range tr.holds {
		if old.expired && !old.keep && tr.rng.IntN(2) == 0 { // reserved anew, in any way
			h.id, h.of, h.ttl = old.id, old.of, old.ttl
			break
		}
	}
	if h.id == "" {
		if tr.live() >= 12 {
			return ""
		}
		tr.ids++
		h.id = fmt.Sprint("h", tr.ids)
	}
	permits := tr.permits(h.of)
	op := h.of.op(stint.VerbReserve, permits)
	op.Extra.Hold = &stint.HoldOp{Hold: stint.Hold{ID: h.id, TTL: h.ttl, OnExpiry: stint.Expiry(h.keep)}}
	d, fault := tr.ask(op)
	tr.say("%s reserves %d as %s for %v, keep %t: %v, via %d", h.of.name, permits, h.id, h.ttl, h.keep, d, d.Via)
	if fault != "" || !d.Allowed {
		return fault
	}
	tr.holds = slices.DeleteFunc(tr.holds, func(old *treeHold) bool { return old.id == h.id })
	h.via, h.held, h.expires = int(d.Via), permits, op.Hold().ExpiresAt
	tr.holds = append(tr.holds, h)
	return ""
}

func (tr *tree) live() (live int) {
	for _, h := range tr.holds {
		if !h.expired {
			live++
		}
	}
	return live
}

// one is a random hold.
func (tr *tree) one(expired bool) *treeHold {
	for range 4 {
		if len(tr.holds) > 0 {
			if h := tr.holds[tr.rng.IntN(len(tr.holds))]; h.expired == expired {
				return h
			}
		}
	}
	return nil
}

// grow asks for more of a hold, on the way that it is on, or only for more time.
func (tr *tree) grow() string {
	h := tr.one(false)
	if h == nil {
		return ""
	}
	total := max(1, h.held+tr.pick(-1, 0, 1, 2, tr.rng.Int64N(5)))
	op := h.of.op(stint.VerbReserve, total)
	op.Extra.Hold = &stint.HoldOp{Hold: stint.Hold{ID: h.id, TTL: h.ttl, OnExpiry: stint.Expiry(h.keep)}}
	d, fault := tr.ask(op)
	tr.say("%s grows %s from %d to %d: %v, via %d", h.of.name, h.id, h.held, total, d, d.Via)
	if fault != "" || !d.Allowed {
		return fault
	}
	h.held, h.expires = max(h.held, total), op.Hold().ExpiresAt
	return ""
}

// end commits or cancels a hold. In some episodes commits are for more than is held, and late.
func (tr *tree) end() string {
	h := tr.one(tr.overdrafts && tr.rng.IntN(6) == 0)
	if h == nil {
		return ""
	}
	actual := tr.pick(0, h.held, tr.rng.Int64N(h.held+1))
	if tr.overdrafts && tr.rng.IntN(3) == 0 {
		actual = h.held + 1 + tr.rng.Int64N(2+h.held)
	}
	verb := stint.VerbCommit
	if !h.expired && tr.rng.IntN(5) == 0 {
		verb, actual = stint.VerbCancel, 0
	}
	op := h.of.op(verb, actual)
	op.Extra.Hold = &stint.HoldOp{Hold: stint.Hold{ID: h.id, TTL: h.ttl, ExpiresAt: h.expires}}
	d, want, fault := tr.decide(op)
	tr.say("%s: %v of %d of %d as %s: %v, via %d, late %t", h.of.name, verb, actual, h.held, h.id, d, d.Via, op.Hold().Late)
	if fault != "" {
		return fault
	}
	tr.holds = slices.DeleteFunc(tr.holds, func(old *treeHold) bool { return old == h })
	tr.forced(op, want)
	return ""
}

// forced counts what was charged that was not asked.
func (tr *tree) forced(op stint.Op, want oracle.Answer) {
	for i, outcome := range want.Each {
		_, claim := op.LimitAt(i)
		if n := tr.named(claim.Policy.Name()); outcome.Applied > 0 {
			n.late += outcome.Applied
		}
	}
}

func (tr *tree) named(name string) *node {
	return tr.nodes[slices.IndexFunc(tr.nodes, func(n *node) bool { return n.name == name })]
}

// settle charges a node and those above it.
func (tr *tree) settle(n *node) string {
	permits := 1 + tr.rng.Int64N(n.limit.Capacity)
	path := n.path()
	op := stint.Op{Verb: stint.VerbSettle, Claim: path[0].claim(permits)}
	for _, p := range path[1:] {
		op.And = append(op.And, p.claim(permits))
	}
	d, want, fault := tr.decide(op)
	tr.say("%s settles %d: %v", n.name, permits, d)
	tr.forced(op, want)
	return fault
}

// reset resets one bucket.
func (tr *tree) reset(n *node) string {
	d, _, fault := tr.decide(stint.Op{Verb: stint.VerbReset, Claim: n.claim(1)})
	tr.say("%s is reset: %v", n.name, d)
	if n.parent != nil {
		n.parent.late += n.limit.Capacity
	}
	return fault
}

// change gives a floor another capacity and rate, which its parent and its children allow.
func (tr *tree) change(n *node) {
	if n.parent == nil {
		return
	}
	most, fastest := n.parent.limit.Capacity, n.parent.limit.Rate.Permits
	for _, sibling := range n.parent.children {
		if sibling != n {
			most, fastest = most-sibling.limit.Capacity, fastest-sibling.limit.Rate.Permits
		}
	}
	least, slowest := max(1, n.floors()), int64(0)
	for _, c := range n.children {
		slowest += c.limit.Rate.Permits
	}
	before := n.limit.Capacity
	slowest = max(1, slowest)
	tr.set(n, least+tr.rng.Int64N(most-least+1), slowest+tr.rng.Int64N(fastest-slowest+1), n.limit.MaxDebt)
	n.late += max(before, n.limit.Capacity)
	n.parent.late += n.limit.Capacity
	tr.say("%s has %d at %v now", n.name, n.limit.Capacity, n.limit.Rate)
}
