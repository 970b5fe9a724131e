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

	// Unclipped allows a store to say more of what comes back to a smaller bucket than does.
	Unclipped bool

	// Back says that a hold was asked for that has expired, and whose time is not over by the clock, since that was set back.
	Back bool

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

// A Way is an answer, and the oracle after it.
type Way struct {
	Oracle *Oracle
	Answer Answer
}

// Ways carries out an operation in each way that the contract allows; there is mostly one. The oracle itself is spent.
func (o *Oracle) Ways(op stint.Op, clock stint.Instant) (ways []Way) {
	before := o
	if op.Hold != nil { // the only ones with an open question
		before = o.Clone()
	}
	o.choices, o.open = 0, 0
	ways = append(ways, Way{o, o.Do(op, clock)})
	if o.open == 0 {
		return ways
	}
	for choices, most := uint(1), o.open; choices < 1<<min(most, 6); choices++ {
		c := before.Clone()
		c.choices, c.open = choices, 0
		answer := c.Do(op, clock)
		if most = max(most, c.open); choices < 1<<c.open {
			ways = append(ways, Way{c, answer})
		}
	}
	return ways
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

// A place is one limit of an operation.
type place struct {
	name    name
	limit   stint.Limit
	claim   int
	permits int64  // of its claim
	before  *state // as stored
	now     *state // as the limit reads it at the time
	at      int64  // that time: the later of the clock and what the state records
	write   bool
	out     stint.Outcome
	over    time.Duration // see [Answer.Over]
	number  bool          // of an end: it neither charges nor gives back what is not as asked
}

// Do carries out an operation at the store's time.
func (o *Oracle) Do(op stint.Op, clock stint.Instant) (a Answer) {
	now := int64(clock)
	places := o.places(op, now)
	switch op.Verb {
	case stint.List:
		a.Live = list(places)
		return a
	case stint.Drop:
		a = o.drop(op, places, now)
	case stint.Take, stint.Try, stint.Peek:
		o.take(op, places, now)
	case stint.Reset:
		for _, p := range places {
			delete(o.states, p.name)
			p.out = p.outcome(untouched(p.limit), now)
		}
	case stint.Settle:
		settle(places, now)
	case stint.Reserve:
		a = o.reserve(op, places, now)
	case stint.Commit, stint.Cancel:
		a = o.finish(op, places, now)
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
	}
	a.Decision = decide(a.Each, clock)
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
	claims := append([]stint.Claim{op.Claim}, op.And...)
	for c, claim := range claims {
		for i := range claim.Policy.Len() {
			l := claim.Policy.Limit(i)
			p := &place{
				name:  name{claim.Policy.Name(), l.Name, l.Algorithm, claim.Key},
				limit: l, claim: c, permits: claim.Permits,
			}
			if p.before = o.states[p.name]; p.before == nil {
				p.before = untouched(l)
			}
			p.at = max(now, p.before.newest())
			p.now = p.before.load(l, now)
			list = append(list, p)
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
		Remaining:  max(0, floor(loaded.room(at))),
		ResetAfter: time.Duration(reset-now) * time.Microsecond,
	}
}

// decide makes the decision of the limits' outcomes: "the deciding limit is, on denial, the one with the longest wait, on
// admission the one with the smallest Remaining; the first on a tie".
func decide(each []stint.Outcome, at stint.Instant) stint.Decision {
	d := stint.Decision{Allowed: true, At: at}
	for _, e := range each {
		d.Allowed = d.Allowed && e.Allowed
		d.Delay = max(d.Delay, e.Delay)
	}
	if !d.Allowed {
		d.Delay = 0 // "how long to hold an admitted request"
	}
	best := 0
	for i, e := range each {
		if d.Allowed && e.Remaining < each[best].Remaining || !d.Allowed && e.RetryAfter > each[best].RetryAfter {
			best = i
		}
	}
	b := each[best]
	d.Index, d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter = int16(best), b.Limit, b.Remaining, b.RetryAfter, b.ResetAfter
	return d
}

// deny fills in the outcomes of a denial, which "writes nothing". wants are what each limit was asked for.
func deny(places []*place, wants []int64, alone []bool, full []bool, most int, now int64) {
	for i, p := range places {
		p.write = false
		p.out = p.outcome(p.before, now)
		if p.out.Allowed = alone[i]; alone[i] { // it says what its own Peek would
			if wants[i] > 0 {
				p.out.Delay = p.delay(now, wants[i])
			}
			continue
		}
		if wants[i] > p.limit.Capacity {
			p.out.RetryAfter = stint.Never
			continue
		}
		admits := func(c *state, at int64) bool {
			live, _ := c.live()
			return c.admits(wants[i], at) && (!full[i] || live < most)
		}
		p.out.RetryAfter = time.Duration(p.before.from(p.limit, now, admits)-now) * time.Microsecond
		if live, _ := p.before.live(); live > 0 && changed(p.before.limit, p.limit) {
			p.over = time.Duration(p.now.from(p.limit, now, admits)-now) * time.Microsecond
		}
	}
}

// changed says that one limit takes over what another wrote.
func changed(a, b stint.Limit) bool {
	return a.Capacity != b.Capacity || a.Rate != b.Rate || a.Window != b.Window || a.MinInterval != b.MinInterval
}

func (o *Oracle) take(op stint.Op, places []*place, now int64) {
	wants, alone := make([]int64, len(places)), make([]bool, len(places))
	all := true
	for i, p := range places {
		wants[i] = p.limit.Takes(p.permits)
		alone[i] = p.now.admits(wants[i], p.at)
		all = all && alone[i]
	}
	if !all {
		deny(places, wants, alone, make([]bool, len(places)), o.maxHolds, now)
		return
	}
	for i, p := range places {
		if op.Verb == stint.Peek {
			p.out = p.outcome(p.before, now)
			p.out.Delay = p.delay(now, wants[i])
			continue
		}
		p.write = true
		_, wait := p.now.charge(wants[i], p.at, true)
		p.out = p.outcome(p.now, now)
		p.out.Delay = p.fromClock(wait, now)
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
	if write {
		p.out = p.outcome(p.now, now)
	} else {
		p.out = p.outcome(p.before, now)
	}
	p.out.Applied = applied
}
