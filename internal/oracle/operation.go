package oracle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A transaction is one operation on a world, of which it changes nothing.
type transaction struct {
	*Oracle
	world  *world
	now    stint.Instant
	states map[name]*state // what is written; nil: reset, or dropped
	ids    map[string]*record

	path []bool // the answers to the questions that the contract leaves open, in the order in which they come up
	open int    // how many have come up
}

// choose answers a question that the contract leaves open: no, unless the path says otherwise.
func (t *transaction) choose() bool {
	if t.open++; t.open > len(t.path) {
		t.path = append(t.path, false)
	}
	return t.path[t.open-1]
}

// do carries out the operation, in this order:
//
//  1. Each limit finds its state, and reads it at the time (places).
//  2. Each limit is asked (ask), unless the verb asks for nothing, such as Settle, Reset and the ends of
//     holds; of each group one way is chosen (plan.choose).
//  3. What is charged is charged, and noted to be written (place.write).
//  4. Each limit tells what is left after all of that (look).
//  5. What was noted is written (store), and the limits' outcomes make one decision (plan.decide).
//
// An answer with an error leaves states unwritten.
func (t *transaction) do(op stint.Op) (a Answer) {
	places := t.places(op)
	pl := newPlan(op, places)
	pl.mark()
	allowed := true
	switch op.Verb {
	case stint.VerbList:
		return Answer{Live: list(places)}
	case stint.VerbDrop:
		a = t.drop(op, places)
	case stint.VerbTake, stint.VerbTry, stint.VerbPeek:
		allowed = t.take(op.Verb, pl)
	case stint.VerbReset:
		t.reset(places)
	case stint.VerbSettle:
		t.settle(places)
	case stint.VerbReserve:
		a, allowed = t.reserve(op, pl)
	case stint.VerbCommit, stint.VerbCancel:
		a = t.end(op, pl)
	default:
		a.Err = stint.Invalid("verb", op.Verb, "one that the oracle knows")
	}
	if a.Err != nil {
		return a
	}
	for _, p := range places {
		if p.write {
			t.store(p)
		}
		a.Each, a.Charged, a.unasked = append(a.Each, p.out), append(a.Charged, p.charged), append(a.unasked, p.unasked)
	}
	a.Decision = pl.decide(allowed, t.now)
	if op.Hold() == nil || op.Verb == stint.VerbReserve || !a.Hold.Replayed {
		pl.apply(&a.Decision)
	}
	if op.Verb == stint.VerbCommit || op.Verb == stint.VerbCancel {
		r := t.ids[op.Hold().ID]
		if a.Hold.Replayed {
			a.Decision.Applied = r.said // the same answer
		}
		r.said = a.Decision.Applied
	}
	return a
}

// places are the limits of an operation in order, with the states that they find.
func (t *transaction) places(op stint.Op) (list []*place) {
	cells := map[name]*cell{}
	for _, m := range members(op) {
		claim := m.claim
		for _, limit := range claim.Policy.Limits() {
			n := name{claim.Policy.Name(), limit.Name, limit.Algorithm, claim.Key}
			c := cells[n]
			if c == nil {
				t.versions.saw(n, limit, t.history.operations)
				before, known := t.find(n, limit)
				c = &cell{name: n, known: known, before: before, now: before.read(limit, t.now), at: max(t.now, before.newest())}
				cells[n] = c
			}
			list = append(list, &place{cell: c, limit: limit, permits: claim.Permits, keep: claim.Keep, spot: m.spot})
		}
	}
	return list
}

// find is the state that a store may find. It answers an open question: whether it was dropped, having been
// worthless for longer than the margin of its TTL, if the clock has been set back to when it was not, or if it is
// worth something to another version of the limit, which has come up since.
func (t *transaction) find(n name, limit stint.Limit) (s *state, known bool) {
	s = t.world.states[n]
	if s != nil {
		until := s.own.until
		if changed(s.limit, limit) {
			until = s.all.until
		}
		if t.now < until && t.history.highestSince(s.written) >= t.versions.dropFrom(n, s) && t.choose() {
			t.states[n] = nil
			s = nil
		}
	}
	if s == nil {
		return t.untouched(limit), false
	}
	return s, true
}

