// Package holdoracle is an exact model of holds, and of the six kinds of limits under them, made from their written
// contract alone. It is naive and slow: rational numbers, lists, and waits that are found by trying.
package holdoracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// A name says whose state it is: "State belongs to (limit name, algorithm, key)", within a policy's name.
type name struct {
	policy, limit string
	algorithm     stint.Algorithm
	key           string
}

// A record is what is known of an id.
type record struct {
	names   []name
	ways    []stint.Way // of each name
	on      []int       // of each group, the way that it is on
	expires int64
	over    bool // a write has noticed that it has expired
	dropped bool // some of it, by a Drop
	ttl     time.Duration
	keep    bool
	held    []int64 // of each limit, as the last Reserve left it
	paid    []int64 // of these, what an earlier expiry has charged for good

	end     stint.HoldEnd // HoldLive also when it has expired meanwhile
	at      int64         // when it ended
	lapsed  bool          // it was forgotten, before the clock was set back
	permits []int64       // what a Commit said, of each claim
	late    bool
	reset   bool
	applied []int64
	said    int64 // of all limits together
}

// An Answer is what a store must say of an operation.
type Answer struct {
	Decision stint.Decision
	Each     []stint.Outcome // without GrowsAfter
	Hold     stint.HoldOp    // what is said of the hold; only that
	Live     []stint.HoldState
	Err      error // one of package stint's
	// Charged says of each limit whether it is the operation's to charge if it is admitted: it has to admit, or is of the way
	// that was taken of its group. Unasked are the limits of other ways than a hold is on: whether they would admit is not said.
	Charged, Unasked []bool
	// Over is another RetryAfter that the contract allows, for each limit, or 0: a denial reads a state with holds that
	// another version of the limit wrote, and writes nothing. What is exact on a copy of it, and what follows from the
	// state as it is taken over now, differ then.
	Over []time.Duration
}

// An Oracle is the model of a store.
type Oracle struct {
	maxHolds int
	states   map[name]*state
	ids      map[string]*record

	choices uint // of the operation under way: bit i is what its i-th open question is answered with
	open    int  // how many it has met
}

// Clone returns a copy.
func (o *Oracle) Clone() *Oracle {
	c := *o
	c.states, c.ids = make(map[name]*state, len(o.states)), make(map[string]*record, len(o.ids))
	for n, s := range o.states {
		c.states[n] = s.clone()
	}
	for id, r := range o.ids {
		copied := *r
		c.ids[id] = &copied
	}
	return &c
}

