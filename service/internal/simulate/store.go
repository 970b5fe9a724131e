package simulate

import (
	"slices"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/spans"
)

// A store has the states of all clients under the policies of one candidate, in virtual time. It
// decides as package memstore does, by the same transitions, but keeps every client, and tells of
// each limit what it said.
type store struct {
	tables map[*stint.Policy]*table
	last   *table // the one that was looked up last
	// maxClients is how many clients a table has at most; then it keeps a sample of them.
	maxClients int
	memory     *memory
	ops        []limitOp
	// fault is why a request can't be decided; nil: all can.
	fault error
	// Operation is the last one that was decided, with the outcomes of the limits in ops.
	decide.Operation
}

// A limitOp is an operation as one of its limits decides it.
type limitOp struct {
	table   *table
	limit   *limit
	client  int32
	claim   int32
	nth     int16 // of the limits of all claims
	permits int64
	keep    int64
}

// newStore makes a store without clients.
func newStore(maxClients int, memory *memory) *store {
	return &store{tables: map[*stint.Policy]*table{}, maxClients: maxClients, memory: memory}
}

// A claim is one to be decided, with where its client is.
type claim struct {
	permits, keep int64

	rule  *tally // nil of one in shadow
	table *table
	key   key
	// guess is the client, by table.guess.
	guess int32
	// way is the number of the claim's way; 0: it has to admit.
	way uint16
}

// claim makes c a rule's claim, and finds where its client is.
func (s *store) claim(c *claim, rule *tally, of *stint.Claim, way uint16) {
	*c = claim{permits: of.Permits, keep: of.Keep, rule: rule, table: s.table(of.Policy), key: keyOf(of.Key), way: way}
}

// sized is a list of n, in the memory of another one if that is enough. What is in it is of no use.
func sized[T any](list []T, n int) []T {
	if n > cap(list) {
		return make([]T, n)
	}
	return list[:n]
}

// table is where the clients of a policy are.
func (s *store) table(policy *stint.Policy) *table {
	if s.last != nil && s.last.policy == policy {
		return s.last
	}
	t := s.tables[policy]
	if t == nil {
		t = newTable(policy, s.maxClients, s.memory)
		s.tables[policy] = t
	}
	s.last = t
	return t
}

// decide carries out a verb on claims, all in one step. Claims of clients outside the sample are left
// out, and with them those of all ways of their group; without any other, known is false. The outcomes
// are in s.outs, of the limits in s.ops, until the next call.
func (s *store) decide(verb stint.Verb, claims []claim, now stint.Instant) (d stint.Decision, known bool) {
	s.ops, s.Ways = s.ops[:0], s.Ways[:0]
	nth, alternatives := int16(0), len(claims) > 0 && claims[len(claims)-1].way != 0 // ways come last
	for i := 0; i < len(claims); {
		first, sampled := len(s.ops), true
		next := i
		for ; i == next || i < len(claims) && claims[i].way != 0 && decide.SameGroup(claims[i].way, claims[next].way); i++ {
			c := &claims[i]
			t := c.table
			client := t.find(&c.key)
			sampled = sampled && client >= 0
			for j := range t.limits {
				s.ops = append(s.ops, limitOp{t, &t.limits[j], client, int32(i), nth, t.limits[j].permits(verb, c.permits), c.keep})
				if nth++; alternatives {
					s.Ways = append(s.Ways, c.way)
				}
			}
		}
		if !sampled {
			s.ops, s.Ways = s.ops[:first], s.Ways[:min(first, len(s.Ways))]
		}
	}
	s.load()
	if len(s.ops) == 0 {
		return stint.Decision{Allowed: true, At: now}, false
	}
	if verb == stint.VerbReset {
		for i := range s.ops {
			op := &s.ops[i]
			op.limit.state.reset(op.client)
			s.Outs[i] = op.limit.machine.Untouched(op.keep)
		}
		return s.combine(0, len(s.ops), now), true
	}
	s.Verb, s.Now = verb, now
	s.Decide()
	if !s.Admitted() {
		s.untilExpiry(claims)
	}
	s.save()
	return s.Decision(), true
}

