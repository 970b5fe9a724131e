package simulate

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/rules"
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
// holds.
func (c *candidate) requireHold(ev *Event, rule *rules.Rule) {
	if ev.Hold == nil && c.store.fault == nil {
		c.store.fault = stint.Invalid(
			"hold", fmt.Sprintf("missing in line %d", ev.Line),
			fmt.Sprintf("a duration, in the column hold or as the hold of a "+
				"pattern, for each request of rule %s: only reserves take of its concurrency limit", rule.ID),
		)
	}
}

// hold has a request hold what the limits that decided last have admitted. It reports whether more than that will be
// charged at its end.
func (c *candidate) hold(r *request) (charges bool) {
	if len(c.store.ops) == 0 {
		return false
	}
	named := slices.ContainsFunc(r.claims, func(cl claim) bool { return cl.named })
	h := &holding{since: r.time, parts: make([]part, 0, len(c.store.ops))}
	for i := range c.store.ops {
		if !c.store.Charged(i) {
			continue
		}
		op := &c.store.ops[i]
		cl := &r.claims[op.claim]
		h.parts = append(h.parts, part{
			table: op.table, limit: op.limit, key: cl.key, piece: op.limit.hold(op.client, op.permits), kept: op.permits,
		})
		p := &h.parts[len(h.parts)-1]
		if p.key.text = ""; p.key.last >= longMark {
			p.key.text = strings.Clone(cl.key.text) // and not what was read around it
		}
		switch actual := r.hold.Actual; {
		case p.limit.Algorithm == stint.AlgorithmConcurrency:
			p.kept = 0
		case actual >= 0 && (cl.named || !named):
			p.kept, p.charge = min(actual, op.permits), max(0, actual-op.permits)
		}
		charges = charges || p.charge > 0
	}
	c.store.memory.take(h.bytes())
	c.store.memory.holds++
	c.waiting.arrived++
	heap.Push(&c.waiting.wakes, wake{at: r.time.Add(r.hold.For), number: c.waiting.arrived, holding: h})
	return charges
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
			longest.TTL = max(longest.TTL, claims[j].rule.rule.Reserve.TTL)
		}
		out.RetryAfter = longest.Lives()
	}
}

// hold has a request hold n permits of a client's state that were just taken, and returns what comes back of it.
func (l *limit) hold(client int32, n int64) (piece algorithm.Piece) {
	m := l.state.machine()
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
	m := l.state.machine()
	var state algorithm.State
	l.state.load(client, &state)
	m.EndHold(&state, now, []algorithm.Piece{p.piece}, p.piece.N, p.kept, math.MinInt64)
	if p.charge > 0 {
		m.Apply(algorithm.Settle, &state, now, p.charge, 0, out)
	}
	l.state.save(client, &state)
}
