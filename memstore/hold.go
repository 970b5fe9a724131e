package memstore

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/internal/least"
	"github.com/stint-go/stint/internal/ways"
)

// hold is a reservation, and after its end what is remembered of it. Its shard of ids is locked while
// it is used. An operation that has only a state's shard locked reads id, expires and keep, which
// change while both are locked, and sets noticed.
type hold struct {
	id     string
	holder *holder
	hashes []uint64 // of the states, in the order of the claims and their limits
	parts  []part   // the same; nil once it was committed or cancelled
	// keep charges what is held when it expires.
	keep    bool
	expires stint.Instant
	// noticed says that a state was written without it, since it had expired: then it has expired,
	// even if the clock steps back.
	noticed atomic.Bool

	// remembered is how long the end is remembered, in microseconds.
	remembered int64
	end        stint.HoldEnd
	endedAt    stint.Instant
	late       bool
	reset      bool
	// dropped says that it was ended by a Drop: it is not to be renewed.
	dropped bool
	ways    []stint.Way
	via     uint8   // of an end: the way that it was on
	actual  []int64 // of a commit: what each limit was said to have cost
	applied int64
	// counted is the bytes that it was counted with.
	counted int64
}

// holdBytes is about what a hold takes, beside its id and its parts; endBytes what is remembered of a part.
const holdBytes, endBytes = 224, 16

// ended is how the hold has ended at now, and when.
func (h *hold) ended(now stint.Instant) (stint.HoldEnd, stint.Instant) {
	if h.end == stint.HoldLive && (now >= h.expires || h.noticed.Load()) {
		return stint.HoldExpired, h.expires
	}
	return h.end, h.endedAt
}

// forgotten is from when on nothing is known of the hold.
func (h *hold) forgotten() stint.Instant {
	return max(h.endedAt, h.expires) + stint.Instant(h.remembered)
}

// bytes is about what the hold takes: after its end, without its parts.
func (h *hold) bytes() int64 {
	each := int64(partBytes)
	if h.end != stint.HoldLive {
		each = endBytes
	}
	return holdBytes + int64(len(h.id)) + each*int64(len(h.hashes))
}

// A holdOp is an operation on a hold under way.
type holdOp struct {
	store *Store
	op    *stint.Op
	hold  *hold // nil: the store does not know one
	order []int // of each limit, its place in the hold; nil: the same
	ops   limitOps
	asked []stint.Way // of the limits; nil: the operation has none
	ways  []stint.Way // the same, bound to those that the hold is on
	outs  []stint.Outcome
	now   stint.Instant
	full  bool // there is no memory for an id more
}

// decideHold carries out a Reserve, a Commit or a Cancel: with the id locked, and the shards of all its states.
func (s *Store) decideHold(op stint.Op) (stint.Decision, error) {
	ids := &s.ids[keyhash.String(s.seed, op.Hold.ID)%idShards]
	ids.mu.Lock()
	defer ids.mu.Unlock()
	known := ids.find(op.Hold.ID)
	r := holdOp{store: s, op: &op, hold: known}
	same, err := r.prepare()
	if err != nil {
		return stint.Decision{}, err
	}
	locks := s.lock(r.ops, nil)
	for i := range r.ops {
		s.hold(s.shard(r.ops[i].hash), &r.ops[i])
	}
	r.now = s.decidedTogether(locks)
	if known != nil && r.now > known.forgotten() {
		r.hold, r.order = nil, nil
	}
	if r.full = r.hold == nil && op.Verb == stint.Reserve && s.idsFull(ids, r.ops.holder(), r.now); r.full {
		s.refused.Add(1)
	}
	for i := range r.ops {
		s.load(s.shard(r.ops[i].hash), &r.ops[i], r.now)
	}
	d, err := r.decide(same)
	for i := range r.ops {
		p := &r.ops[i]
		if err != nil {
			p.changed = false
		}
		if p.changed { // a state's time does not run back
			p.limit.Advance(&p.state, r.now)
		}
		if op.Each != nil {
			r.outs[i].GrowsAfter = r.ops.grows(i, r.now, r.outs[i].Remaining)
		}
	}
	for i := range r.ops { // two claims may be of one state: it is put back when each has said what it is to say
		p := &r.ops[i]
		r.putBack(p)
		s.save(s.shard(p.hash), p)
	}
	for i := range r.ops {
		s.insertNew(s.shard(r.ops[i].hash), &r.ops[i], r.ops, r.now)
	}
	if err == nil && r.hold != nil {
		s.put(ids, r.hold, r.now)
	}
	s.unlock(locks)
	s.finish(r.ops, r.now)
	if op.Verb != stint.Reserve {
		s.wake(r.ops)
	}
	if op.Each != nil && err == nil {
		copy(op.Each, r.outs)
	}
	return d, err
}

