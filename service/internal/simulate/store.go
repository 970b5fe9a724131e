package simulate

import (
	"cmp"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
	"github.com/stint-go/stint/rules"
)

// A store has the states of all clients under the policies of one candidate, in virtual time.
type store struct {
	tables     map[*stint.Policy]*table
	maxClients int // clients of a table
	memory     *memory
	ops        []limitOp
	fault      error // why a limit can't be decided; nil: all can
	outs       []stint.Outcome
}

// A limitOp is an operation as one of its limits decides it.
type limitOp struct {
	table   *table
	limit   *limit
	client  int32
	claim   int32
	permits int64
}

func newStore(maxClients int, memory *memory) *store {
	return &store{tables: map[*stint.Policy]*table{}, maxClients: maxClients, memory: memory}
}

// A claim is one to be decided, with where its client is.
type claim struct {
	stint.Claim

	rule  *tally
	table *table
	key   key
	guess int32 // the client, by table.guess
	named bool  // whether the request may name the cost
}

// claims makes those of a rule, the key prepared once. They are added to a list.
func (s *store) claims(list []claim, rule *tally, of *rules.Matched) []claim {
	k := keyOf(of.Claim.Key)
	list = append(list, claim{of.Claim, rule, s.table(of.Claim.Policy), k, 0, of.Named > 0})
	for i, c := range of.And {
		list = append(list, claim{c, rule, s.table(c.Policy), k, 0, i+1 < of.Named})
	}
	return list
}

// table is where the clients of a policy are.
func (s *store) table(policy *stint.Policy) *table {
	t := s.tables[policy]
	if t == nil {
		var err error
		t, err = newTable(policy, s.maxClients, s.memory)
		s.fault = cmp.Or(s.fault, err)
		s.tables[policy] = t
	}
	return t
}

// decide carries out a verb on claims, all in one step. Claims of clients outside the sample are left out; without any
// other, known is false. The outcomes are in s.outs, of the limits in s.ops, until the next call.
func (s *store) decide(verb stint.Verb, claims []claim, now stint.Instant) (d stint.Decision, known bool) {
	s.ops, s.outs = s.ops[:0], s.outs[:0]
	for i := range claims {
		c := &claims[i]
		t := c.table
		client := t.find(&c.key)
		if client < 0 {
			continue
		}
		for j := range t.limits {
			s.ops = append(s.ops, limitOp{t, &t.limits[j], client, int32(i), c.Permits})
			s.outs = append(s.outs, stint.Outcome{})
		}
	}
	if len(s.ops) == 0 {
		return stint.Decision{Allowed: true, At: now}, false
	}
	if verb == stint.Reset {
		for i := range s.ops {
			op := &s.ops[i]
			op.limit.state.reset(op.client)
			s.outs[i] = stint.Outcome{Allowed: true, Limit: op.limit.Capacity, Remaining: op.limit.Capacity}
		}
	} else if !s.apply(verb, now) {
		s.untilExpiry(claims)
	}
	return stint.Combine(s.outs, now), true
}

// apply first asks all limits, then carries the operation out on all. It reports whether they admit it.
func (s *store) apply(verb stint.Verb, now stint.Instant) (allowed bool) {
	action := algorithm.ActionOf(verb)
	tried := action
	if action == algorithm.Take && len(s.ops) > 1 {
		tried = algorithm.Peek
	}
	allowed = true
	for i := range s.ops {
		op := &s.ops[i]
		op.limit.state.apply(tried, op.client, now, op.permits, &s.outs[i])
		allowed = allowed && s.outs[i].Allowed
	}
	if action != algorithm.Take || verb == stint.Try && !allowed {
		return allowed
	}
	for i := range s.ops {
		op := &s.ops[i]
		switch {
		case !allowed:
			if op.limit.CountDenied {
				op.limit.state.apply(algorithm.Deny, op.client, now, op.permits, &s.outs[i])
			}
		case tried == algorithm.Peek:
			op.limit.state.apply(algorithm.Take, op.client, now, op.permits, &s.outs[i])
		}
	}
	return allowed
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
	apply(action algorithm.Action, client int32, now stint.Instant, n int64, out *stint.Outcome)
	hold(client int32, n int64) algorithm.Piece // of what was just taken
	end(client int32, now stint.Instant, held algorithm.Piece, kept int64)
	reset(client int32)
	prefetch(client int32)
	grow()                // by one client
	size() int64          // of a state, in bytes
	keep(clients []int32) // and forget all others: clients[i] becomes i
}

// statesOf are those of one algorithm, whose state is an S.
type statesOf[S any] struct {
	pages[S]

	transition func(action algorithm.Action, state *S, now stint.Instant, n, keep int64, out *stint.Outcome)
	piece      func(state *S, n int64) algorithm.Piece
	giveBack   func(state *S, now stint.Instant, held algorithm.Piece, kept int64)
	loaded     S // by prefetch
}

func (s *statesOf[S]) apply(action algorithm.Action, client int32, now stint.Instant, n int64, out *stint.Outcome) {
	if action == algorithm.Settle {
		n = algorithm.Amount(n)
	}
	s.transition(action, s.at(client), now, n, 0, out)
}

func (s *statesOf[S]) hold(client int32, n int64) algorithm.Piece { return s.piece(s.at(client), n) }

func (s *statesOf[S]) end(client int32, now stint.Instant, held algorithm.Piece, kept int64) {
	s.giveBack(s.at(client), now, held, kept)
}

func (s *statesOf[S]) size() int64 { return int64(unsafe.Sizeof(s.loaded)) }

func (s *statesOf[S]) prefetch(client int32) { s.loaded = *s.at(client) }

func (s *statesOf[S]) reset(client int32) { *s.at(client) = *new(S) }

// statesFor are the states of a limit's algorithm, nil of one that is not simulated.
func statesFor(l stint.Limit) states {
	switch l.Algorithm {
	case stint.AlgorithmTokenBucket:
		return tokens(algorithm.NewTokenBucket(l))
	case stint.AlgorithmConcurrency:
		return places(algorithm.NewConcurrency(l))
	case stint.AlgorithmLeakyBucket: // of which rules can hold nothing
		return &statesOf[algorithm.BucketState]{transition: algorithm.NewLeakyBucket(l).Apply}
	case stint.AlgorithmFixedWindow:
		w := algorithm.NewFixedWindow(l)
		return &statesOf[algorithm.WindowState]{transition: w.Apply, piece: w.Piece, giveBack: unused(w.GiveBack)}
	case stint.AlgorithmSlidingWindowLog:
		w := algorithm.NewSlidingWindowLog(l)
		return &statesOf[algorithm.Log]{transition: w.Apply, piece: w.Piece, giveBack: unused(w.GiveBack)}
	case stint.AlgorithmSlidingWindowCounter:
		w := algorithm.NewSlidingWindowCounter(l)
		return &statesOf[algorithm.CounterState]{transition: w.Apply, piece: w.Piece, giveBack: unused(w.GiveBack)}
	default:
		return nil
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
