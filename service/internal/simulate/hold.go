package simulate

import (
	"container/heap"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
)

// A holding is what an admitted request holds until it ends. Nothing of it expires, as its client
// renews.
type holding struct {
	since stint.Instant
	parts []part // of the limits
}

// A part is what a request holds of a limit. The client is known by its key, since halving a sample
// numbers clients anew.
type part struct {
	table  *table
	limit  *limit
	key    key
	piece  algorithm.Piece
	kept   int64 // of the piece, at the end
	charge int64 // beyond it, at the end
}

// bytes is about how much memory it takes, its place among those that wake included.
func (h *holding) bytes() int64 {
	return int64(unsafe.Sizeof(*h)) + 2*int64(unsafe.Sizeof(wake{})) + int64(len(h.parts))*int64(unsafe.Sizeof(part{}))
}

// requireHold refuses a request that does not hold, for which a rule with a concurrency limit
// holds, or one that counts by answers.
func (c *candidate) requireHold(r *request, ev *Event) {
	_ = c.limiter.Steps().Prepare(&ev.Request, &r.verdict, stint.VerbReserve) // which its taker is told
	for _, of := range r.verdict.Claims() {
		if (of.Rule.NeedsReserve() || of.Claim.Policy.NeedsReserve()) && c.store.fault == nil {
			c.store.fault = stint.Invalid(
				"hold", fmt.Sprintf("missing in line %d", ev.Line),
				fmt.Sprintf("a duration, in the column hold or as the hold of a "+
					"pattern, for each request of rule %s: only reserves are decided by its concurrency limit or count", of.Rule.ID),
			)
		}
	}
}

// canHold says why a service refuses to reserve what a rule claims; nil: it does not.
func canHold(of *stint.Claim) error {
	op := stint.Op{Verb: stint.VerbReserve, Claim: *of}
	op.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: "simulated"}}}
	return op.Validate()
}

// hold has a request hold what the limits that decided last have admitted.
func (c *candidate) hold(r *request) {
	claims := r.verdict.Claims()
	h := &holding{since: r.time, parts: make([]part, 0, len(c.store.ops))}
	for i := range c.store.ops {
		if !c.store.Charged(i) {
			continue
		}
		op := &c.store.ops[i]
		h.parts = append(h.parts, part{
			table: op.table, limit: op.limit, key: r.claims[op.claim].key, piece: op.limit.hold(op.client, op.permits),
			kept: op.permits,
		})
		p := &h.parts[len(h.parts)-1]
		if p.key.text = ""; p.key.last >= longMark {
			p.key.text = strings.Clone(r.claims[op.claim].key.text) // and not what was read around it
		}
		switch actual := r.hold.Actual; {
		case p.limit.Algorithm == stint.AlgorithmConcurrency:
			p.kept = 0
		case !p.limit.machine.Settles() || !p.limit.machine.Returns(): // a commit changes nothing of it
		case r.status > 0 && !claims[op.claim].Rule.Count.Has(r.status):
			p.kept = 0
		case actual >= 0 && claims[op.claim].Asked:
			p.kept, p.charge = min(actual, op.permits), max(0, actual-op.permits)
		}
		r.charges = r.charges || p.charge > 0
	}
	c.store.memory.take(h.bytes())
	c.store.memory.holds++
	heap.Push(&c.wakes, wake{at: r.time.Add(r.hold.For), number: c.arrive(), holding: h})
}

// end ends a hold, as a commit does.
func (c *candidate) end(h *holding, now stint.Instant) {
	c.store.memory.take(-h.bytes())
	c.store.memory.holds--
	for i := range h.parts {
		p := &h.parts[i]
		client, out := int32(-1), stint.Outcome{}
		if at, known := p.table.look(&p.key); known {
			client = numberOf(p.table.index[at])
			p.limit.end(client, now, p, &out)
		}
		p.limit.window.giveBack(client, h.since, p.piece.N-p.kept)
		if out.Applied > 0 {
			p.limit.window.add(client, now, out.Applied)
		}
	}
}

// untilExpiry says of limits that admit no more before a hold ends when that is at the latest if nobody renews: a hold
// that is renewed lasts for its TTL at most.
func (s *store) untilExpiry(claims []claim) {
	longest := stint.Hold{}
	for i := range s.ops {
		op, out := &s.ops[i], &s.Outs[i]
		if out.Allowed || out.RetryAfter != stint.Never || op.permits > op.limit.Capacity-op.keep {
			continue
		}
		for j := range claims {
			if rule := claims[j].rule; rule != nil {
				longest.TTL = max(longest.TTL, rule.rule.Reserve.TTL)
			}
		}
		out.RetryAfter = bounds.HoldTTL(longest.TTL)
	}
}

// hold has a request hold n permits of a client's state that were just taken, and returns what comes back of it.
func (l *limit) hold(client int32, n int64) (piece algorithm.Piece) {
	m := &l.machine
	if m.HasPlaces() { // which store.save has held
		return algorithm.Piece{N: n}
	}
	var state algorithm.State
	l.state.load(client, &state)
	piece = m.Hold(&state, n)
	l.state.save(client, &state)
	return piece
}

// end ends a hold's part of a client's state, and charges what it cost beyond what was held.
func (l *limit) end(client int32, now stint.Instant, p *part, out *stint.Outcome) {
	m := &l.machine
	var state algorithm.State
	l.state.load(client, &state)
	m.EndHold(&state, now, []algorithm.Piece{p.piece}, p.piece.N, p.kept, math.MinInt64)
	if p.charge > 0 {
		m.Apply(algorithm.Settle, &state, now, p.charge, 0, out)
	}
	l.state.save(client, &state)
}