// String says all that the oracle knows.
func (o *Oracle) String() string {
	var lines []string
	for n, s := range o.states {
		line := fmt.Sprintln(n, s.limit, s.at, s.due, s.start, s.end, s.used, s.previous, s.empty, s.entries, s.last)
		for _, h := range s.holds {
			line += fmt.Sprintln(*h)
		}
		lines = append(lines, line)
	}
	for id, r := range o.ids {
		lines = append(lines, fmt.Sprintln(id, *r))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// choose answers a question that the contract leaves open.
func (o *Oracle) choose() bool {
	o.open++
	return o.choices>>(o.open-1)&1 == 1
}

// A Branch is an answer, and the oracle after it.
type Branch struct {
	Oracle *Oracle
	Answer Answer
}

// mostQuestions is how many open questions of one operation are answered in all manners: each doubles the time.
const mostQuestions = 6

// Branches carries out an operation in each manner that the contract allows; there is mostly one. The oracle itself is spent.
func (o *Oracle) Branches(op stint.Op, clock stint.Instant) (branches []Branch) {
	before := o
	if op.Hold != nil { // the only ones with an open question
		before = o.Clone()
	}
	o.choices, o.open = 0, 0
	branches = append(branches, Branch{o, o.Do(op, clock)})
	if o.open == 0 {
		return branches
	}
	for choices, most := uint(1), o.open; choices < 1<<min(most, mostQuestions); choices++ {
		c := before.Clone()
		c.choices, c.open = choices, 0
		answer := c.Do(op, clock)
		if most = max(most, c.open); choices < 1<<c.open {
			branches = append(branches, Branch{c, answer})
		}
	}
	return branches
}

// ResetAll clears the state of all clients of a policy, or of all. What is known of ids stays.
func (o *Oracle) ResetAll(scope stint.Scope) {
	for n := range o.states {
		if scope.All || n.policy == scope.Policy {
			delete(o.states, n)
		}
	}
}

// New returns the model of an empty store that allows so many holds of one client under one limit.
func New(maxHolds int) *Oracle {
	return &Oracle{maxHolds: maxHolds, states: map[name]*state{}, ids: map[string]*record{}}
}

// A cell is a state that an operation is about. Ways of one group may share it.
type cell struct {
	name   name
	before *state // as stored
	now    *state // as the limit reads it at the time
	at     int64  // that time: the later of the clock and what the state records
	write  bool
}

// A place is one limit of an operation.
type place struct {
	*cell
	limit   stint.Limit
	permits int64 // of its claim
	keep    int64 // how many permits of the limit its claim leaves to others
	way     stint.Way
	want    int64         // what it is asked for
	alone   bool          // whether it admits
	full    bool          // there are as many holds as the store allows
	charged bool          // see [Answer.Charged]
	unasked bool          // see [Answer.Unasked]
	retry   time.Duration // how long until it admits
	over    time.Duration // see [Answer.Over]
	out     stint.Outcome
	asking  string // the hold that asks for more; "" is none
	number  bool   // of an end: it neither charges nor gives back what is not as asked
}

// Do carries out an operation at the store's time.
func (o *Oracle) Do(op stint.Op, clock stint.Instant) (a Answer) {
	now := int64(clock)
	places := o.places(op, now)
	pl := newPlan(places)
	allowed := true
	switch op.Verb {
	case stint.List:
		a.Live = list(places)
		return a
	case stint.Drop:
		a = o.drop(op, places, now)
	case stint.Take, stint.Try, stint.Peek:
		allowed = o.take(op, pl, now)
	case stint.Reset:
		for _, p := range places {
			delete(o.states, p.name)
			p.out = p.outcome(untouched(p.limit), now)
		}
	case stint.Settle:
		settle(places, now)
	case stint.Reserve:
		a, allowed = o.reserve(op, pl, now)
	case stint.Commit, stint.Cancel:
		a = o.finish(op, pl, now)
	default:
		panic("holdoracle: verb " + op.Verb.String())
	}
	if a.Err != nil {
		return a
	}
	for _, p := range places {
		if p.write {
			for _, id := range p.now.over { // an expiry that was noticed stays one, though the clock be set back
				if r := o.ids[id]; r != nil && r.end == stint.HoldLive && r.expires <= p.at {
					r.over = true
				}
			}
			p.now.over = nil
			o.states[p.name] = p.now
		}
		a.Each, a.Over = append(a.Each, p.out), append(a.Over, p.over)
		a.Charged, a.Unasked = append(a.Charged, p.charged), append(a.Unasked, p.unasked)
	}
	a.Decision = pl.decide(allowed, clock)
	// "of several limits the least", of those that have no fixed cost
	if op.Hold != nil && a.Hold.Replayed && op.Verb != stint.Reserve {
		a.Decision.Applied = o.ids[op.Hold.ID].said // "the same answer"
		return a
	}
	first := true
	for i, p := range places {
		if n := a.Each[i].Applied; !p.number {
			if first || max(n, -n) < max(a.Decision.Applied, -a.Decision.Applied) {
				a.Decision.Applied = n
			}
			first = false
		}
	}
	if op.Verb == stint.Commit || op.Verb == stint.Cancel {
		o.ids[op.Hold.ID].said = a.Decision.Applied
	}
	return a
}

func (o *Oracle) places(op stint.Op, now int64) (list []*place) {
	cells := map[name]*cell{}
	for _, claim := range append([]stint.Claim{op.Claim}, op.And...) {
		way := claim.Way
		for i := range claim.Policy.Len() {
			l := claim.Policy.Limit(i)
			n := name{claim.Policy.Name(), l.Name, l.Algorithm, claim.Key}
			c := cells[n]
			if c == nil {
				c = &cell{name: n, before: o.states[n]}
				if c.before == nil {
					c.before = untouched(l)
				}
				c.at = max(now, c.before.newest())
				c.now = c.before.load(l, now)
				cells[n] = c
			}
			list = append(list, &place{cell: c, limit: l, permits: claim.Permits, keep: claim.Keep, way: way})
			if way != stint.Must {
				way = stint.With
			}
		}
	}
	return list
}

// outcome is what is said of a state, as it is after the operation.
func (p *place) outcome(s *state, now int64) stint.Outcome {
	at := max(now, s.newest())
	loaded := s.load(p.limit, now)
	// "of a state whose holds were committed now; of concurrency the last expiry" (docs/internals/holds.md, "Waits").
	// Of a changed limit it is that of the state as it is taken over now.
	committed := loaded.clone()
	if p.limit.Algorithm != stint.AlgorithmConcurrency {
		committed.bring(at)
		committed.holds = nil
	}
	reset := committed.from(p.limit, now, func(c *state, at int64) bool { return c.blank(at) })
	return stint.Outcome{
		Allowed:    true,
		Limit:      p.limit.Capacity,
		Remaining:  max(0, floor(loaded.room(at))-p.keep),
		ResetAfter: time.Duration(reset-now) * time.Microsecond,
	}
}

// see is the outcome of the state as it is after the operation.
func (p *place) see(now int64) stint.Outcome {
	if p.write {
		return p.outcome(p.now, now)
	}
	return p.outcome(p.before, now)
}

// ask finds how long a place waits that does not admit, before anything is charged; most is how many holds it may have.
func (p *place) ask(most int, now int64) {
	switch {
	case p.alone:
		return
	case p.want > p.limit.Capacity-p.keep:
		p.retry = stint.Never
		return
	}
	admits := func(c *state, at int64) bool {
		live, _ := c.live()
		return c.admits(p.want, p.keep, at) && (!p.full || live < most)
	}
	p.retry = p.wait(p.before, now, admits)
	if live, _ := p.before.live(); live > 0 && changed(p.before.limit, p.limit) {
		p.over = p.wait(p.now, now, admits)
	}
}

// deny fills in the outcomes of a denial, which "writes nothing".
func (pl *plan) deny(most int, now int64) {
	for _, p := range pl.all {
		p.write = false
		p.out = p.outcome(p.before, now)
		p.ask(most, now)
		p.out.Allowed, p.out.RetryAfter = p.alone, p.retry
		if p.alone && p.want > 0 { // it says what its own Peek would
			p.out.Delay = p.delay(now, p.want)
		}
	}
}

// wait is how long until a condition holds, if nobody takes, renews or ends: a hold that asks for more is there all the
// while, since to be admitted then is to hold on.
func (p *place) wait(s *state, now int64, holds func(c *state, at int64) bool) time.Duration {
	s = s.clone()
	if h := s.hold(p.asking); h != nil {
		h.expires = far
	}
	at := s.from(p.limit, now, holds)
	if at == far {
		return stint.Never
	}
	return time.Duration(at-now) * time.Microsecond
}

// changed says that one limit takes over what another wrote.
func changed(a, b stint.Limit) bool {
	return a.Capacity != b.Capacity || a.Rate != b.Rate || a.Window != b.Window || a.MinInterval != b.MinInterval
}

func (o *Oracle) take(op stint.Op, pl *plan, now int64) (allowed bool) {
	for _, p := range pl.all {
		p.want = p.limit.Takes(p.permits)
		p.alone = p.now.admits(p.want, p.keep, p.at)
	}
	if !pl.choose() {
		pl.deny(o.maxHolds, now)
		return false
	}
	pl.charge(o.maxHolds, now, func(p *place) (delay time.Duration) {
		if op.Verb == stint.Peek {
			return p.delay(now, p.want)
		}
		p.write = true
		_, wait := p.now.charge(p.want, p.at, true)
		return p.fromClock(wait, now)
	})
	return true
}

// charge carries out what is charged. The limits of other ways say whether they admitted before, and what is left after.
func (pl *plan) charge(most int, now int64, charge func(p *place) (delay time.Duration)) {
	for _, p := range pl.all {
		p.ask(most, now)
	}
	delays := map[*place]time.Duration{}
	for _, p := range pl.all {
		if p.charged {
			delays[p] = charge(p)
		}
	}
	for _, p := range pl.all {
		p.out = p.see(now)
		p.out.Allowed, p.out.RetryAfter, p.out.Delay = p.alone, p.retry, delays[p]
	}
}

func (p *place) fromClock(wait, now int64) time.Duration {
	if p.limit.Algorithm != stint.AlgorithmLeakyBucket {
		return 0
	}
	return time.Duration(wait+p.at-now) * time.Microsecond
}

func (p *place) delay(now, n int64) time.Duration {
	_, wait := p.now.clone().charge(n, p.at, true)
	return p.fromClock(wait, now)
}

func settle(places []*place, now int64) {
	for _, p := range places {
		applied := int64(0)
		switch {
		case p.fixed(): // "A Settle or Commit leaves what was taken as it is": it is no bound on what is applied
			p.finish(p.permits, false, now)
			continue
		case p.permits > 0:
			applied = p.now.debit(p.permits, p.at)
		default:
			applied = -p.now.refund(-p.permits, p.at)
		}
		p.finish(applied, applied != 0, now)
	}
}

// fixed says that neither a Settle nor a Commit charges the limit.
func (p *place) fixed() bool {
	return p.limit.Cost > 0 || p.limit.Algorithm == stint.AlgorithmConcurrency
}

// finish fills in the outcome of what is not asked whether it is admitted.
func (p *place) finish(applied int64, write bool, now int64) {
	p.write = write
	p.out = p.see(now)
	p.out.Applied = applied
}