// decide carries out the operation, for a hold that is known by the same states or not. What is
// refused with an error changes nothing.
func (r *holdOp) decide(same bool) (stint.Decision, error) {
	h := r.op.Hold
	h.Replayed, h.Lost, h.Late, h.Reset, h.Full = false, false, false, false, false
	if r.op.Verb == stint.Drop {
		return r.dropParts()
	}
	if r.hold == nil {
		if r.op.Verb == stint.Reserve {
			return r.reserve(stint.HoldLive), nil
		}
		return r.commitLost()
	}
	end, at := r.hold.ended(r.now)
	over := end == stint.HoldCommitted || end == stint.HoldCancelled
	switch {
	case !over && !same:
		return stint.Decision{}, stint.ErrOtherClaims
	case over && same && r.again(end):
		h.Replayed, h.Late, h.Reset = true, r.hold.late, r.hold.reset
		if r.ways = slices.Clone(r.asked); r.ways != nil { // of other groups it is not known any more
			numbers := ways.Numbers(r.asked)
			stint.BindWays(r.ways, func(i int) bool { return numbers[i] == ways.PerGroup+int(r.hold.via) })
		}
		return r.answer(r.hold.applied), nil
	case over, end == stint.HoldExpired && r.op.Verb == stint.Cancel:
		return stint.Decision{}, &stint.ResolvedError{ID: h.ID, End: end, At: at}
	case r.hold.dropped && r.op.Verb == stint.Reserve:
		return stint.Decision{}, &stint.ResolvedError{ID: h.ID, End: stint.HoldExpired, At: min(r.now, r.hold.expires)}
	}
	if end == stint.HoldExpired {
		r.expireAll()
	}
	if r.op.Verb == stint.Reserve {
		return r.reserve(end), nil
	}
	return r.finish(end), nil
}

// expireAll lets the hold expire in all its states: where the clock was set back since one of them
// has noticed, others have not. Like all that has expired, it does so for good once the state is
// written.
func (r *holdOp) expireAll() {
	for i := range r.ops {
		p, part := r.ops.owner(i), r.part(i)
		if part.in == nil || part.in != p.holding {
			continue
		}
		if at := slices.Index(p.holding.parts, part); at >= p.due {
			part.expireIn(p.limit, &p.state, r.now, p.lost)
			copy(p.holding.parts[p.due+1:], p.holding.parts[p.due:at])
			p.holding.parts[p.due] = part
			p.due++
		}
	}
}

// putBack puts a part that expireAll has moved back where it expires, since its state is not written.
func (r *holdOp) putBack(p *limitOp) {
	if p.changed || p.due == 0 || p.holding.parts[p.due-1].hold.expires <= r.now {
		return
	}
	p.due--
	rest := p.holding.parts[p.due:]
	part := rest[0]
	to, _ := slices.BinarySearchFunc(rest[1:], part.hold.expires, compareExpiry)
	copy(rest, rest[1:1+to])
	rest[to] = part
}

// fullWait is how long to wait for the memory of an id: a guess, since nobody knows which hold ends next.
const fullWait = time.Second

