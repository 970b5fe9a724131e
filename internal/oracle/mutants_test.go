package oracle

import (
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A Mutant is a model that is wrong in one point: before changes what is asked, after what is answered, or what
// was written.
type Mutant struct {
	Name       string
	Algorithms []stint.Algorithm // it has to be caught by sequences of each, without holds; nil: by random holds
	before     func(m *Mutated, op *stint.Op, now *stint.Instant)
	after      func(m *Mutated, op stint.Op, now stint.Instant, a *Answer)
}

// A Mutated is an oracle of a mutant.
type Mutated struct {
	*Oracle
	Operations int // that it was asked for

	mutant  Mutant
	highest stint.Instant
	expires stint.Instant
	held    *state
}

// NewMutated returns an empty one.
func NewMutated(m Mutant, maxHolds int) *Mutated { return &Mutated{Oracle: New(maxHolds), mutant: m} }

// Decide carries out an operation, wrongly.
func (m *Mutated) Decide(op stint.Op, now stint.Instant) Answer {
	at, asked := now, Copy(op)
	m.Operations++
	if m.mutant.before != nil {
		m.mutant.before(m, &asked, &at)
	}
	a := m.Oracle.Decide(asked, at)
	a.Decision.At = now
	if m.mutant.after != nil && a.Err == nil {
		m.mutant.after(m, asked, at, &a)
	}
	return a
}

// states are all states, or those that the last operation has written.
func (m *Mutated) states(written bool, algorithms ...stint.Algorithm) (list []*state) {
	for n, s := range m.worlds[0].states {
		if (!written || s.written == m.history.operations) && (algorithms == nil || slices.Contains(algorithms, n.algorithm)) {
			s.entries = slices.Clone(s.entries)
			list = append(list, s)
		}
	}
	return list
}

// forget drops the states that a store may have dropped so much later.
func (m *Mutated) forget(now stint.Instant) {
	for n, s := range m.worlds[0].states {
		if now >= m.versions.dropFrom(n, s) {
			delete(m.worlds[0].states, n)
		}
	}
}

func (m *Mutated) record(op *stint.Op) *record {
	return m.worlds[0].ids[id(*op)]
}

// Level is what a token bucket holds, exactly.
func (o *Oracle) Level(policy *stint.Policy, key string, now stint.Instant) *big.Rat {
	limit := policy.Limit(0)
	s := o.worlds[0].states[name{policy.Name(), limit.Name, limit.Algorithm, key}]
	if s == nil {
		s = o.untouched(limit)
	}
	read := s.read(limit, now)
	_, period := rate(&limit)
	used := new(big.Rat).SetFrac(read.backlog(max(now, read.newest())), big.NewInt(period))
	return used.Sub(new(big.Rat).SetInt64(limit.Capacity), used)
}

// alter gives the first claim another version of its policy, if that is valid.
func alter(op *stint.Op, change func(l *stint.Limit)) {
	limits := op.First().Policy.Limits()
	for i := range limits {
		change(&limits[i])
	}
	if p, err := stint.NewPolicy(op.First().Policy.Name(), limits...); err == nil {
		op.First().Policy = p
	}
}

const (
	tokens  = stint.AlgorithmTokenBucket
	leaky   = stint.AlgorithmLeakyBucket
	windows = stint.AlgorithmFixedWindow
	logs    = stint.AlgorithmSlidingWindowLog
	counter = stint.AlgorithmSlidingWindowCounter
)

type algorithms = []stint.Algorithm

var (
	all     = algorithms{tokens, leaky, windows, logs, counter}
	choices = algorithms{tokens, windows, logs, counter} // can be ways, and can be refunded
)

// Altering is wrong in what it makes of operations.
func Altering(change func(op *stint.Op)) Mutant {
	return Mutant{before: func(_ *Mutated, op *stint.Op, _ *stint.Instant) { change(op) }}
}

// Forgetful drops states when a store may; it is not wrong.
var Forgetful = Mutant{Name: "forgetful", before: func(m *Mutated, _ *stint.Op, now *stint.Instant) { m.forget(*now) }}

// Mutants are wrong.
var Mutants = []Mutant{
	// Arithmetic of one algorithm.
	{"a fraction of a permit is lost", algorithms{tokens, leaky}, nil, func(m *Mutated, _ stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true, tokens, leaky) {
			s.due = s.ticks(s.dueAt())
		}
	}},
	{"a bucket's time runs back", algorithms{tokens, leaky}, nil, func(m *Mutated, _ stint.Op, now stint.Instant, _ *Answer) {
		for _, s := range m.states(true, tokens, leaky) {
			s.at = now
		}
	}},
	{"doubles for the rate", algorithms{tokens, leaky}, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		alter(op, func(l *stint.Limit) {
			if l.IsBucket() {
				l.Rate = stint.Per(1, max(bounds.MinPeriod, (l.Rate.Period/time.Duration(l.Rate.Permits)).Truncate(time.Microsecond)))
			}
		})
	}, nil},
	{"a delay is rounded down", algorithms{leaky}, nil, func(m *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		for _, s := range m.states(true, leaky) {
			permits, _ := rate(&s.limit)
			turn := new(big.Int).Mod(minus(s.due, s.worth(op.First().Permits)), big.NewInt(permits))
			if op.Verb == stint.VerbTake && turn.Sign() > 0 && a.Decision.Delay > 0 {
				a.Decision.Delay -= time.Microsecond
			}
		}
	}},
	{"a window ends a microsecond late", algorithms{windows}, nil, func(m *Mutated, _ stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true, windows) {
			s.entries[0].end++
		}
	}},
	{"days begin at midnight in UTC", algorithms{windows}, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		alter(op, func(l *stint.Limit) { l.TimeZone = "" })
	}, nil},
	{"a refund beyond what is recorded", algorithms{windows}, nil, func(m *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		for _, s := range m.states(true, windows) {
			if op.Verb == stint.VerbSettle && op.First().Permits < a.Decision.Applied {
				s.entries[0].permits--
			}
		}
	}},
	{"an entry leaves a microsecond late", algorithms{logs}, nil, func(m *Mutated, op stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true, logs) {
			if op.Verb == stint.VerbTake {
				s.entries[len(s.entries)-1].start++
			}
		}
	}},
	{"min_interval ends a microsecond early", algorithms{logs}, nil, func(m *Mutated, op stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true, logs) {
			if op.Verb == stint.VerbTake {
				s.last--
			}
		}
	}},
	{"denials are not counted", algorithms{logs}, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbTake {
			op.Verb = stint.VerbTry
		}
	}, nil},
	{"tries that are takes", algorithms{logs}, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbTry {
			op.Verb = stint.VerbTake
		}
	}, nil},
	{"an estimate is rounded down", algorithms{counter}, nil, func(m *Mutated, _ stint.Op, now stint.Instant, a *Answer) {
		for _, s := range m.states(false, counter) {
			if previous := s.counted(now); a.Decision.Allowed && len(s.entries) == 2 && previous > s.counted(now+1) && previous < s.counted(now-1) {
				a.Decision.Remaining++
			}
		}
	}},
	{"the previous window loses a permit", algorithms{counter}, nil, func(m *Mutated, _ stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true, counter) {
			if len(s.entries) == 2 && s.entries[0].permits > 0 {
				s.entries[0].permits--
			}
		}
	}},
	{"a window of another length begins anew", algorithms{windows, logs, counter}, func(m *Mutated, op *stint.Op, _ *stint.Instant) {
		for _, l := range op.First().Policy.Limits() {
			n := name{op.First().Policy.Name(), l.Name, l.Algorithm, op.First().Key}
			if s := m.worlds[0].states[n]; s != nil && s.limit.Window != l.Window {
				delete(m.worlds[0].states, n)
			}
		}
	}, nil},
	{"states are dropped a second early", algorithms{tokens, windows}, func(m *Mutated, _ *stint.Op, now *stint.Instant) { m.forget(*now + second) }, nil},

	// Time and waits.
	{"time in milliseconds", all, func(_ *Mutated, _ *stint.Op, now *stint.Instant) { *now -= *now % 1000 }, nil},
	{"a step back is taken for a step forth", all, func(m *Mutated, _ *stint.Op, now *stint.Instant) {
		m.highest = max(m.highest, *now)
		*now = m.highest
	}, nil},
	{"waits in milliseconds", all, nil, func(_ *Mutated, _ stint.Op, _ stint.Instant, a *Answer) {
		if a.Decision.RetryAfter != stint.Never {
			a.Decision.RetryAfter = a.Decision.RetryAfter.Truncate(time.Millisecond)
		}
	}},
	{"a wait a microsecond too long", all, nil, func(_ *Mutated, _ stint.Op, _ stint.Instant, a *Answer) {
		if a.Decision.RetryAfter > 0 && a.Decision.RetryAfter != stint.Never {
			a.Decision.RetryAfter += time.Microsecond
		}
	}},
	{"the wait is that of one permit", all, nil, func(m *Mutated, op stint.Op, now stint.Instant, a *Answer) {
		if op.First().Permits > 1 && op.Len() == 1 && a.Decision.RetryAfter > 0 && a.Decision.RetryAfter != stint.Never {
			op.Verb, op.First().Permits = stint.VerbPeek, 1
			a.Decision.RetryAfter = m.Clone().Decide(op, now).Decision.RetryAfter
		}
	}},

	// What an operation does.
	{"peeks that take", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbPeek {
			op.Verb = stint.VerbTake
		}
	}, nil},
	{"every cost is 1", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbTake && op.First().Permits <= op.First().Policy.Limit(0).Capacity {
			op.First().Permits = 1
		}
	}, nil},
	{"a denial is charged where it fits", all, nil, func(m *Mutated, op stint.Op, now stint.Instant, a *Answer) {
		if a.Decision.Allowed || op.Verb != stint.VerbTake || op.Groups() != nil {
			return
		}
		for i := range a.Each {
			limit, of := op.LimitAt(i)
			p, err := stint.NewPolicy(of.Policy.Name(), limit)
			if claim := *of; err == nil && a.Each[i].Allowed {
				claim.Policy = p
				m.Oracle.Decide(stint.Op{Claim: claim}, now)
			}
		}
	}},
	{"a denial leaves nothing", all, nil, func(_ *Mutated, _ stint.Op, _ stint.Instant, a *Answer) {
		if !a.Decision.Allowed {
			a.Decision.Remaining = 0
		}
	}},
	{"Remaining in debt", all, nil, func(_ *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		if op.Verb == stint.VerbSettle && a.Decision.Applied == op.First().Permits && a.Decision.Remaining == 0 {
			a.Decision.Remaining = -1
		}
	}},
	{"debt has no bottom", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbSettle {
			alter(op, func(l *stint.Limit) { l.MaxDebt = 4 * l.Capacity })
		}
	}, nil},
	{"refunds are lost", choices, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbSettle && op.First().Permits < 0 {
			op.Verb, op.First().Permits = stint.VerbPeek, 1
		}
	}, nil},
	{"a settlement keeps", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbSettle && op.First().Permits > 0 && op.Len() == 1 {
			op.First().Permits = max(1, min(op.First().Permits, settleBound)-op.First().Keep)
		}
	}, nil},
	{"resets that refund", algorithms{tokens}, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbReset && op.First().Policy.Limit(0).Algorithm != leaky && op.Len() == 1 {
			op.Verb, op.First().Permits = stint.VerbSettle, -settleBound
		}
	}, nil},
	{"keys cut at a colon", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Len() == 1 {
			prefix, rest, _ := strings.Cut(op.First().Key, ":")
			op.First().Key = prefix + strings.SplitN(rest, ":", 2)[0]
		}
	}, nil},

	// Several limits, permits kept for others, ways.
	{"one claim of several", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) { op.And = op.And[:len(op.And)/2] }, nil},
	{"no deciding limit", all, nil, func(_ *Mutated, _ stint.Op, _ stint.Instant, a *Answer) { a.Decision.Index = 0 }},
	{"the last of equal limits decides", all, nil, func(_ *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		for i, o := range a.Each {
			if op.Groups() == nil && (a.Decision.Allowed && o.Remaining == a.Decision.Remaining || !a.Decision.Allowed && o.RetryAfter == a.Decision.RetryAfter) {
				a.Decision.Index, a.Decision.Limit, a.Decision.Remaining, a.Decision.ResetAfter = int16(i), o.Limit, o.Remaining, o.ResetAfter
			}
		}
	}},
	{"nothing is kept for others", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) { op.First().Keep = 0 }, nil},
	{"what is kept is taken", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbTake && op.First().Keep < op.First().Policy.Limit(0).Capacity && op.First().Permits <= op.First().Policy.Limit(0).Capacity {
			op.First().Permits, op.First().Keep = op.First().Permits+op.First().Keep, 0
		}
	}, nil},
	{"what is kept is no bound on the wait", all, nil, func(_ *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		if op.First().Keep > 0 && a.Decision.RetryAfter == stint.Never && op.First().Permits <= a.Decision.Limit {
			a.Decision.RetryAfter = a.Decision.ResetAfter
		}
	}},
	{"the way is not told", all, nil, func(_ *Mutated, _ stint.Op, _ stint.Instant, a *Answer) { a.Decision.Via = 0 }},
	{"the first way alone", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Groups() != nil && op.Verb != stint.VerbReset {
			op.Extra.Groups = [][]stint.Way{op.Groups()[0][:1]}
		}
	}, nil},
	{"ways that keep nothing", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		for nth := range op.Len() {
			if claim, way := op.NthClaim(nth); way != 0 {
				claim.Keep = 0
			}
		}
	}, nil},
	{"the least of all ways decides", all, nil, func(_ *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		for i, o := range a.Each {
			if op.Groups() != nil && a.Decision.Allowed && o.Remaining < a.Decision.Remaining {
				a.Decision.Index, a.Decision.Limit, a.Decision.Remaining, a.Decision.ResetAfter = int16(i), o.Limit, o.Remaining, o.ResetAfter
			}
		}
	}},
	{"an empty way that denies", all, func(_ *Mutated, op *stint.Op, _ *stint.Instant) { withoutEmpty(op) }, nil},
	{"an optional way decides", all, nil, func(m *Mutated, op stint.Op, now stint.Instant, a *Answer) {
		for i, o := range a.Each {
			_, claim := op.LimitAt(i)
			if isOptional(op, claim) && a.Decision.Allowed && o.Remaining < a.Decision.Remaining {
				a.Decision.Index, a.Decision.Limit, a.Decision.Remaining, a.Decision.ResetAfter = int16(i), o.Limit, o.Remaining, o.ResetAfter
			}
		}
	}},
	{"a way is charged twice", choices, nil, func(m *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		for _, s := range m.states(true, choices...) {
			if op.Verb == stint.VerbTake && op.Groups() != nil && a.Decision.Via > 0 {
				s.charge(op.First().Permits, s.newest(), false)
			}
		}
	}},

	// Holds.
	{"a hold expires a microsecond early", nil, nil, func(m *Mutated, op stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true) {
			if h := s.hold(id(op)); h != nil && op.Verb == stint.VerbReserve {
				h.expires--
			}
		}
	}},
	{"nothing comes back of a hold", nil, nil, func(m *Mutated, op stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true, tokens, windows) {
			if h := s.hold(id(op)); h != nil && op.Verb == stint.VerbReserve {
				h.paid = h.permits
			}
		}
	}},
	{"a commit that is sent again is charged again", nil, func(m *Mutated, op *stint.Op, _ *stint.Instant) {
		if r := m.record(op); r != nil && r.end == holdCommitted && op.Verb == stint.VerbCommit {
			delete(m.worlds[0].ids, op.Hold().ID)
		}
	}, nil},
	{"an end is charged twice", nil, nil, func(m *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		for _, s := range m.states(true, choices...) {
			if op.Verb == stint.VerbCommit && a.Decision.Applied > 0 {
				s.debit(a.Decision.Applied, s.newest())
			}
		}
	}},
	{"a commit gives back all", nil, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.VerbCommit {
			for _, c := range Claims(op) {
				c.Permits = 0
			}
		}
	}, nil},
	{"a late commit is not charged", nil, func(m *Mutated, op *stint.Op, now *stint.Instant) {
		if r := m.record(op); r != nil && op.Verb == stint.VerbCommit && *now >= r.expires && r.end == holdLive {
			r.keep = true
		}
	}, nil},
	{"a reset leaves what is held", nil, func(m *Mutated, op *stint.Op, _ *stint.Instant) {
		m.held = nil
		n := name{op.First().Policy.Name(), op.First().Policy.Limit(0).Name, op.First().Policy.Limit(0).Algorithm, op.First().Key}
		if s := m.worlds[0].states[n]; s != nil && op.Verb == stint.VerbReset {
			m.held = m.untouched(s.limit)
			m.held.holds = s.holds
		}
	}, func(m *Mutated, op stint.Op, _ stint.Instant, _ *Answer) {
		if m.held != nil {
			m.worlds[0].states[name{op.First().Policy.Name(), m.held.limit.Name, m.held.limit.Algorithm, op.First().Key}] = m.held
		}
	}},
	{"a cancel frees another's place", nil, nil, func(m *Mutated, op stint.Op, _ stint.Instant, _ *Answer) {
		for _, s := range m.states(true, stint.AlgorithmConcurrency) {
			if op.Verb == stint.VerbCancel && len(s.holds) > 0 {
				s.holds = s.holds[1:]
			}
		}
	}},
	{"growth is charged as a whole", nil, func(m *Mutated, op *stint.Op, now *stint.Instant) {
		if r := m.record(op); r != nil && op.Verb == stint.VerbReserve && r.end == holdLive && *now < r.expires && op.First().Permits > r.held[0] {
			op.First().Permits += r.held[0]
		}
	}, nil},
	{"an expiry never keeps", nil, func(_ *Mutated, op *stint.Op, _ *stint.Instant) {
		if op.Hold() != nil {
			op.Hold().OnExpiry = stint.ReleaseOnExpiry
		}
	}, nil},
	{"a renewal extends nothing", nil, func(m *Mutated, op *stint.Op, _ *stint.Instant) {
		if r := m.record(op); r != nil {
			m.expires = r.expires
		}
	}, func(m *Mutated, op stint.Op, _ stint.Instant, a *Answer) {
		for _, s := range m.states(true) {
			if h := s.hold(id(op)); h != nil && op.Verb == stint.VerbReserve && a.Hold.Replayed {
				h.expires = m.expires
			}
		}
	}},
	{"growth is charged on the first way", nil, func(m *Mutated, op *stint.Op, _ *stint.Instant) {
		if r := m.record(op); r != nil && op.Verb == stint.VerbReserve {
			r.on = make([]int, len(r.on))
		}
	}, nil},
	{"an empty way that denies a hold", nil, func(_ *Mutated, op *stint.Op, _ *stint.Instant) { withoutEmpty(op) }, nil},
	{"one hold too many", nil, func(m *Mutated, _ *stint.Op, _ *stint.Instant) {
		if m.highest == 0 {
			m.highest, m.maxHolds = 1, m.maxHolds+1
		}
	}, nil},
}

