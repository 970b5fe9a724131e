package decide

import (
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
)

// A HoldOperation is a Reserve, Commit, Cancel or Drop under way. Its Outs are what the limits say, its Ways those of
// the operation, its parts' Permits what the operation names of each limit. It is not safe for concurrent use.
type HoldOperation struct {
	Operation
	// Hold is the operation's, in which is written down what became of it.
	Hold *stint.HoldOp
	// Known is what the store knows under the hold's ID; nil: nothing. Decide sets it to what is to be kept.
	Known *Hold
	// Same says that what is known is of the same limits. Order is where it has each of them; nil: in the same place.
	Same  bool
	Order []int
	// Full says that the store has no memory for an ID more.
	Full bool
	// MaxHolds bounds the live holds of a state.
	MaxHolds int
	// Fresh is an empty hold, for where nothing is known.
	Fresh *Hold

	bound []uint16 // the ways, bound to those that the hold is on
	lacks []int64  // what a Reserve lacks of each limit, or a Commit says it cost
}

// Decide carries out the operation. What is refused with an error changes nothing.
func (r *HoldOperation) Decide() (d stint.Decision, err error) {
	d, err = r.decide()
	for i := 0; i < len(r.States) && err != nil; i++ {
		r.States[i].Changed = false
	}
	for i := range r.Parts {
		if s := r.state(i); s.Changed { // a state's time does not run back
			r.Parts[i].Machine.Advance(&s.State, r.Now)
		}
	}
	if r.Told {
		r.sayGrowth()
	}
	for i := range r.States { // when each limit has said what it is to say, since several may be of one state
		r.States[i].putBack(r.Now)
	}
	return d, err
}

// decide is Decide without what is to be done to the states after it.
func (r *HoldOperation) decide() (stint.Decision, error) {
	told, h := r.Hold, r.Known
	r.bound = r.bound[:0] // an operation is used again
	told.Replayed, told.Lost, told.Late, told.Reset, told.Full = false, false, false, false, false
	if r.Verb == stint.VerbDrop {
		return r.drop()
	}
	if h == nil {
		if r.Verb == stint.VerbReserve {
			return r.reserve(Live), nil
		}
		return r.commitLost()
	}
	end, at := h.Ended(r.Now)
	over := end == Committed || end == Cancelled
	switch {
	case !over && !r.Same:
		return stint.Decision{}, stint.ErrOtherClaims
	case over && r.Same && r.isAgain(end):
		told.Replayed, told.Late, told.Reset = true, h.late, h.reset
		r.bound = append(r.bound[:0], r.Ways...)
		BindTo(r.bound, h.via, false) // of other groups it is not known any more
		return r.answer(h.applied), nil
	case over, end == Expired && r.Verb == stint.VerbCancel:
		return stint.Decision{}, &stint.ResolvedError{ID: told.ID, End: end.String(), At: at}
	case h.dropped && r.Verb == stint.VerbReserve:
		return stint.Decision{}, &stint.ResolvedError{ID: told.ID, End: Expired.String(), At: min(r.Now, h.Expires)}
	}
	if end == Expired {
		r.expireAll()
	}
	if r.Verb == stint.VerbReserve {
		return r.reserve(end), nil
	}
	return r.finish(end), nil
}

// held is what the hold has of limit i of the operation.
func (r *HoldOperation) held(i int) *Held { return &r.Known.parts[r.place(i)] }

// place is where the hold has limit i of the operation.
func (r *HoldOperation) place(i int) int {
	if r.Order == nil {
		return i
	}
	return r.Order[i]
}

// state is the state of limit i of the operation.
func (r *HoldOperation) state(i int) *State { return &r.States[r.Parts[i].State] }

// costs are what a commit says each limit has cost, as the hold has them, in the memory of a list.
func (r *HoldOperation) costs(list []int64) []int64 {
	costs := slices.Grow(list[:0], len(r.Parts))[:len(r.Parts)]
	for i := range r.Parts {
		costs[r.place(i)] = r.Parts[i].Permits
	}
	return costs
}

// isAgain reports whether the operation asks for the end that the hold has had.
func (r *HoldOperation) isAgain(end End) bool {
	if r.Verb == stint.VerbCommit {
		r.lacks = r.costs(r.lacks)
		return end == Committed && slices.Equal(r.lacks, r.Known.actual)
	}
	return r.Verb == stint.VerbCancel && end == Cancelled
}

