package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unique"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
	"github.com/stint-go/stint/internal/watchdog"
)

// flight is one script call: the operations it carries, the states they touch, and
// what is sent. Flights are used again.
type flight struct {
	store    *Store
	lane     *lane
	layout   *layout
	call     watchdog.Call
	entries  []entry
	parts    []part
	states   []touched
	outs     []stint.Outcome    // by part
	places   map[stateKey]int32 // of states
	latest   stateKey           // the last that was found
	latestAt int32
	names    names // of callers who may leave
	limits   int   // of all entries
	most     int   // that there may be of them
	// mixed says that there is more than takes of states other than logs and calendars,
	// or states of one hash under limits with different parameters.
	mixed bool

	policies     []string         // whose states are touched
	epochs       map[string]int64 // of those
	described    int              // where the descriptions of limits begin among the arguments, two for each
	mix          mix              // of the script
	whole        bool             // whether the script for one take has left it to the whole one
	keys, args   []string
	operations   []byte         // as they are sent
	descriptions map[*limit]int // numbers, from 1
	first        []*group       // of the script's first part
	logs         []int32        // states
	second       []*group
	groups       map[groupKey]*group
	free         []*group
	asked        map[int32]stint.Instant // calendars' times that the script asked for
	flying       flying
	marked       []int32 // states with a key that has the time of their last reset
	numbered     []int32 // states of the first part in the script's order
}

// entry is one operation under way, copied, since its caller may leave.
type entry struct {
	parcel *parcel
	place  int // in the parcel
	verb   stint.Verb
	growth bool
	logs   bool // whether any part is a log's
	from   int32
	count  int32
	cached bool          // whether a denial may be remembered
	taken  stint.Instant // when what a release gives back was taken
	extra  int64         // permits to take on top of one, one after another

	admitted int64 // of the extra permits

	decision stint.Decision
}

// release is a verb that no caller has: it gives back permits taken at an instant,
// each limit's own and nobody else's, where that is still possible. It is for token
// buckets, fixed windows and sliding window counters.
const release = stint.Settle + 1

// lapse is release for permits that were leased and not spent: of a token bucket less
// what it has refilled since.
const lapse = release + 1

// onTop is how an entry's extra permits are sent in the script's first part.
const onTop = lapse + 1

// part is one limit's part in an operation.
type part struct {
	policy  *stint.Policy
	limit   *limit // of the operation; a reset's may differ from the state's
	state   int32
	permits int64
}

// touched is a state that operations of the flight touch.
type touched struct {
	limit  *limit
	client string
	// alone says that nothing but takes, tries and peeks of this limit alone touch it,
	// so what is sent is how often how much is taken.
	alone bool
	// last says that no further operation may touch it: it follows a calendar, whose
	// edges may be around a time that a reset has undone.
	last      bool
	marked    bool          // whether the key with the time of its last reset is named
	resetAt   stint.Instant // that time, if so
	partition int32
	number    int32 // of its description, then in the script's first part
	takes     []takes
	state     state
}

// takes is k takes of n permits each, one after another.
type takes struct{ n, k int64 }

type stateKey struct {
	identity unique.Handle[string]
	client   string
}

// group is a hash with the states in it.
type group struct {
	limit     *limit
	names     *generations
	partition int32
	states    []int32

	current, before generation // as they were found
	missing         bool       // whether a client was not in current
}

// groupKey tells groups apart: of the first part by the identity, since two groups of
// one hash would each turn its generation; of the second by the limit.
type groupKey struct {
	identity  unique.Handle[string]
	limit     *limit
	partition int32
}

// newFlight makes a flight, most often of one that has landed.
func newFlight(l *lane) *flight {
	s := l.store
	f, used := s.landed.Get().(*flight)
	if !used {
		f = &flight{
			places: map[stateKey]int32{}, descriptions: map[*limit]int{}, groups: map[groupKey]*group{}, epochs: map[string]int64{},
		}
	}
	f.store, f.lane, f.layout, f.most = s, l, l.layout.Load(), s.options.MaxBatch
	return f
}