// id is an operation's hold's.
func id(op stint.Op) string {
	if op.Hold() == nil {
		return ""
	}
	return op.Hold().ID
}

// withoutEmpty takes the empty ways out of an operation.
func withoutEmpty(op *stint.Op) {
	for g, group := range op.Groups() {
		if last := len(group) - 1; len(group[last]) == 0 {
			op.Extra.Groups[g] = group[:last]
		}
	}
}

// isOptional reports whether a claim is of a group with an empty way.
func isOptional(op stint.Op, claim *stint.Claim) bool {
	for _, m := range members(op) {
		if m.claim == *claim {
			return m.optional
		}
	}
	return false
}

// Claims are the claims of an operation, to be changed.
func Claims(op *stint.Op) (list []*stint.Claim) {
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		list = append(list, claim)
	}
	return list
}

// Copy is a copy of an operation that shares nothing with it but Each.
func Copy(op stint.Op) stint.Op {
	op.And = slices.Clone(op.And)
	if op.Extra == nil {
		return op
	}
	extra := stint.Extra{}
	for _, group := range op.Extra.Groups {
		var ways []stint.Way
		for _, way := range group {
			ways = append(ways, slices.Clone(way))
		}
		extra.Groups = append(extra.Groups, ways)
	}
	if op.Extra.Hold != nil {
		h := *op.Extra.Hold
		extra.Hold = &h
	}
	if op.Extra.Live != nil {
		extra.Live = new([]stint.Hold)
	}
	op.Extra = &extra
	return op
}
