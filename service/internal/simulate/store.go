package simulate

import (
	"math"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
	"github.com/stint-go/stint/rules"
)

// A store has the states of all clients under the policies of one candidate, in virtual time. It
// decides as package memstore does, by the same transitions, but keeps every client, and tells of
// each limit what it said.
type store struct {
	tables map[*stint.Policy]*table
	// maxClients is how many clients a table has at most; then it keeps a sample of them.
	maxClients int
	memory     *memory
	ops        []limitOp
	// fault is why a request can't be decided; nil: all can.
	fault error
	outs  []stint.Outcome
	// ways are those of the limits in ops; nil: all have to admit.
	ways []stint.Way
	// taken says which limits of ways are charged, or would be; nil without ways.
	taken []bool
}

// A limitOp is an operation as one of its limits decides it.
type limitOp struct {
	table   *table
	limit   *limit
	client  int32
	claim   int32
	permits int64
	keep    int64
}

// newStore makes a store without clients.
func newStore(maxClients int, memory *memory) *store {
	return &store{tables: map[*stint.Policy]*table{}, maxClients: maxClients, memory: memory}
}

// A claim is one to be decided, with where its client is.
type claim struct {
	stint.Claim

	rule  *tally
	table *table
	key   key
	// guess is the client, by table.guess.
	guess int32
	// named says that the request may name the cost.
	named bool
	class string
	via   string // as of rules.Matched
	// of is the rule's client, by which reports name it.
	of string
}

// claims makes those of a rule, each key prepared once. They are added to a list.
func (s *store) claims(list []claim, rule *tally, of *rules.Matched) []claim {
	c, k := of.Claim, keyOf(of.Claim.Key)
	for i := 0; ; i++ {
		via := ""
		if i < len(of.Vias) {
			via = of.Vias[i]
		}
		list = append(list, claim{c, rule, s.table(c.Policy), k, 0, i < of.Named, of.Class, via, of.Client})
		if i == len(of.And) {
			return list
		}
		before := c.Key
		if c = of.And[i]; c.Key != before { // of another rule
			k = keyOf(c.Key)
		}
	}
}

// table is where the clients of a policy are.
func (s *store) table(policy *stint.Policy) *table {
	t := s.tables[policy]
	if t == nil {
		t = newTable(policy, s.maxClients, s.memory)
		s.tables[policy] = t
	}
	return t
}

// decide carries out a verb on claims, all in one step. Claims of clients outside the sample are left
// out, and with them those of all ways of their group; without any other, known is false. The outcomes
// are in s.outs, of the limits in s.ops, until the next call.
func (s *store) decide(verb stint.Verb, claims []claim, now stint.Instant) (d stint.Decision, known bool) {
	s.ops, s.outs, s.ways, s.taken = s.ops[:0], s.outs[:0], s.ways[:0], s.taken[:0]
	alternatives := false
	for i := 0; i < len(claims); {
		first, sampled := len(s.ops), true
		for next := i; i == next || i < len(claims) && (claims[i].Way == stint.With || claims[i].Way == stint.Else); i++ {
			c := &claims[i]
			t, way := c.table, c.Way
			client := t.find(&c.key)
			sampled = sampled && client >= 0
			for j := range t.limits {
				s.ops = append(s.ops, limitOp{t, &t.limits[j], client, int32(i), c.Permits, c.Keep})
				s.outs = append(s.outs, stint.Outcome{})
				s.ways = append(s.ways, way)
				if way != stint.Must {
					way, alternatives = stint.With, true
				}
			}
		}
		if !sampled {
			s.ops, s.outs, s.ways = s.ops[:first], s.outs[:first], s.ways[:first]
		}
	}
	if !alternatives {
		s.ways = s.ways[:0]
	}
	if len(s.ops) == 0 {
		return stint.Decision{Allowed: true, At: now}, false
	}
	if verb == stint.Reset {
		for i := range s.ops {
			op := &s.ops[i]
			op.limit.state.reset(op.client)
			s.outs[i] = op.limit.state.Untouched(op.keep)
		}
	} else if !s.apply(verb, now) {
		s.untilExpiry(claims)
	}
	return s.combine(0, len(s.ops), now), true
}

// combine is the decision of some of the operation's limits.
func (s *store) combine(from, to int, now stint.Instant) stint.Decision {
	if len(s.ways) > 0 {
		return stint.CombineWays(s.outs[from:to], s.ways[from:to], now)
	}
	return stint.Combine(s.outs[from:to], now)
}

// charged reports whether a limit is charged if the operation is admitted.
func (s *store) charged(i int) bool { return len(s.taken) == 0 || s.taken[i] }

// apply first asks all limits, then carries the operation out on all. It reports whether they admit
// it. As in a store: with several limits each is asked first, and charged only if all admit.
func (s *store) apply(verb stint.Verb, now stint.Instant) (allowed bool) {
	action := algorithm.ActionOf(verb)
	tried := action
	if action == algorithm.Take && (len(s.ops) > 1 || len(s.ways) > 0) {
		tried = algorithm.Peek
	}
	allowed = true
	for i := range s.ops {
		op := &s.ops[i]
		op.limit.state.apply(tried, op.client, now, op.permits, op.keep, &s.outs[i])
		allowed = allowed && s.outs[i].Allowed
	}
	if len(s.ways) > 0 {
		s.taken = append(s.taken, make([]bool, len(s.ops))...)
		allowed = stint.Choose(s.outs, s.ways, s.taken)
		defer s.lookAside(now)
	}
	if action != algorithm.Take || verb == stint.Try && !allowed {
		return allowed
	}
	for i := range s.ops {
		op := &s.ops[i]
		switch {
		case !s.charged(i):
		case !allowed:
			if op.limit.CountDenied {
				op.limit.state.apply(algorithm.Deny, op.client, now, op.permits, op.keep, &s.outs[i])
			}
		case tried == algorithm.Peek:
			op.limit.state.apply(algorithm.Take, op.client, now, op.permits, op.keep, &s.outs[i])
		}
	}
	return allowed
}