// release gives the flight back, without what it pointed to.
func (f *flight) release() {
	clear(f.entries)
	for i := range f.states {
		f.states[i] = touched{takes: f.states[i].takes[:0]}
	}
	f.entries, f.parts, f.states, f.limits, f.mixed = f.entries[:0], f.parts[:0], f.states[:0], 0, false
	clear(f.places)
	f.latest = stateKey{}
	f.forget()
	s := f.store
	f.asked, f.store, f.lane, f.layout, f.whole = nil, nil, nil, nil, false
	s.landed.Put(f)
}

// forget drops what was put together to be sent.
func (f *flight) forget() {
	clear(f.keys)
	clear(f.args)
	f.keys, f.args = f.keys[:0], f.args[:0]
	f.mix = 0
	clear(f.descriptions)
	clear(f.policies)
	clear(f.epochs)
	f.policies = f.policies[:0]
	for _, g := range f.groups {
		*g = group{states: g.states[:0]}
		f.free = append(f.free, g)
	}
	clear(f.groups)
	f.first, f.second, f.logs, f.numbered, f.marked = f.first[:0], f.second[:0], f.logs[:0], f.numbered[:0], f.marked[:0]
}

// add adds an operation. It reports false when it has to fly later: the flight is
// full, or it touches under other parameters a state that the operation touches, or
// has done with it.
func (f *flight) add(p *parcel, place int, op *stint.Op) bool {
	limits := op.Limits()
	if len(f.entries) > 0 && f.limits+limits > f.most {
		return false
	}
	e := entry{
		parcel: p, place: place, verb: op.Verb, growth: op.Each != nil, taken: p.taken, extra: p.extra,
		from: int32(len(f.parts)), count: int32(limits), cached: f.store.cacheable(op),
	}
	states := len(f.states)
	claimed := f.claim(&e, &op.Claim)
	for i := range op.And {
		claimed = claimed && f.claim(&e, &op.And[i])
	}
	if !claimed {
		f.disclaim(&e, states)
		return false
	}
	f.limits += limits
	f.mixed = f.mixed || op.Verb >= stint.Reset || limits > math.MaxUint8
	parts := f.partsOf(&e)
	if e.logs || op.Verb >= stint.Reset || limits > 1 && op.Verb != stint.Peek {
		for i := range parts {
			t := &f.states[parts[i].state]
			t.alone = false
			t.last = op.Verb == stint.Reset && t.limit.calendar()
		}
	} else if op.Verb != stint.Peek {
		t := &f.states[parts[0].state]
		t.take(parts[0].permits, 1)
		if e.extra > 0 {
			t.take(1, e.extra)
		}
	}
	f.entries = append(f.entries, e)
	return true
}

func (f *flight) partsOf(e *entry) []part { return f.parts[e.from : e.from+e.count] }

func (f *flight) outsOf(e *entry) []stint.Outcome { return f.outs[e.from : e.from+e.count] }

// take notes k takes of n permits of this state alone.
func (t *touched) take(n, k int64) {
	if last := len(t.takes) - 1; last >= 0 && t.takes[last].n == n {
		t.takes[last].k += k
		return
	}
	t.takes = append(t.takes, takes{n, k})
}

// same reports whether two limits of one identity have the same parameters.
func (l *limit) same(o *limit) bool { return l == o || l.limit == o.limit }

// find finds a state that the flight touches. Most often it is the one that was asked
// for last, when one client is what most ask for.
func (f *flight) find(l *limit, client string) (at int32, known bool) {
	key := stateKey{l.identity, client}
	if key == f.latest {
		return f.latestAt, true
	}
	if at, known = f.places[key]; known {
		key.client = f.states[at].client // whose memory lasts
		f.latest, f.latestAt = key, at
	}
	return at, known
}