// store writes what the operation made of a state. The TTL that a store gives it covers its life and a margin of a
// tenth, at least one second.
func (t *transaction) store(p *place) {
	s := p.state()
	for _, id := range s.over { // an expiry that was noticed stays one, though the clock be set back
		if r := t.record(id); r != nil && r.end == holdLive && r.expires <= p.at {
			r.over = true
		}
	}
	s.over = nil
	at := max(t.now, s.newest())
	end, last := s, at
	if len(s.holds) > 0 {
		end = s.clone()
		for _, h := range end.holds {
			last = max(last, h.expires)
		}
		end.expire(last)
	}
	s.written = t.history.operations
	until := max(last, end.untouchedAt())
	s.own = worthUntil(until, at)
	s.all = worthUntil(max(until, end.restedAt()), at)
	t.states[p.name] = s
}

// worthUntil is the worth of a state that was written at an instant.
func worthUntil(until, at stint.Instant) worth {
	return worth{until, until + max(micros(time.Second), (until-at)/10)}
}

// ask finds whether a limit admits what it is asked for, and if not how long that takes.
func (t *transaction) ask(p *place) {
	state := p.state()
	p.out.Allowed = p.want == 0 || !p.full && p.want <= p.limit.Capacity-p.keep && p.now.admits(p.want, p.keep, p.at)
	p.out.RetryAfter, p.out.Delay = 0, 0
	switch {
	case p.out.Allowed && p.want > 0:
		p.out.Delay = wait(t.now, p.now.turn(p.at))
	case p.out.Allowed:
	case p.want > p.limit.Capacity-p.keep:
		p.out.RetryAfter = stint.Never
	default:
		p.out.RetryAfter = t.wait(p, state)
	}
}

// state is the state as it is after the operation so far: what was written is the limit's own.
func (p *place) state() *state {
	if !p.write {
		return p.before
	}
	if p.now.mixed {
		p.now.limit, p.now.mixed = p.limit, false
	}
	if p.limit.IsBucket() && p.before.changedFor(p.now.limit) {
		p.now.at = max(p.now.at, p.at) // it was taken over
	}
	return p.now
}

// wait is how long it takes from a state on, if nobody takes, renews or ends. A hold that asks for more is there
// all the while, since to be admitted then is to hold on.
func (t *transaction) wait(p *place, from *state) time.Duration {
	if h := from.hold(p.asking); h != nil {
		from = from.clone()
		from.hold(p.asking).expires = far
	}
	return wait(t.now, from.first(
		p.limit, t.now,
		func(read *state) stint.Instant { return max(read.guess(p.want+p.keep), read.readyAt()) },
		func(read *state, at stint.Instant) bool {
			live, _ := read.live()
			return read.admits(p.want, p.keep, at) && (!p.full || live < t.maxHolds)
		}))
}

// look fills in what is said of a state as it is after the operation.
func (t *transaction) look(p *place) {
	s := p.state()
	read := s.read(p.limit, t.now)
	left, most := read.remaining(p.keep, t.now), p.limit.Capacity-p.keep
	p.out.Limit, p.out.Denials, p.out.Remaining, p.out.GrowsAfter = p.limit.Capacity, p.limit.Denials, left, 0
	if left < most {
		p.out.GrowsAfter = wait(t.now, s.first(
			p.limit, t.now,
			func(read *state) stint.Instant { return read.guess(left + 1 + p.keep) },
			func(read *state, at stint.Instant) bool { return read.remaining(p.keep, at) > left }))
	}
	p.out.ResetAfter = t.resetAfter(p, s, read)
}