// lookAside says of the limits that were asked, and not charged, what they have left after the
// others were.
func (s *store) lookAside(now stint.Instant) {
	for i := range s.ops {
		if op := &s.ops[i]; !s.taken[i] {
			var left stint.Outcome
			op.limit.state.apply(algorithm.Settle, op.client, now, 0, op.keep, &left)
			s.outs[i].Remaining, s.outs[i].ResetAfter = left.Remaining, left.ResetAfter
		}
	}
}

// A limit has the states of all clients of a policy under one of its limits, and what they were admitted within its
// window.
type limit struct {
	stint.Limit
	state  states
	window window
}

// states are those of all clients under a limit.
type states interface {
	Untouched(keep int64) stint.Outcome
	apply(action algorithm.Action, client int32, now stint.Instant, n, keep int64, out *stint.Outcome)
	// hold takes note of n permits that were just taken, to be ended by end.
	hold(client int32, n int64) algorithm.Piece // of what was just taken
	end(client int32, now stint.Instant, held algorithm.Piece, kept int64)
	reset(client int32)
	prefetch(client int32)
	grow()                // by one client
	size() int64          // of a state, in bytes
	keep(clients []int32) // and forget all others: clients[i] becomes i
}

// statesOf are those of one algorithm, of whose state an S is kept.
type statesOf[S any] struct {
	pages[S]
	algorithm.Machine

	read   func(kept *S, state *algorithm.State)
	write  func(kept *S, state *algorithm.State)
	state  algorithm.State // at work
	loaded S               // by prefetch
}

// apply carries out an action on a client's state. A place that is taken is held from then on.
func (s *statesOf[S]) apply(
	action algorithm.Action, client int32, now stint.Instant, n, keep int64, out *stint.Outcome,
) {
	kept := s.at(client)
	s.read(kept, &s.state)
	s.Apply(action, &s.state, now, n, keep, out)
	if s.HasPlaces() && action == algorithm.Take && out.Allowed {
		s.Hold(&s.state, n)
		out.Remaining -= n
	}
	s.write(kept, &s.state)
}

func (s *statesOf[S]) hold(client int32, n int64) algorithm.Piece {
	if s.HasPlaces() { // which apply has held
		return algorithm.Piece{N: n}
	}
	kept := s.at(client)
	s.read(kept, &s.state)
	piece := s.Hold(&s.state, n)
	s.write(kept, &s.state)
	return piece
}

func (s *statesOf[S]) end(client int32, now stint.Instant, held algorithm.Piece, kept int64) {
	at := s.at(client)
	s.read(at, &s.state)
	s.EndHold(&s.state, now, []algorithm.Piece{held}, held.N, kept, math.MinInt64)
	s.write(at, &s.state)
}

func (s *statesOf[S]) size() int64 { return int64(unsafe.Sizeof(s.loaded)) }

func (s *statesOf[S]) prefetch(client int32) { s.loaded = *s.at(client) }

func (s *statesOf[S]) reset(client int32) { *s.at(client) = *new(S) }

// A tokens is the state of a token bucket, with what is held of it.
type tokens struct {
	algorithm.Numbers
	held int64
}

// statesFor are the states of a limit.
func statesFor(l stint.Limit) states {
	m := algorithm.NewMachine(l)
	switch {
	case m.HasPlaces():
		return &statesOf[int64]{
			Machine: m,
			read:    func(held *int64, state *algorithm.State) { state.Held = *held },
			write:   func(held *int64, state *algorithm.State) { *held = state.Held },
		}
	case m.HasLog():
		return &statesOf[algorithm.Log]{
			Machine: m,
			read:    func(log *algorithm.Log, state *algorithm.State) { state.Log = *log },
			write:   func(log *algorithm.Log, state *algorithm.State) { *log = state.Log },
		}
	case l.Algorithm == stint.AlgorithmTokenBucket:
		return &statesOf[tokens]{
			Machine: m,
			read:    func(t *tokens, state *algorithm.State) { state.Numbers, state.Held = t.Numbers, t.held },
			write:   func(t *tokens, state *algorithm.State) { *t = tokens{state.Numbers, state.Held} },
		}
	default:
		return &statesOf[algorithm.Numbers]{
			Machine: m,
			read:    func(n *algorithm.Numbers, state *algorithm.State) { state.Numbers = *n },
			write:   func(n *algorithm.Numbers, state *algorithm.State) { *n = state.Numbers },
		}
	}
}

// spanOf is the time over which a limit's admissions are counted: the one in which it renews itself, of months and
// years the longest.
func spanOf(l stint.Limit) time.Duration {
	const day = 24 * time.Hour
	switch l.Calendar {
	case stint.CalendarMonth:
		return 31 * day
	case stint.CalendarYear:
		return 366 * day
	default:
		return l.Span()
	}
}