// Order finds a hold's limits among those of an operation, each by a number of its state and its way: where the hold
// has each; nil, and that they are the same, if in the same order. Only the order of limits within a way, and of those
// of no group, may be another one.
func (h *Hold) Order(mine, theirs []uint64, ways []uint16) (order []int, same bool) {
	if len(mine) != len(theirs) || len(ways) != len(h.ways) {
		return nil, false
	}
	if slices.Equal(mine, theirs) && slices.Equal(ways, h.ways) {
		return nil, true
	}
	used := make([]bool, len(theirs))
	for i := range mine {
		j := 0
		for j < len(used) && (used[j] || theirs[j] != mine[i] || len(ways) > 0 && ways[i] != h.ways[j]) {
			j++
		}
		if j == len(used) {
			return nil, false
		}
		used[j] = true
		order = append(order, j)
	}
	return order, true
}

// expireAll lets the hold expire in all its states: where the clock was set back since one of them
// has noticed, others have not. Like all that has expired, it does so for good once the state is
// written.
func (r *HoldOperation) expireAll() {
	for i := range r.Parts {
		s, part := r.state(i), r.held(i)
		if part.in == nil || part.in != s.Holding {
			continue
		}
		if at := slices.Index(s.Holding.parts, part); at >= s.Due {
			r.Parts[i].Machine.Expire(&s.State, r.Now, part.pieces, part.n, part.keeps(), s.Lost)
			copy(s.Holding.parts[s.Due+1:], s.Holding.parts[s.Due:at])
			s.Holding.parts[s.Due] = part
			s.Due++
		}
	}
}

// putBack puts a part that expireAll has moved back where it expires, since the state is not written.
func (s *State) putBack(now stint.Instant) {
	if s.Changed || s.Due == 0 || s.Holding.parts[s.Due-1].hold.Expires <= now {
		return
	}
	s.Due--
	rest := s.Holding.parts[s.Due:]
	part := rest[0]
	to, _ := slices.BinarySearchFunc(rest[1:], part.hold.Expires, compareExpiry)
	copy(rest, rest[1:1+to])
	rest[to] = part
}

// reserve takes what the hold lacks of each limit, if all admit it.
func (r *HoldOperation) reserve(end End) stint.Decision {
	told := r.Hold
	r.lacks = append(r.lacks[:0], make([]int64, len(r.Parts))...)
	lacks, via := r.lacks, r.bind(end)
	gone := r.askAll(lacks, end)
	live := r.Known != nil && end == Live
	told.Replayed, told.Reset = live && !gone, gone
	allowed := Admit(r.Outs)
	var taken []bool
	if len(r.bound) > 0 {
		taken = make([]bool, len(r.Parts))
		allowed, _ = Choose(r.Outs, r.bound, taken)
		told.Full = told.Full && !allowed // or another way has room
	}
	if !allowed {
		told.Lost = r.Known != nil && (end == Expired || gone)
		return r.combine(via)
	}
	if r.Known == nil {
		r.Known = r.fresh()
	}
	for i := range taken {
		if r.held(i).on = taken[i]; !taken[i] {
			lacks[i] = 0
		}
	}
	r.take(lacks, end)
	for i := range taken {
		if !taken[i] {
			r.sayLeft(i)
		}
	}
	return r.combine(via)
}

// fresh is a hold of the operation's limits that holds nothing yet.
func (r *HoldOperation) fresh() *Hold {
	h := r.Fresh
	h.ID, h.ways, h.parts = strings.Clone(r.Hold.ID), slices.Clone(r.Ways), make([]Held, len(r.Parts))
	for i := range h.parts {
		h.parts[i] = Held{hold: h, machine: r.Parts[i].Machine}
	}
	return h
}

// askAll asks each limit for what the hold lacks of it, and reports whether some of what it held is gone.
func (r *HoldOperation) askAll(lacks []int64, end End) (gone bool) {
	for i := range r.Parts {
		p, s, held := &r.Parts[i], r.state(i), int64(0)
		if r.isAside(i) {
			r.look(i, 0)
			continue
		}
		known := r.Known != nil
		if known {
			switch part := r.held(i); {
			case end == Expired:
				held = part.keptAtEnd(s.Holding)
			case part.gone(s.Holding):
				gone = true
			default:
				held = part.n + part.kept
				s.asking = part
			}
		}
		lacks[i] = max(0, p.Machine.Takes(p.Permits)-held)
		r.look(i, lacks[i])
		fresh := !known || end == Expired || r.held(i).in == nil
		switch {
		case r.Full:
			r.denyFull(i, max(r.Outs[i].RetryAfter, fullWait))
		case lacks[i] > 0 && fresh && s.isHeld() && len(s.Holding.parts)-s.Due >= r.MaxHolds:
			wait := r.Outs[i].RetryAfter
			if lacks[i] <= p.Machine.Capacity()-p.Keep { // not before one has expired
				wait = s.retryAfter(p.Machine, r.Now, lacks[i], p.Keep, stint.Never)
			}
			r.denyFull(i, wait)
		}
	}
	return gone
}