// reserve takes what the hold lacks of each limit, if all admit it.
func (r *holdOp) reserve(end stint.HoldEnd) stint.Decision {
	h, told := r.hold, r.op.Hold
	lacks := make([]int64, len(r.ops))
	allowed, gone := true, false
	via := r.bind(end)
	for i := range r.ops {
		p := r.ops.owner(i)
		if r.aside(i) {
			r.look(i, 0)
			continue
		}
		lacks[i] = p.limit.Takes(r.ops[i].permits)
		if h != nil {
			part := r.part(i)
			switch {
			case end == stint.HoldExpired:
				lacks[i] -= part.keptAtEnd(p.holding)
			case part.gone(p.holding):
				gone = true
			default:
				lacks[i] -= part.n + part.kept
				p.own = part
			}
		}
		lacks[i] = max(0, lacks[i])
		r.look(i, lacks[i])
		switch {
		case r.full:
			r.denyFull(i, max(r.outs[i].RetryAfter, fullWait))
		case p.holding != nil && lacks[i] > 0 && (h == nil || end == stint.HoldExpired || r.part(i).in == nil) &&
			len(p.holding.parts)-p.due >= r.store.maxHolds:
			wait := r.outs[i].RetryAfter
			if lacks[i] <= p.limit.Capacity()-r.ops[i].keep { // not before one has expired
				wait = r.ops.retryAfter(i, r.now, lacks[i], stint.Never)
			}
			r.denyFull(i, wait)
		}
		allowed = allowed && r.outs[i].Allowed
	}
	live := h != nil && end == stint.HoldLive
	told.Replayed, told.Reset = live && !gone, gone
	var taken []bool
	if r.ways != nil {
		taken = make([]bool, len(r.ops))
		allowed = stint.Choose(r.outs, r.ways, taken)
		told.Full = told.Full && !allowed // or another way has room
	}
	if !allowed {
		told.Lost = h != nil && (end == stint.HoldExpired || gone)
		return r.combine(via)
	}
	if h == nil {
		h = r.newHold()
		r.hold = h
	}
	for i := range taken {
		if r.part(i).on = taken[i]; !taken[i] {
			lacks[i] = 0
		}
	}
	r.take(lacks, end)
	for i := range taken {
		if !taken[i] {
			r.ops.whatIsLeft(i, r.now, &r.outs[i])
		}
	}
	return r.combine(via)
}

// bind binds the operation to the ways that the hold is on: that is live, has expired and is not
// reserved anew, or of which an expiry has charged something. It returns the number of the first
// group's way.
func (r *holdOp) bind(end stint.HoldEnd) (via uint8) {
	if r.ways = slices.Clone(r.asked); r.ways == nil || r.hold == nil {
		return 0
	}
	anew := end == stint.HoldExpired && r.op.Verb == stint.Reserve
	return stint.BindWays(r.ways, func(i int) bool {
		part := r.part(i)
		return part.on && (!anew || part.keptAtEnd(r.ops.owner(i).holding) > 0)
	})
}

// aside reports whether the hold is not on the way of a limit.
func (r *holdOp) aside(i int) bool { return r.ways != nil && r.ways[i] == stint.Aside }

// combine is the decision of what the limits say, of each group that the operation is bound to a way of by that way;
// via is the first group's.
func (r *holdOp) combine(via uint8) stint.Decision {
	if r.ways == nil {
		return r.op.Combine(r.outs, r.now)
	}
	return ways.Combine(r.outs, r.asked, r.ways, via, r.now)
}

// denyFull denies since there are as many holds as may be: one more may be there after a wait.
func (r *holdOp) denyFull(i int, wait time.Duration) {
	r.op.Hold.Full = true
	out := &r.outs[i]
	out.Allowed, out.RetryAfter, out.Delay = false, wait, 0
}