// resetAfter is how long until a state equals an untouched one, as if what is held were committed now; of
// concurrency it is the last expiry.
func (t *transaction) resetAfter(p *place, s, read *state) time.Duration {
	if p.limit.Algorithm == stint.AlgorithmConcurrency {
		return wait(t.now, s.first(
			p.limit, t.now,
			func(*state) stint.Instant { return 0 },
			func(read *state, _ stint.Instant) bool { live, _ := read.live(); return live == 0 }))
	}
	if live, _ := read.live(); live == 0 && s.changedFor(p.limit) {
		return wait(t.now, s.first(p.limit, t.now, (*state).untouchedAt, (*state).isUntouched))
	}
	at := max(t.now, read.newest())
	read.bring(at)
	if read.isUntouched(at) {
		return 0
	}
	return wait(t.now, read.untouchedAt())
}

// changed says that a limit takes over what another wrote: they differ in what a state is counted by.
// Debt and cost change nothing of a state, nor does a rate in other words: 2 in 2 s are 1 a second.
func changed(a, b stint.Limit) bool {
	return a.Capacity != b.Capacity || a.Window != b.Window || a.MinInterval != b.MinInterval ||
		a.IsBucket() && b.IsBucket() && !samePace(&a, &b)
}

// take decides a Take, a Try or a Peek. Every limit is asked; then those that are charged are; then each is looked
// at, so that ways which were not charged tell what is left now, also of a state that they share with the one that
// was.
func (t *transaction) take(verb stint.Verb, pl *plan) (allowed bool) {
	for _, p := range pl.all {
		if p.want = p.limit.Takes(p.permits); p.limit.Denials {
			p.want = 1
		}
		t.ask(p)
	}
	allowed = pl.choose()
	for _, p := range pl.all {
		switch {
		case p.limit.Denials && (allowed || verb != stint.VerbTake || !p.out.Allowed):
		case p.limit.Denials: // it counts the denial, and says what comes of it
			p.write = true
			p.now.charge(1, p.at, true)
			t.ask(p)
			p.out.Allowed = true
		case allowed && verb != stint.VerbPeek && p.charged:
			p.write = true
			p.now.charge(p.want, p.at, true)
		case !allowed && verb == stint.VerbTake && p.limit.CountDenied:
			p.write = true
			p.now.enterDenied(p.want, p.at)
			admitted := p.out.Allowed
			t.ask(p)
			p.out.Allowed = admitted
		}
	}
	for _, p := range pl.all {
		t.look(p)
	}
	return allowed
}

// settle charges positive amounts and gives back negative ones, of each limit what it can.
func (t *transaction) settle(places []*place) {
	for _, p := range places {
		applied := int64(0)
		switch {
		case p.fixed(): // it is no bound on what is applied
			p.number = true
			t.finish(p, 0, false)
			continue
		case p.permits > 0:
			applied = p.now.debit(p.permits, p.at)
		default:
			applied = -p.now.refund(-max(p.permits, -settleBound), p.at)
		}
		t.finish(p, applied, applied != 0)
	}
}

// fixed says that neither a Settle nor a Commit charges the limit.
func (p *place) fixed() bool {
	return p.limit.Cost > 0 || p.limit.Denials || p.limit.Algorithm == stint.AlgorithmConcurrency
}

// finish fills in the outcome of what is not asked whether it is admitted.
func (t *transaction) finish(p *place, applied int64, write bool) {
	p.write = write
	p.out = stint.Outcome{Allowed: true, Applied: applied}
	t.look(p)
}

// list is what is held, the next to expire first; of each limit the first 100.
func list(places []*place) (all []stint.Hold) {
	byID := map[string]stint.Hold{}
	for i, p := range places {
		var mine []*held
		for _, h := range p.now.holds {
			if h.permits > h.paid {
				mine = append(mine, h)
			}
		}
		slices.SortFunc(mine, func(a, b *held) int {
			return cmp.Or(cmp.Compare(a.expires, b.expires), cmp.Compare(a.id, b.id))
		})
		for _, h := range mine[:min(len(mine), bounds.MaxListed)] {
			if byID[h.id].Permits == nil {
				byID[h.id] = stint.Hold{ID: h.id, Permits: make([]int64, len(places)), ExpiresAt: h.expires}
			}
			byID[h.id].Permits[i] = h.permits - h.paid
		}
	}
	return slices.SortedFunc(maps.Values(byID), inOrder)
}