// bind binds the operation to the ways that the hold is on: that is live, has expired and is not
// reserved anew, or of which an expiry has charged something. It returns the number of the first
// group's way.
func (r *HoldOperation) bind(end End) (via uint8) {
	if r.bound = append(r.bound[:0], r.Ways...); len(r.bound) == 0 || r.Known == nil {
		return 0
	}
	anew := end == Expired && r.Verb == stint.VerbReserve
	via = Bind(r.bound, func(i int) bool {
		part := r.held(i)
		return part.on && (!anew || part.keptAtEnd(r.state(i).Holding) > 0)
	})
	if r.Verb != stint.VerbReserve {
		via = max(via, PassOver(r.bound)) // it has taken nothing there
	}
	return via
}

// isAside reports whether the hold is not on the way of a limit.
func (r *HoldOperation) isAside(i int) bool { return len(r.bound) > 0 && r.bound[i] == Aside }

// combine is the decision of what the limits say, of each group that the operation is bound to a way of by that way;
// via is the first group's.
func (r *HoldOperation) combine(via uint8) stint.Decision {
	ways := r.bound
	if len(ways) == 0 {
		ways = r.Ways
	}
	d := Combine(r.Outs, ways, r.Now)
	if d.Allowed {
		d.Via = max(d.Via, via)
	}
	return d
}

// fullWait is how long to wait for the memory of an id: a guess, since nobody knows which hold ends next.
const fullWait = time.Second

// denyFull denies since there are as many holds as may be: one more may be there after a wait.
func (r *HoldOperation) denyFull(i int, wait time.Duration) {
	r.Hold.Full = true
	out := &r.Outs[i]
	out.Allowed, out.RetryAfter, out.Delay = false, wait, 0
}

// take takes what was looked at, and puts every part where it expires now.
func (r *HoldOperation) take(lacks []int64, end End) {
	h, told := r.Known, r.Hold
	var buffer [inline]bool
	foreign := append(buffer[:0], make([]bool, len(r.Parts))...) // states that another version of the limit wrote
	for i := range r.Parts {
		p, s, part := &r.Parts[i], r.state(i), r.held(i)
		if len(r.bound) > 0 && !part.on && part.in == nil { // nothing is taken, and nothing has expired
			part.n, part.kept, part.pieces = 0, part.keptAtEnd(s.Holding), nil
			continue
		}
		foreign[i] = s.Foreign
		s.writes()
		s.forgetPieces()
		switch {
		case end == Expired:
			r.release(i)
		case part.gone(s.Holding):
			part.n, part.kept, part.pieces = 0, 0, nil
		case part.in != nil:
			s.Holding.remove(part)
		}
		part.machine = p.Machine
		if lacks[i] > 0 {
			p.Machine.Apply(algorithm.Take, &s.State, r.Now, lacks[i], p.Keep, &r.Outs[i])
			if part.n += lacks[i]; part.pieces == nil {
				part.pieces = part.piece[:0]
			}
			part.pieces = algorithm.AddPiece(part.pieces, p.Machine.Hold(&s.State, lacks[i]))
		}
	}
	expires := r.Now.Add(bounds.HoldTTL(told.TTL))
	for i := range r.Outs {
		expires = max(expires, r.Now.Add(bounds.HoldTTL(told.TTL)+r.Outs[i].Delay))
	}
	if end == Live {
		expires = max(expires, h.Expires)
	}
	h.Expires, h.keep, h.remembered = expires, bool(told.OnExpiry), bounds.Remembered(told.TTL).Microseconds()
	h.end = Live
	h.noticed.Store(false)
	told.ExpiresAt = expires
	for i := range r.Parts {
		s, part := r.state(i), r.held(i)
		if part.n > 0 {
			if s.Holding == nil {
				s.Holding = new(Holding)
			}
			s.Holding.add(part)
		}
		renewed := lacks[i] == 0 && (len(r.bound) == 0 || part.on)
		if part.n > 0 && r.Parts[i].Machine.HasPlaces() || renewed && foreign[i] {
			r.look(i, 0)
		}
	}
}

// release ends what an expired hold may still hold of a state that has not noticed yet.
func (r *HoldOperation) release(i int) {
	s, part := r.state(i), r.held(i)
	kept := part.keptAtEnd(s.Holding)
	if part.n > 0 && part.in != nil && part.in == s.Holding {
		s.writes()
		s.Due--
		s.Holding.removeAt(slices.Index(s.Holding.parts, part))
	}
	part.in, part.n, part.kept, part.pieces = nil, 0, kept, nil
}