// take takes what was looked at, and puts every part where it expires now.
func (r *holdOp) take(lacks []int64, end stint.HoldEnd) {
	h, told := r.hold, r.op.Hold
	for i := range r.ops {
		p, part := r.ops.owner(i), r.part(i)
		if r.ways != nil && !part.on && part.in == nil { // nothing is taken, and nothing has expired
			part.n, part.kept, part.pieces = 0, part.keptAtEnd(p.holding), nil
			continue
		}
		p.writes()
		p.forgetPieces()
		switch {
		case end == stint.HoldExpired:
			r.drop(p, part)
		case part.gone(p.holding):
			part.n, part.kept, part.pieces = 0, 0, nil
		case part.in != nil:
			p.holding.remove(part)
		}
		part.limit = p.limit
		if lacks[i] > 0 {
			p.limit.Apply(algorithm.Take, &p.state, r.now, lacks[i], r.ops[i].keep, &r.outs[i])
			part.n += lacks[i]
			part.pieces = algorithm.AddPiece(part.pieces, p.limit.Hold(&p.state, lacks[i]))
		}
	}
	expires := r.now.Add(told.Lives())
	for i := range r.outs {
		expires = max(expires, r.now.Add(told.Lives()+r.outs[i].Delay))
	}
	if end == stint.HoldLive {
		expires = max(expires, h.expires)
	}
	h.expires, h.keep, h.remembered = expires, told.Keep, told.Remembered().Microseconds()
	h.end = stint.HoldLive
	h.noticed.Store(false)
	told.ExpiresAt = expires
	for i := range r.ops {
		p, part := r.ops.owner(i), r.part(i)
		if part.n > 0 {
			if p.holding == nil {
				p.holding = &holding{}
			}
			p.holding.add(part)
		}
		renewed := lacks[i] == 0 && (r.ways == nil || part.on)
		if part.n > 0 && p.limit.HasPlaces() || renewed && p.changed && p.takesOver() {
			r.look(i, 0)
		}
	}
}

// takesOver reports whether another version of the limit wrote the state.
func (p *limitOp) takesOver() bool { return p.epoch != nil && p.epoch.version != p.limit.version }

// drop ends what an expired hold may still hold of a state that has not noticed yet.
func (r *holdOp) drop(p *limitOp, part *part) {
	kept := part.keptAtEnd(p.holding)
	if part.n > 0 && part.in != nil && part.in == p.holding {
		p.writes()
		p.due--
		p.holding.removeAt(slices.Index(p.holding.parts, part))
	}
	part.in, part.n, part.kept, part.pieces = nil, 0, kept, nil
}

// keptAtEnd is what is charged of a part of a state, with such a holding, once its hold has expired, whether that was
// noticed or not: of one that was reset before nothing.
func (part *part) keptAtEnd(of *holding) int64 {
	switch {
	case part.gone(of):
		return 0
	case part.hold.keep && !part.limit.HasPlaces():
		return part.kept + part.n
	}
	return part.kept
}

// finish ends a hold, that is live or has expired, by a commit or a cancel. What was dropped of it has expired.
func (r *holdOp) finish(end stint.HoldEnd) stint.Decision {
	late := end == stint.HoldExpired
	var all least.Applied
	r.hold.via = r.bind(end)
	for i := range r.ops {
		p, part := r.ops.owner(i), r.part(i)
		if r.aside(i) {
			continue
		}
		permits := r.ops[i].permits
		gone := part.gone(p.holding)
		expired := end == stint.HoldExpired && !gone || part.dropped
		if expired {
			late = true
			r.drop(p, part)
		}
		held := part.n + part.kept
		kept, charge, applied := part.n, int64(0), int64(0)
		switch {
		case r.op.Verb == stint.Cancel && p.limit.Returns(): // all of it goes back
			kept = 0
		case p.limit.adjustable():
			cost := max(0, permits-part.kept)
			kept = min(cost, part.n)
			charge = cost - kept
		}
		switch {
		case gone:
			r.op.Hold.Reset, charge = true, 0
		case part.in != nil:
			applied = -r.end(p, part, kept)
		}
		applied += r.charge(i, charge)
		// What cost as much as was held has no part in it.
		if p.limit.adjustable() && (expired || r.op.Verb == stint.Cancel || permits != held) {
			all.Add(applied)
		}
	}
	r.op.Hold.Late, r.hold.late, r.hold.reset = late, late, r.op.Hold.Reset
	return r.over(all.N)
}

// end takes a part out of its state.
func (r *holdOp) end(p *limitOp, part *part, kept int64) (back int64) {
	p.writes()
	p.forgetPieces()
	back = p.limit.EndHold(&p.state, r.now, part.pieces, part.n, kept, p.lost)
	p.holding.remove(part)
	return back
}

// charge charges a limit what it cost beyond what was held, and returns how much of it was applied.
func (r *holdOp) charge(i int, n int64) int64 {
	p := r.ops.owner(i)
	if p.limit.Apply(algorithm.Settle, &p.state, r.now, n, 0, &r.outs[i]) {
		p.writes()
	}
	return r.outs[i].Applied
}

