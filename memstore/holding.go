package memstore

import (
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// holding is what is held of one state. It stands beside the slot, in the shard's map, as a log does; the slot's epoch
// says that there is one.
//
//	held = sum over parts of n
type holding struct {
	parts []*part // in the order in which they expire
	held  int64   // permits of all of them
}

// part is what one hold holds of one state. It changes while the state's shard is locked.
type part struct {
	hold  *hold
	limit *limit // by which it was last taken
	// in is nil if nothing is held, or what was held has been reset or evicted.
	in *holding
	n  int64 // permits held
	// kept is how many permits an expiry has charged.
	kept   int64
	pieces []algorithm.Piece
	// on says that the limit is of a way that the hold is on; dropped, that a Drop let it expire.
	on, dropped bool
}

// partBytes is about what a part takes, with its pieces and its place in a holding.
const partBytes = 104

// gone reports whether what the part held is not in a holding any more, that of the state.
func (part *part) gone(of *holding) bool { return part.n > 0 && (part.in == nil || part.in != of) }

// keeps is how many permits of the part an expiry charges.
func (part *part) keeps() int64 {
	switch {
	case part.limit.HasPlaces():
		return 0
	case part.hold.keep || !part.limit.adjustable():
		return part.n
	}
	return 0
}

// expire notes an expiry, whose effect on the state has been computed.
func (part *part) expire() {
	part.hold.noticed.Store(true)
	part.lapse()
}

// lapse leaves of the part what an expiry charges.
func (part *part) lapse() {
	if part.hold.keep && !part.limit.HasPlaces() {
		part.kept += part.n
	}
	part.in, part.n, part.pieces = nil, 0, nil
}

// expireDue lets expire what is due of a state, as the limit wrote it that did. Nothing is changed but the
// limitOp's own state; saveHolding does the rest, if the operation changes anything.
func (p *limitOp) expireDue(writer *algorithm.Machine, now stint.Instant) {
	h := p.holding
	for p.due < len(h.parts) && h.parts[p.due].hold.expires <= now {
		part := h.parts[p.due]
		writer.EndHold(&p.state, part.hold.expires, part.pieces, part.n, part.keeps(), 0)
		p.due++
	}
	p.lost = p.limit.Lost(&p.state, now, writer)
}

// expireIn lets the part expire in a state at an instant, and makes of it what the limit has of it then.
func (part *part) expireIn(l *limit, st *algorithm.State, at, lost stint.Instant) {
	l.Expire(st, at, part.pieces, part.n, part.keeps(), lost)
}

// apply carries out an action of limitOp i, and notes whether that changed it. What it says of waits takes into
// account that what is held expires.
func (ops limitOps) apply(i int, action algorithm.Action, now stint.Instant, n int64, out *stint.Outcome) {
	p, o := &ops[i], ops.owner(i)
	if p.limit.Apply(action, &o.state, now, n, p.keep, out) {
		o.changed = true
	}
	if o.holding == nil || len(o.holding.parts) == o.due {
		return
	}
	if !out.Allowed && n <= p.limit.Capacity()-p.keep {
		out.RetryAfter = ops.retryAfter(i, now, n, out.RetryAfter)
	}
	if p.limit.HasPlaces() {
		last := o.holding.parts[len(o.holding.parts)-1]
		out.ResetAfter = time.Duration(last.hold.expires-now) * time.Microsecond
	}
}

// retryAfter is how long until n permits would be admitted of limitOp i: own is how long if nothing expired.
func (ops limitOps) retryAfter(i int, now stint.Instant, n int64, own time.Duration) time.Duration {
	p, o := &ops[i], ops.owner(i)
	return o.wait(now, o.own, own, func(st *algorithm.State, at stint.Instant) time.Duration {
		var then stint.Outcome
		p.limit.Apply(algorithm.Peek, st, at, n, p.keep, &then)
		return then.RetryAfter
	})
}

// wait is how long something takes, such as until n permits would be admitted, if nobody took, renewed or ended
// anything: own is how long if nothing expired either, and then how long after an instant, of the state then. A hold
// that asks for more is there all the while.
func (p *limitOp) wait(
	now stint.Instant, asking *part, own time.Duration, then func(*algorithm.State, stint.Instant) time.Duration,
) time.Duration {
	st := p.state.Clone()
	ready := readyAt(now, own)
	for _, part := range p.holding.parts[p.due:] {
		at := part.hold.expires
		if ready < at {
			break
		}
		if part == asking {
			continue
		}
		part.expireIn(p.limit, &st, at, p.lost)
		if ready = readyAt(at, then(&st, at)); ready == at {
			break
		}
	}
	if ready == math.MaxInt64 {
		return stint.Never
	}
	return time.Duration(ready-now) * time.Microsecond
}

// readyAt is when a wait is over, or a time after all others.
func readyAt(now stint.Instant, wait time.Duration) stint.Instant {
	if wait == stint.Never {
		return math.MaxInt64
	}
	return now.Add(wait)
}

// grows is how long until more remains than limitOp i has said.
func (ops limitOps) grows(i int, now stint.Instant, remaining int64) time.Duration {
	p, o := &ops[i], ops.owner(i)
	grows := p.limit.GrowsAfter(&o.state, now, p.keep, remaining)
	if o.holding == nil || len(o.holding.parts) == o.due {
		return grows
	}
	return o.wait(now, nil, grows, func(st *algorithm.State, at stint.Instant) time.Duration {
		return p.limit.GrowsAfter(st, at, p.keep, remaining)
	})
}

// add puts a part where it expires.
func (h *holding) add(part *part) {
	at, _ := slices.BinarySearchFunc(h.parts, part.hold.expires+1, compareExpiry)
	h.parts = slices.Insert(h.parts, at, part)
	h.held += part.n
	part.in = h
}

// remove takes a part out. The hold's expiry is still the one by which it was added.
func (h *holding) remove(part *part) {
	at, _ := slices.BinarySearchFunc(h.parts, part.hold.expires, compareExpiry)
	h.removeAt(at + slices.Index(h.parts[at:], part))
}

// removeAt takes out the part at a place.
func (h *holding) removeAt(at int) {
	part := h.parts[at]
	h.parts = slices.Delete(h.parts, at, at+1)
	h.held -= part.n
	part.in = nil
}

// compareExpiry orders parts by when they expire.
func compareExpiry(part *part, at stint.Instant) int {
	switch {
	case part.hold.expires < at:
		return -1
	case part.hold.expires > at:
		return 1
	}
	return 0
}

// saveHolding makes what load found out come true: what was due has expired, and what was reset is not held any more.
func (s *Store) saveHolding(t *shard, p *limitOp) {
	if known := t.held[p.hash]; known != nil && known != p.holding {
		s.dropHolding(t, p.hash, longAgo) // of another limit, whose hash is the same
	}
	h := p.holding
	if h == nil {
		return
	}
	for _, part := range h.parts[:p.due] {
		h.held -= part.n
		part.expire()
	}
	h.parts = slices.Delete(h.parts, 0, p.due)
	p.due = 0
	p.forgetPieces()
	switch {
	case len(h.parts) == 0:
		p.holding = nil
		s.dropHolding(t, p.hash, longAgo)
	case t.held == nil:
		t.held = map[uint64]*holding{}
		fallthrough
	default:
		t.held[p.hash] = h
	}
}

// forgetPieces notes that what was taken over from a window of another length can't be told from others' any more: a
// counter's counts, and what a log no longer has. What is held of these does not come back.
func (p *limitOp) forgetPieces() {
	if p.lost == 0 {
		return
	}
	for _, part := range p.holding.parts {
		part.pieces = slices.DeleteFunc(part.pieces, func(piece algorithm.Piece) bool { return piece.At <= p.lost })
	}
	p.lost = 0
}

// dropHolding lets go of what was held of a state that is no more since an instant. What had expired by then has; the
// rest is gone.
func (s *Store) dropHolding(t *shard, hash uint64, at stint.Instant) {
	h := t.held[hash]
	if h == nil {
		return
	}
	for _, part := range h.parts {
		switch {
		case part.in != h: // it has been reserved anew since a reset
		case part.hold.expires <= at:
			part.expire()
		default:
			part.in = nil
		}
	}
	delete(t.held, hash)
	if len(t.held) == 0 {
		t.held = nil // a map does not shrink
	}
}

// Wake implements [stint.Waker]: it tells of holds that end, and of resets.
func (s *Store) Wake(key string, policy *stint.Policy, wake func()) (stop func()) {
	plan := s.plan(policy)
	if plan.fault != nil {
		return func() {} // nothing is decided
	}
	hashes := make([]uint64, len(plan.limits))
	for i := range hashes {
		hashes[i] = s.hash(key, &plan.limits[i])
	}
	return s.waiters.Add(hashes, wake)
}

// wake tells those who wait for one of the states.
func (s *Store) wake(ops []limitOp) {
	for i := range ops {
		s.waiters.Wake(ops[i].hash)
	}
}

// list carries out a List.
func (s *Store) list(op *stint.Op) (stint.Decision, error) {
	ops, err := s.limitOps(op, nil)
	if err != nil {
		return stint.Decision{}, err
	}
	locks := s.lock(ops, nil)
	defer s.unlock(locks)
	for i := range ops {
		s.hold(s.shard(ops[i].hash), &ops[i])
	}
	now := s.decidedTogether(locks)
	var list []stint.HoldState
	for i := range ops {
		p, t := &ops[i], s.shard(ops[i].hash)
		s.load(t, p, now)
		if p.holding != nil {
			live := p.holding.parts[p.due:]
			for _, part := range live[:min(len(live), stint.MaxListed)] {
				list = append(list, stint.HoldState{ID: part.hold.id, Limit: i, Permits: part.n, ExpiresAt: part.hold.expires})
			}
		}
		s.save(t, p)
	}
	slices.SortStableFunc(list, func(a, b stint.HoldState) int { return int(a.ExpiresAt - b.ExpiresAt) })
	*op.Live = list
	return stint.Decision{Allowed: true, At: now}, nil
}