// finish ends a hold, that is live or has expired, by a commit or a cancel. What was dropped of it has expired.
func (r *HoldOperation) finish(end End) stint.Decision {
	late := end == Expired
	var all Least
	h := r.Known
	h.via = max(h.via, r.bind(end))
	for i := range r.Parts {
		p, s, part := &r.Parts[i], r.state(i), r.held(i)
		if r.isAside(i) {
			continue
		}
		gone := part.gone(s.Holding)
		expired := end == Expired && !gone || part.dropped
		if expired {
			late = true
			r.release(i)
		}
		held := part.n + part.kept
		kept, charge, applied := part.n, int64(0), int64(0)
		adjustable := isAdjustable(p.Machine)
		switch {
		case r.Verb == stint.VerbCancel && p.Machine.Returns(): // all of it goes back
			kept = 0
		case adjustable:
			cost := max(0, p.Permits-part.kept)
			kept = min(cost, part.n)
			charge = cost - kept
		}
		switch {
		case gone:
			r.Hold.Reset, charge = true, 0
		case part.in != nil:
			applied = -r.end(i, part, kept)
		}
		applied += r.settle(i, charge)
		// What cost as much as was held has no part in it.
		if adjustable && (expired || r.Verb == stint.VerbCancel || p.Permits != held) {
			all.Add(applied)
		}
	}
	r.Hold.Late, h.late, h.reset = late, late, r.Hold.Reset
	return r.over(all.N)
}

// end takes a part out of its state.
func (r *HoldOperation) end(i int, part *Held, kept int64) (back int64) {
	s := r.state(i)
	s.writes()
	s.forgetPieces()
	back = r.Parts[i].Machine.EndHold(&s.State, r.Now, part.pieces, part.n, kept, s.Lost)
	s.Holding.remove(part)
	return back
}

// settle charges a limit what it cost beyond what was held, and returns how much of it was applied.
func (r *HoldOperation) settle(i int, n int64) int64 {
	s := r.state(i)
	if r.Parts[i].Machine.Apply(algorithm.Settle, &s.State, r.Now, n, 0, &r.Outs[i]) {
		s.writes()
	}
	return r.Outs[i].Applied
}

// commitLost charges what a hold cost that the store has lost, if it can't have forgotten it.
func (r *HoldOperation) commitLost() (stint.Decision, error) {
	told := r.Hold
	if r.Verb == stint.VerbCancel || told.ExpiresAt == 0 || r.Now > told.ExpiresAt.Add(SurelyRemembered(&told.Hold)) {
		return stint.Decision{}, stint.ErrUnknownReservation
	}
	h := r.fresh()
	// It is not known which ways it was on, but for what the caller says of the first group. Of others it is the first.
	r.Known, h.via = h, told.Via
	lost := slices.Clone(r.Ways)
	BindTo(lost, told.Via, true)
	for i := range lost {
		h.parts[i].on = lost[i] == 0
	}
	h.Expires, h.remembered = told.ExpiresAt, SurelyRemembered(&told.Hold).Microseconds()
	return r.finish(Expired), nil
}

// over remembers how the hold has ended, and answers.
func (r *HoldOperation) over(applied int64) stint.Decision {
	h := r.Known
	h.end, h.endedAt, h.applied = Committed, r.Now, applied
	if r.Verb == stint.VerbCancel {
		h.end = Cancelled
	} else {
		h.actual = r.costs(h.cost[:0])
	}
	h.parts = nil
	return r.answer(applied)
}

// answer is the decision about an end: what it applied, and what is left now.
func (r *HoldOperation) answer(applied int64) stint.Decision {
	for i := range r.Parts {
		r.look(i, 0)
	}
	d := r.combine(0)
	d.Allowed, d.RetryAfter, d.Applied = true, 0, applied
	if r.Known != nil {
		d.Via = r.Known.via
	}
	return d
}

// look asks a limit for n permits; for none, only what is left.
func (r *HoldOperation) look(i int, n int64) {
	p, out := &r.Parts[i], &r.Outs[i]
	if n > 0 {
		r.state(i).apply(p.Machine, algorithm.Peek, r.Now, n, p.Keep, out)
		return
	}
	r.state(i).apply(p.Machine, algorithm.Settle, r.Now, 0, p.Keep, out)
	out.Allowed, out.RetryAfter = true, 0
}

// drop lets expire now what the hold has of the operation's limits.
func (r *HoldOperation) drop() (stint.Decision, error) {
	var all Least
	for i := range r.Parts {
		s := r.state(i)
		if s.Holding == nil {
			continue
		}
		live := s.Holding.parts[s.Due:]
		at := slices.IndexFunc(live, func(part *Held) bool { return part.hold.ID == r.Hold.ID })
		if at >= 0 {
			part := live[at]
			all.Add(-r.end(i, part, part.keeps()))
			part.lapse()
			part.dropped = true
		}
	}
	if !all.Some {
		return stint.Decision{}, stint.ErrUnknownReservation
	}
	if r.Known != nil {
		r.Known.dropped = true
	}
	return r.answer(all.N), nil
}