// commitLost charges what a hold cost that the store has lost, if it can't have forgotten it.
func (r *holdOp) commitLost() (stint.Decision, error) {
	told := r.op.Hold
	if r.op.Verb == stint.Cancel || told.ExpiresAt == 0 || r.now > told.ExpiresAt.Add(told.SurelyRemembered()) {
		return stint.Decision{}, stint.ErrUnknownReservation
	}
	r.hold = r.newHold()
	// It is not known which ways it was on, but for what the caller says of the first group. Of others it is the first.
	lost, numbers := slices.Clone(r.asked), ways.Numbers(r.asked)
	stint.BindWays(lost, func(i int) bool {
		return numbers[i] == ways.PerGroup+int(told.Via) || numbers[i] >= 2*ways.PerGroup
	})
	for i := range lost {
		r.hold.parts[i].on = lost[i] == stint.Must
	}
	r.hold.expires, r.hold.remembered = told.ExpiresAt, told.SurelyRemembered().Microseconds()
	return r.finish(stint.HoldExpired), nil
}

// adjustable reports whether a commit may charge or give back permits of the limit.
func (l *limit) adjustable() bool { return l.Settles() && l.Returns() }

// over remembers how the hold has ended, and answers.
func (r *holdOp) over(applied int64) stint.Decision {
	h := r.hold
	h.end, h.endedAt, h.applied = stint.HoldCommitted, r.now, applied
	if r.op.Verb == stint.Cancel {
		h.end = stint.HoldCancelled
	} else {
		h.actual = r.costs()
	}
	h.parts = nil
	return r.answer(applied)
}

// answer is the decision about an end: what it applied, and what is left now.
func (r *holdOp) answer(applied int64) stint.Decision {
	for i := range r.ops {
		r.look(i, 0)
	}
	d := r.combine(0)
	d.Allowed, d.RetryAfter, d.Applied = true, 0, applied
	if r.hold != nil {
		d.Via = r.hold.via
	}
	return d
}

// look asks a limit for n permits; for none, only what is left.
func (r *holdOp) look(i int, n int64) {
	out := &r.outs[i]
	if n > 0 {
		r.ops.apply(i, algorithm.Peek, r.now, n, out)
		return
	}
	r.ops.apply(i, algorithm.Settle, r.now, 0, out)
	out.Allowed, out.RetryAfter = true, 0
}

// holder is the policy that has the fewest bytes of ids: that of one client's own rule, where another
// rule is everybody's.
func (ops limitOps) holder() *holder {
	fewest := ops[0].limit.version.holder
	for i := range ops[1:] {
		if other := ops[i+1].limit.version.holder; other.bytes.Load() < fewest.bytes.Load() {
			fewest = other
		}
	}
	return fewest
}

// newHold is a hold of the operation's claims that holds nothing yet.
func (r *holdOp) newHold() *hold {
	h := &hold{
		ways: r.asked, holder: r.ops.holder(), id: strings.Clone(r.op.Hold.ID), hashes: make([]uint64, len(r.ops)),
		parts: make([]part, len(r.ops)),
	}
	for i := range r.ops {
		h.hashes[i] = r.ops[i].hash
		h.parts[i] = part{hold: h, limit: r.ops[i].limit}
	}
	return h
}

// dropParts lets expire now what the hold has of the operation's limits.
func (r *holdOp) dropParts() (stint.Decision, error) {
	var all least.Applied
	for i := range r.ops {
		p := r.ops.owner(i)
		if p.holding == nil {
			continue
		}
		live := p.holding.parts[p.due:]
		at := slices.IndexFunc(live, func(part *part) bool { return part.hold.id == r.op.Hold.ID })
		if at >= 0 {
			part := live[at]
			all.Add(-r.end(p, part, part.keeps()))
			part.lapse()
			part.dropped = true
		}
	}
	if !all.Some {
		return stint.Decision{}, stint.ErrUnknownReservation
	}
	if r.hold != nil {
		r.hold.dropped = true
	}
	return r.answer(all.N), nil
}
