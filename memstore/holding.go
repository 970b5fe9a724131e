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
	case part.limit.places != nil:
		return 0
	case part.hold.keep || part.limit.cost > 0 || part.limit.leaky != nil:
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
	if part.hold.keep && part.limit.places == nil {
		part.kept += part.n
	}
	part.in, part.n, part.pieces = nil, 0, nil
}

// expireDue lets expire what is due of a state, as the limit wrote it that did. Nothing is changed but the
// limitOp's own state; saveHolding does the rest, if the operation changes anything.
func (p *limitOp) expireDue(writer *limit, now stint.Instant) {
	h := p.holding
	for p.due < len(h.parts) && h.parts[p.due].hold.expires <= now {
		part := h.parts[p.due]
		p.state.expire(writer, part.hold.expires, part, 0)
		p.due++
	}
	switch {
	case writer.counter != nil && p.limit.counter != nil && !writer.counter.SameLength(p.limit.counter):
		p.lost = math.MaxInt64
	case writer.log != nil && writer != p.limit:
		p.lost = max(writer.log.Left(&p.state.log, now), p.limit.log.Left(&p.state.log, now))
	}
}

// endPart takes a part out of a state at an instant, of which so many permits stay charged, and returns how many came
// back. Pieces of the time lost and before do not. The part stays as it was.
func (l *limit) endPart(st *state, at stint.Instant, part *part, kept int64, lost stint.Instant) (back int64) {
	switch l.algorithm {
	case stint.AlgorithmTokenBucket:
		b := st.tokens()
		back = l.token.EndHold(&b, at, part.n, kept)
		st.setBucket(&b)
	case stint.AlgorithmConcurrency:
		back = part.n
	default:
		back = giveBack(part.pieces, part.n-kept, lost, func(p algorithm.Piece) int64 {
			return l.giveBackPiece(st, at, p)
		})
	}
	st.held -= part.n
	return back
}

// expirePart lets a part expire at an instant, and makes of the state what the limit has of it then.
func (l *limit) expirePart(st *state, at stint.Instant, part *part, lost stint.Instant) {
	if st.expire(l, at, part, lost); st.changed != nil {
		l.read(st, at)
	}
}

// expire lets a part expire at an instant, as the limit that wrote the state carries it on.
func (st *state) expire(writer *limit, at stint.Instant, part *part, lost stint.Instant) {
	if st.changed != nil {
		st.changed.endPart(st, at, part)
	} else {
		writer.endPart(st, at, part, part.keeps(), lost)
	}
}

// giveBack gives back permits, the newest pieces first, where they still count.
func giveBack(
	pieces []algorithm.Piece, n int64, lost stint.Instant, one func(algorithm.Piece) int64,
) (back int64) {
	for _, piece := range slices.Backward(pieces) {
		piece.N = min(piece.N, n)
		if n -= piece.N; piece.N == 0 || piece.At <= lost {
			break
		}
		back += one(piece)
	}
	return back
}

// giveBackPiece gives back a piece where it still counts. With none it brings the state up to an instant.
func (l *limit) giveBackPiece(st *state, at stint.Instant, piece algorithm.Piece) (back int64) {
	switch l.algorithm {
	case stint.AlgorithmFixedWindow:
		w := st.window()
		back = l.window.GiveBack(&w, at, piece)
		st.setWindow(&w)
	case stint.AlgorithmSlidingWindowCounter:
		c := st.counter()
		back = l.counter.GiveBack(&c, at, piece)
		st.setCounter(&c)
	case stint.AlgorithmSlidingWindowLog:
		back = l.log.GiveBack(&st.log, at, piece)
	default: // a bucket's permits come back otherwise, or not at all
	}
	return back
}

// piece is what n permits that were just taken are a hold's.
func (l *limit) piece(st *state, n int64) algorithm.Piece {
	switch l.algorithm {
	case stint.AlgorithmFixedWindow:
		w := st.window()
		return l.window.Piece(&w, n)
	case stint.AlgorithmSlidingWindowCounter:
		c := st.counter()
		return l.counter.Piece(&c, n)
	case stint.AlgorithmSlidingWindowLog:
		return l.log.Piece(&st.log, n)
	default:
		return algorithm.Piece{N: n}
	}
}

// apply carries out an action of limitOp i, and notes whether that changed it. What it says of waits takes into
// account that what is held expires.
func (ops limitOps) apply(i int, action algorithm.Action, now stint.Instant, n int64, out *stint.Outcome) {
	p, o := &ops[i], ops.owner(i)
	if p.limit.apply(action, &o.state, now, n, p.keep, out) {
		o.changed = true
	}
	if o.holding == nil || len(o.holding.parts) == o.due {
		return
	}
	if !out.Allowed && n <= p.limit.capacity-p.keep {
		out.RetryAfter = ops.retryAfter(i, now, n, out.RetryAfter)
	}
	if p.limit.places != nil {
		last := o.holding.parts[len(o.holding.parts)-1]
		out.ResetAfter = time.Duration(last.hold.expires-now) * time.Microsecond
	}
}

// retryAfter is how long until n permits would be admitted of limitOp i: own is how long if nothing expired.
func (ops limitOps) retryAfter(i int, now stint.Instant, n int64, own time.Duration) time.Duration {
	p, o := &ops[i], ops.owner(i)
	return o.wait(now, o.own, own, func(st *state, at stint.Instant) time.Duration {
		var then stint.Outcome
		p.limit.apply(algorithm.Peek, st, at, n, p.keep, &then)
		return then.RetryAfter
	})
}

// wait is how long something takes, such as until n permits would be admitted, if nobody took, renewed or ended
// anything: own is how long if nothing expired either, and then how long after an instant, of the state then. A hold
// that asks for more is there all the while.
func (p *limitOp) wait(
	now stint.Instant, asking *part, own time.Duration, then func(*state, stint.Instant) time.Duration,
) time.Duration {
	var st state
	st.set(&p.state.words)
	st.log, st.held = p.state.log, p.state.held
	if p.state.changed != nil {
		changed := *p.state.changed
		st.changed = &changed
	}
	ready := readyAt(now, own)
	for _, part := range p.holding.parts[p.due:] {
		at := part.hold.expires
		if ready < at {
			break
		}
		if part == asking {
			continue
		}
		p.limit.expirePart(&st, at, part, p.lost)
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
	most := p.limit.capacity - p.keep - remaining - 1
	if most < 0 {
		return 0
	}
	grows := p.limit.leaves(&o.state, now, most)
	if o.holding == nil || len(o.holding.parts) == o.due {
		return grows
	}
	return o.wait(now, nil, grows, func(st *state, at stint.Instant) time.Duration { return p.limit.leaves(st, at, most) })
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
