package decide

import (
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// An Operation is one on limits whose states are loaded. It is not safe for concurrent use.
type Operation struct {
	Verb   stint.Verb
	Now    stint.Instant
	Parts  []Part
	States []State
	// Ways are the numbers of the limits' ways; none: there are no groups.
	Ways []uint16
	// Outs are what the limits say, one for each part. That of a part without a machine is known already, as is that it
	// was charged if the operation is admitted.
	Outs []stint.Outcome
	// Told says that the caller is told what each limit says, with when more remains of it. Else what the limits say
	// that are not charged is not known, unless the first group may charge nothing.
	Told bool

	allowed bool
	via     uint8
	taken   []bool // which limits are charged, or would be; without groups it is empty
	refused bool   // whether takeAtOnce found that the first limit, which has to admit, denies
}

// Admitted reports whether an operation that was carried out is admitted.
func (o *Operation) Admitted() bool { return o.allowed }

// Charged reports whether a limit is charged if the operation is admitted, once it has been carried out.
func (o *Operation) Charged(i int) bool { return len(o.taken) == 0 || o.taken[i] }

// A Part is one limit of an operation. Parts of several ways may be of one state.
type Part struct {
	Machine *algorithm.Machine
	State   int   // its place among the operation's
	Permits int64 // what the limit is asked for
	Keep    int64 // how many are left to others
}

// A State is a limit's state under an operation.
type State struct {
	algorithm.State
	// Changed says that the operation has changed it; Foreign, that another version of the limit wrote it.
	Changed, Foreign bool
	// Holding is what is held of it, of which Due parts have expired by now; nil: nothing.
	Holding *Holding
	Due     int
	// Lost is the newest time of pieces that do not come back, since a window of another length took
	// over their counts; 0: none.
	Lost stint.Instant
	// asking is the part of the hold that asks for more; nil: none does.
	asking *Held
}

// inline is how many limits an operation may have before choosing among its ways allocates.
const inline = 4

// Decide carries the operation out, a Take, Try, Peek or Settle: it first asks all limits, then charges those that are
// to be. Decision says what becomes of it.
func (o *Operation) Decide() {
	if len(o.Parts) == 1 && len(o.Ways) == 0 && o.Parts[0].Machine != nil {
		p, out := &o.Parts[0], &o.Outs[0]
		o.States[p.State].One(p.Machine, o.Verb, o.Now, p.Permits, p.Keep, o.Told, out)
		o.taken, o.allowed, o.via = o.taken[:0], out.Allowed, 0
		return
	}
	if !o.takeAtOnce() {
		o.askAndCharge()
	}
	if o.Told || len(o.Ways) > 0 && IsOptional(o.Ways[0]) { // then there may be no other limit to tell of
		o.sayAllLeft()
	}
	if o.Told {
		o.sayGrowth()
	}
}

// takeAtOnce takes of all limits, with groups of their first ways, if they admit, and reports whether they do. Else,
// and where that can't be undone by putting back numbers, it leaves all as it was. Where they admit, as they mostly do,
// it saves to ask first.
func (o *Operation) takeAtOnce() bool {
	o.refused = false
	if o.taken = o.taken[:0]; o.Verb > stint.VerbTry || len(o.Parts) > inline || o.Told && len(o.Ways) > 0 {
		return false
	}
	var before [inline]algorithm.Numbers
	for i := range o.Parts {
		p, out := &o.Parts[i], &o.Outs[i]
		if p.Machine != nil && len(o.Ways) > 0 && placeOf(o.Ways[i]) > 0 {
			*out = stint.Outcome{Limit: p.Machine.Capacity()} // nobody is told more of it
			continue
		}
		if p.Machine == nil || p.Machine.HasLog() || p.Machine.HasPlaces() || !o.States[p.State].IsPlain() {
			o.putBack(before[:i])
			return false
		}
		s := &o.States[p.State]
		before[i] = s.Numbers
		if s.Numbers = p.Machine.ApplyNumbers(algorithm.Take, s.Numbers, o.Now, p.Permits, p.Keep, out); !out.Allowed {
			o.refused = i == 0 && len(o.Ways) == 0 && s.Holding == nil // of which waits would have to be corrected
			o.putBack(before[:i])
			return false
		}
	}
	if o.allowed, o.via = true, 0; len(o.Ways) > 0 {
		o.taken = slices.Grow(o.taken, len(o.Parts))[:len(o.Parts)]
	}
	for i := range o.Parts {
		first := len(o.Ways) == 0 || placeOf(o.Ways[i]) == 0
		if len(o.taken) > 0 {
			o.taken[i] = first
		}
		if first && !o.Parts[i].Machine.CountsDenials() {
			o.States[o.Parts[i].State].Changed = true
		}
	}
	return true
}

// putBack puts back the numbers of the first limits.
func (o *Operation) putBack(before []algorithm.Numbers) {
	for i := range before {
		if len(o.Ways) == 0 || placeOf(o.Ways[i]) == 0 {
			o.States[o.Parts[i].State].Numbers = before[i]
		}
	}
}

// askAndCharge asks all limits, and then charges those that are to be.
func (o *Operation) askAndCharge() {
	action := algorithm.ActionOf(o.Verb)
	allowed, charged := o.ask(action)
	via := uint8(0)
	if o.taken = o.taken[:0]; len(o.Ways) > 0 {
		o.taken = slices.Grow(o.taken, len(o.Parts))[:len(o.Parts)]
		allowed, via = Choose(o.Outs, o.Ways, o.taken)
	}
	o.allowed, o.via = allowed, via
	if allowed && action == algorithm.Take || !allowed && o.Verb == stint.VerbTake {
		o.charge(charged)
	}
}

// Decision is that of an operation that was carried out, of parts that all have a machine. Applied of a Settle is
// [Settled]'s.
func (o *Operation) Decision() (d stint.Decision) {
	d = combine(o.Outs, o.Ways, o.allowed, o.via, o.Now)
	if o.Verb == stint.VerbSettle {
		d.Applied = Settled(o.Outs, func(i int) bool { return o.Parts[i].Machine.Settles() })
	}
	return d
}

// ask asks the limits. If there is nothing to choose and all others admit, the last is charged with that: charged says
// so.
func (o *Operation) ask(action algorithm.Action) (allowed, charged bool) {
	look := action
	if action == algorithm.Take {
		look = algorithm.Peek
	}
	allowed = true
	last, chooses := len(o.Parts)-1, len(o.Ways) > 0
	for i := range o.Parts {
		p, out := &o.Parts[i], &o.Outs[i]
		switch {
		case p.Machine == nil || i == 0 && o.refused: // it is known already
		case chooses && !o.Told && o.isNeedless(i):
			*out = stint.Outcome{Limit: p.Machine.Capacity()}
			continue
		case i == last && allowed && !chooses:
			o.States[p.State].apply(p.Machine, action, o.Now, p.Permits, p.Keep, out)
			charged = out.Allowed
		default:
			o.States[p.State].apply(p.Machine, look, o.Now, p.Permits, p.Keep, out)
		}
		allowed = allowed && out.Allowed
	}
	return allowed, charged
}

// isNeedless reports whether a limit needs not be asked, since an earlier way of its group admits.
func (o *Operation) isNeedless(i int) bool {
	if !isChoice(o.Ways[i]) {
		return false
	}
	at := i
	for at > 0 && SameGroup(o.Ways[at-1], o.Ways[i]) {
		at--
	}
	for to := 0; o.Ways[at] != o.Ways[i]; at = to {
		if to = endOfWay(o.Ways, at); Admit(o.Outs[at:to]) {
			return true
		}
	}
	return false
}

// charge charges the limits that are to be, but for the last if it is already; or, where the operation is denied, has
// those record it that count denied requests.
func (o *Operation) charge(charged bool) {
	n := len(o.Parts)
	if charged {
		n--
	}
	action := algorithm.Take
	if !o.allowed {
		action = algorithm.Deny
	}
	for i := range o.Parts[:n] {
		p := &o.Parts[i]
		if p.Machine == nil || !o.allowed && !p.Machine.CountsDenied() || o.allowed && !o.Charged(i) {
			continue
		}
		o.States[p.State].apply(p.Machine, action, o.Now, p.Permits, p.Keep, &o.Outs[i])
	}
}

// sayAllLeft says of the limits that were asked, and not charged, what is left after others were.
func (o *Operation) sayAllLeft() {
	for i := range o.taken {
		if !o.taken[i] && o.Parts[i].Machine != nil && !o.isLeftByEarlier(i) {
			o.sayLeft(i)
		}
	}
}

// isLeftByEarlier takes what is left of a limit from an earlier one of the same state that keeps no more: what that one
// has left, less what is kept beyond it. It reports false if there is none.
func (o *Operation) isLeftByEarlier(i int) bool {
	p := &o.Parts[i]
	for j := range o.Parts[:i] {
		earlier := &o.Parts[j]
		if earlier.State != p.State || earlier.Machine == nil {
			continue
		}
		if earlier.Keep > p.Keep {
			return false
		}
		o.Outs[i].Remaining = max(0, o.Outs[j].Remaining-(p.Keep-earlier.Keep))
		o.Outs[i].ResetAfter = o.Outs[j].ResetAfter
		return true
	}
	return false
}

// sayLeft says of a limit that was asked, and not charged, what is left after others were.
func (o *Operation) sayLeft(i int) {
	var left stint.Outcome
	p := o.Parts[i]
	o.States[p.State].apply(p.Machine, algorithm.Settle, o.Now, 0, p.Keep, &left)
	o.Outs[i].Remaining, o.Outs[i].ResetAfter = left.Remaining, left.ResetAfter
}

// sayGrowth says of each limit when more remains.
func (o *Operation) sayGrowth() {
	for i := range o.Parts {
		if p := &o.Parts[i]; p.Machine != nil {
			o.Outs[i].GrowsAfter = o.States[p.State].grows(p.Machine, o.Now, p.Keep, o.Outs[i].Remaining)
		}
	}
}

// One is Decide of an operation on one limit.
func (s *State) One(
	m *algorithm.Machine, verb stint.Verb, now stint.Instant, n, keep int64, told bool, out *stint.Outcome,
) {
	s.apply(m, algorithm.ActionOf(verb), now, n, keep, out)
	if verb == stint.VerbTake && !out.Allowed && m.CountsDenied() {
		s.apply(m, algorithm.Deny, now, n, keep, out)
	}
	if told {
		out.GrowsAfter = s.grows(m, now, keep, out.Remaining)
	}
}

// apply carries out an action, and notes whether that changed the state. What it says of waits takes into
// account that what is held expires.
func (s *State) apply(
	m *algorithm.Machine, action algorithm.Action, now stint.Instant, n, keep int64, out *stint.Outcome,
) {
	if m.Apply(action, &s.State, now, n, keep, out) {
		s.Changed = true
	}
	if s.Holding != nil {
		s.correct(m, now, n, keep, out)
	}
}

// correct makes the waits that a limit says those of a state of which what is held expires.
func (s *State) correct(m *algorithm.Machine, now stint.Instant, n, keep int64, out *stint.Outcome) {
	if !s.isHeld() {
		return
	}
	if (!out.Allowed || out.RetryAfter > 0) && n <= m.Capacity()-keep { // what is counted may wait, and was admitted
		out.RetryAfter = s.retryAfter(m, now, n, keep, out.RetryAfter)
	}
	if m.HasPlaces() {
		out.ResetAfter = time.Duration(s.Holding.LastExpiry()-now) * time.Microsecond
	}
}

// isHeld reports whether anything is held that has not expired.
func (s *State) isHeld() bool { return s.Holding != nil && len(s.Holding.parts) > s.Due }

// retryAfter is how long until n permits would be admitted: own is how long if nothing expired.
func (s *State) retryAfter(m *algorithm.Machine, now stint.Instant, n, keep int64, own time.Duration) time.Duration {
	return s.wait(m, now, s.asking, own, func(st *algorithm.State, at stint.Instant) time.Duration {
		var then stint.Outcome
		m.Apply(algorithm.Peek, st, at, n, keep, &then)
		return then.RetryAfter
	})
}

// grows is how long until more remains than was said.
func (s *State) grows(m *algorithm.Machine, now stint.Instant, keep, remaining int64) time.Duration {
	own := m.GrowsAfter(&s.State, now, keep, remaining)
	if own == 0 || !s.isHeld() {
		return own
	}
	return s.wait(m, now, nil, own, func(st *algorithm.State, at stint.Instant) time.Duration {
		return m.GrowsAfter(st, at, keep, remaining)
	})
}

// wait is how long something takes, such as until n permits would be admitted, if nobody took, renewed or ended
// anything: own is how long if nothing expired either, and then how long after an instant, of the state then. A hold
// that asks for more is there all the while.
func (s *State) wait(
	m *algorithm.Machine, now stint.Instant, asking *Held, own time.Duration,
	then func(*algorithm.State, stint.Instant) time.Duration,
) time.Duration {
	st := s.Clone()
	ready := readyAt(now, own)
	for _, part := range s.Holding.parts[s.Due:] {
		at := part.hold.Expires
		if ready < at {
			break
		}
		if part == asking {
			continue
		}
		m.Expire(&st, at, part.pieces, part.n, part.keeps(), s.Lost)
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