// touch adds a state. What stood in its place in an earlier flight left its list.
func (f *flight) touch(l *limit, client string) (at int32) {
	n := len(f.states)
	if n < cap(f.states) {
		f.states = f.states[:n+1]
	} else {
		f.states = append(f.states, touched{})
	}
	t := &f.states[n]
	*t = touched{
		limit: l, client: client, partition: int32(f.layout.partition(client)),
		alone: !l.log && !l.calendar(), takes: t.takes[:0],
	}
	f.latest, f.latestAt = stateKey{l.identity, client}, int32(n)
	f.places[f.latest] = f.latestAt
	return f.latestAt
}

// claim adds the parts of a claim. It reports false when the flight may not touch one
// of its states.
func (f *flight) claim(e *entry, claim *stint.Claim) bool {
	plan := f.layout.plan(claim.Policy)
	permits := claim.Permits
	if e.verb == stint.Settle {
		permits = algorithm.Amount(permits)
	}
	client, lasts := claim.Key, e.parcel.ctx.Done() == nil
	for i := range plan {
		l := &plan[i]
		at, known := f.find(l, client)
		switch {
		case !known:
			if !lasts {
				client, lasts = f.names.keep(client), true
			}
			at = f.touch(l, client)
		case len(f.entries) > 0 && (f.states[at].last || !l.same(f.states[at].limit)):
			return false
		}
		e.logs = e.logs || l.log
		f.mixed = f.mixed || l.log || l.calendar()
		f.parts = append(f.parts, part{claim.Policy, l, at, permits})
	}
	return true
}

// disclaim takes back what was claimed for an operation that does not fly: its parts,
// and the states that were not there before.
func (f *flight) disclaim(e *entry, states int) {
	f.parts = f.parts[:e.from]
	for i := range f.states[states:] {
		t := &f.states[states+i]
		delete(f.places, stateKey{t.limit.identity, t.client})
		*t = touched{takes: t.takes[:0]}
	}
	f.states, f.latest = f.states[:states], stateKey{}
}

// maxAsks bounds how often a flight is sent again with other edges of the calendar:
// the first answer names every state that needs others.
const maxAsks = 8

// errAsks says that the calendars did not come to rest.
var errAsks = fmt.Errorf("%w: the calendar was asked for too often", errReply)

// errReply says that the script's reply can't be right.
var errReply = errors.New("unexpected reply of the script")

// fly sends the flight and works out its answers.
func (f *flight) fly(ctx context.Context) error {
	for range maxAsks {
		f.compose()
		f.flying = f.store.denials.send()
		reply, err := f.store.conn.Eval(ctx, f.store.script(f.mix), f.keys, f.args)
		if err != nil {
			return unavailable(err)
		}
		again, err := f.read(reply)
		switch {
		case errors.Is(err, errLayout), errors.Is(err, stint.ErrInvalid):
			return unavailable(err)
		case err != nil:
			return unavailable(fmt.Errorf("%w: %w", errReply, err))
		}
		if !again {
			f.store.flights.Add(1)
			f.store.operations.Add(uint64(len(f.entries)))
			f.remember()
			return nil
		}
	}
	return unavailable(errAsks)
}

// remember keeps the denials that the flight brought, and forgets those that it made
// wrong.
func (f *flight) remember() {
	for i := range f.entries {
		e := &f.entries[i]
		if e.verb == stint.Reset {
			f.store.leases.forget(f, e)
		}
		switch {
		case e.verb == stint.Reset || e.verb >= release || e.verb == stint.Settle && e.decision.Applied < 0:
			if f.store.denials != nil {
				for _, p := range f.partsOf(e) {
					f.store.denials.announce(f.states[p.state].client)
				}
			}
		case f.store.denials == nil || e.verb == stint.Peek:
		case e.decision.Allowed || e.admitted > 0:
			f.taken(e)
		case e.cached:
			f.keep(e)
		}
	}
}