// load loads the states of the operation's limits.
func (s *store) load() {
	n := len(s.ops)
	s.Parts, s.States, s.Outs = sized(s.Parts, n), sized(s.States, n), sized(s.Outs, n)
	clear(s.Outs) // limits say whether they are of denials only if they are
	for i := range s.ops {
		op, at := &s.ops[i], i
		// What else the limit reads of the state is loaded.
		s.States[i].Changed = false
		if len(s.Ways) > 0 { // several ways may lead to one state
			at = slices.IndexFunc(s.ops, func(o limitOp) bool { return o.limit == op.limit && o.client == op.client })
		}
		if at == i {
			op.limit.state.load(op.client, &s.States[i].State)
		}
		s.Parts[i] = decide.Part{Machine: &op.limit.machine, State: at, Permits: op.permits, Keep: op.keep}
	}
}

// save saves what has changed. A place that is taken is held from then on.
func (s *store) save() {
	for i := range s.ops {
		p, op := &s.Parts[i], &s.ops[i]
		st := &s.States[p.State]
		if p.Machine.HasPlaces() && s.Admitted() && s.Charged(i) && s.Verb != stint.VerbPeek {
			p.Machine.Hold(&st.State, p.Permits)
			s.Outs[i].Remaining -= p.Permits
			st.Changed = true
		}
		if st.Changed {
			op.limit.state.save(op.client, &st.State)
		}
	}
}

// combine is the decision of some of the operation's limits.
func (s *store) combine(from, to int, now stint.Instant) stint.Decision {
	if len(s.Ways) > 0 {
		return decide.Combine(s.Outs[from:to], s.Ways[from:to], now)
	}
	return decide.Combine(s.Outs[from:to], nil, now)
}

// A limit has the states of all clients of a policy under one of its limits, and what they were admitted within its
// window.
type limit struct {
	stint.Limit
	machine algorithm.Machine
	state   states
	window  window
}

// permits is how many permits the limit is asked for by a verb with so many of them.
func (l *limit) permits(verb stint.Verb, n int64) int64 {
	switch {
	case verb != stint.VerbSettle:
		return l.Takes(n)
	case l.machine.Settles():
		return n
	}
	return 0
}

// states are those of all clients under a limit.
type states interface {
	load(client int32, state *algorithm.State)
	save(client int32, state *algorithm.State)
	reset(client int32)
	prefetch(client int32)
	grow()                // by one client
	size() int64          // of a state, in bytes
	keep(clients []int32) // and forget all others: clients[i] becomes i
}

// statesOf are those of one algorithm, of whose state an S is kept.
type statesOf[S any] struct {
	pages[S]
	read   func(kept *S, state *algorithm.State)
	write  func(kept *S, state *algorithm.State)
	loaded S // by prefetch
}

func (s *statesOf[S]) load(client int32, state *algorithm.State) { s.read(s.at(client), state) }

func (s *statesOf[S]) save(client int32, state *algorithm.State) { s.write(s.at(client), state) }

func (s *statesOf[S]) size() int64 { return int64(unsafe.Sizeof(s.loaded)) }

func (s *statesOf[S]) prefetch(client int32) { s.loaded = *s.at(client) }

func (s *statesOf[S]) reset(client int32) { *s.at(client) = *new(S) }

// A tokens is the state of a token bucket, with what is held of it.
type tokens struct {
	algorithm.Numbers
	held int64
}

// statesFor are the states of a limit.
func statesFor(m *algorithm.Machine) states {
	switch {
	case m.HasPlaces():
		return &statesOf[int64]{
			read:  func(held *int64, state *algorithm.State) { state.Held = *held },
			write: func(held *int64, state *algorithm.State) { *held = state.Held },
		}
	case m.HasLog():
		return &statesOf[algorithm.Log]{
			read:  func(log *algorithm.Log, state *algorithm.State) { state.Log, state.Held = *log, 0 },
			write: func(log *algorithm.Log, state *algorithm.State) { *log = state.Log },
		}
	case m.Algorithm() == stint.AlgorithmTokenBucket:
		return &statesOf[tokens]{
			read:  func(t *tokens, state *algorithm.State) { state.Numbers, state.Held = t.Numbers, t.held },
			write: func(t *tokens, state *algorithm.State) { *t = tokens{state.Numbers, state.Held} },
		}
	default:
		return &statesOf[algorithm.Numbers]{
			read:  func(n *algorithm.Numbers, state *algorithm.State) { state.Numbers, state.Held = *n, 0 },
			write: func(n *algorithm.Numbers, state *algorithm.State) { *n = state.Numbers },
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
		return spans.Of(l)
	}
}
