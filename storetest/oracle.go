package storetest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// An Oracle is the exact model of all five algorithms that stores are compared
// with: naive, in integers of any size, and sharing no code with what it checks.
//
// Once a state has been worthless (equal to an untouched one) for longer than the
// margin of its TTL, a store may have dropped it; after a step back of the clock
// that can be told. So the oracle holds for every state the set of candidates
// that the answers so far allow, and accepts an answer that fits one of them.
//
// An Oracle knows instants from 1970 on. It is not safe for concurrent use.
type Oracle struct {
	states  map[stateID][]candidate
	limits  map[*stint.Policy][]stint.Limit
	almanac *almanac
	tide    tide
}

// NewOracle returns an oracle to which every key is untouched.
func NewOracle() *Oracle {
	return &Oracle{
		states:  map[stateID][]candidate{},
		limits:  map[*stint.Policy][]stint.Limit{},
		almanac: newAlmanac(),
	}
}

// stateID is what a state belongs to.
type stateID struct {
	policy, limit string
	algorithm     stint.Algorithm
	key           string
}

// A part is one limit's share in an operation.
type part struct {
	id      stateID
	limit   *stint.Limit
	permits int64
}

// A candidate is one state that a store may hold. The zero value is the
// untouched state.
type candidate struct {
	cell     cell          // nil: untouched
	written  int           // the operation that wrote it, see tide
	dropFrom stint.Instant // from then on a store may have dropped it
}

// Check compares a store's answer to an operation at the store's time now with
// the model, field by field, and carries the model on. outcomes is op.Each as the
// store filled it in, or nil. The error names every field that differs, with what
// was expected and the state that it follows from; the model then stays as it was.
func (o *Oracle) Check(op stint.Op, now stint.Instant, decision stint.Decision, outcomes []stint.Outcome) error {
	parts := o.parts(op)
	o.tide.push(now)
	sets := make([][]candidate, len(parts))
	for i, p := range parts {
		sets[i] = o.candidates(p.id, now)
	}
	next := make([][]candidate, len(parts))
	chosen := make([]candidate, len(parts))
	var fault error
	matched := false
	for combination := range combinations(sets) {
		for i, c := range combination {
			chosen[i] = sets[i][c]
		}
		verdict := o.evaluate(op.Verb, now, parts, chosen)
		differences := verdict.differences(decision, outcomes)
		if len(differences) > 0 {
			if fault == nil {
				fault = explain(op, now, parts, chosen, differences)
			}
			continue
		}
		matched = true
		for i := range parts {
			next[i] = merge(next[i], verdict.after[i])
		}
	}
	if !matched {
		return fault
	}
	for i, p := range parts {
		o.store(p.id, next[i])
	}
	return nil
}

// Decide carries out the operation as a store would that never drops a state, and
// returns the answer, with one outcome per limit. The operation must be valid.
func (o *Oracle) Decide(op stint.Op, now stint.Instant) (stint.Decision, []stint.Outcome) {
	parts := o.parts(op)
	o.tide.push(now)
	chosen := make([]candidate, len(parts))
	for i, p := range parts {
		chosen[i] = o.candidates(p.id, now)[0]
	}
	verdict := o.evaluate(op.Verb, now, parts, chosen)
	for i, p := range parts {
		o.store(p.id, []candidate{verdict.after[i]})
	}
	return verdict.decision, verdict.outcomes
}

// ResetPolicy makes all clients of the policies with the name as new, as a store's
// ResetPolicy does.
func (o *Oracle) ResetPolicy(policyName string) {
	maps.DeleteFunc(o.states, func(id stateID, _ []candidate) bool { return id.policy == policyName })
}

// ResetAll makes all clients of all policies as new, as a store's ResetAll does.
func (o *Oracle) ResetAll() { clear(o.states) }

func (o *Oracle) parts(op stint.Op) []part {
	parts := make([]part, 0, 4)
	for i := range 1 + len(op.And) {
		claim := op.Claim
		if i > 0 {
			claim = op.And[i-1]
		}
		limits, known := o.limits[claim.Policy]
		if !known {
			limits = claim.Policy.Limits()
			o.limits[claim.Policy] = limits
		}
		for j := range limits {
			id := stateID{claim.Policy.Name(), limits[j].Name, limits[j].Algorithm, claim.Key}
			parts = append(parts, part{id, &limits[j], claim.Permits})
		}
	}
	return parts
}

// candidates are the states that a store may find under the id at now. Unless the
// clock is behind the highest time that a state has lived through, a dropped
// state and a worthless one give the same answers.
func (o *Oracle) candidates(id stateID, now stint.Instant) []candidate {
	set := o.states[id]
	if len(set) == 0 {
		return []candidate{{}}
	}
	if now < o.tide.highest() {
		for _, c := range set {
			if c.cell != nil && o.tide.since(c.written) >= c.dropFrom {
				return merge(slices.Clone(set), candidate{})
			}
		}
	}
	return set
}

func (o *Oracle) store(id stateID, set []candidate) {
	if len(set) == 0 || len(set) == 1 && set[0].cell == nil {
		delete(o.states, id)
		return
	}
	o.states[id] = set
}

// merge adds a candidate to a set unless an equal one is there.
func merge(set []candidate, c candidate) []candidate {
	for i, other := range set {
		if c.cell == nil || other.cell == nil {
			if c.cell == nil && other.cell == nil {
				return set
			}
			continue
		}
		if c.cell.String() == other.cell.String() {
			set[i].dropFrom = min(c.dropFrom, other.dropFrom)
			return set
		}
	}
	return append(set, c)
}

// combinations yields every way of picking one index into each set. The slice is
// reused.
func combinations(sets [][]candidate) func(func([]int) bool) {
	return func(yield func([]int) bool) {
		pick := make([]int, len(sets))
		for {
			if !yield(pick) {
				return
			}
			i := 0
			for i < len(sets) && pick[i] == len(sets[i])-1 {
				pick[i] = 0
				i++
			}
			if i == len(sets) {
				return
			}
			pick[i]++
		}
	}
}

// written is the candidate for a cell that the current operation wrote. The TTL
// that a store gives it covers its life and a margin of a tenth, at least one
// second.
func (o *Oracle) written(c cell, now stint.Instant) candidate {
	at := max(now, c.time())
	worthless := max(at, c.untouchedAt())
	margin := max(micros(time.Second), (worthless-at)/10)
	return candidate{cell: c, written: o.tide.count, dropFrom: worthless + margin}
}

// A tide knows the highest of the times that operations were made at, since any
// of them: the candidates for that, highest first.
type tide struct {
	count int
	peaks []peak
}

type peak struct {
	operation int
	at        stint.Instant
}

func (t *tide) push(now stint.Instant) {
	t.count++
	for len(t.peaks) > 0 && t.peaks[len(t.peaks)-1].at <= now {
		t.peaks = t.peaks[:len(t.peaks)-1]
	}
	t.peaks = append(t.peaks, peak{t.count, now})
}

func (t *tide) highest() stint.Instant { return t.peaks[0].at }

func (t *tide) since(operation int) stint.Instant {
	for _, p := range t.peaks {
		if p.operation >= operation {
			return p.at
		}
	}
	return 0
}

// explain words what differs.
func explain(op stint.Op, now stint.Instant, parts []part, states []candidate, differences []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "at %s, %s:", formatInstant(now), describeOp(op))
	for _, d := range differences {
		fmt.Fprintf(&b, "\n\t%s", d)
	}
	for i, p := range parts {
		state := untouched
		if states[i].cell != nil {
			state = states[i].cell.String()
		}
		fmt.Fprintf(&b, "\n\tlimit %d: %s of key %q was %s", i, describeLimit(*p.limit), p.id.key, state)
	}
	return fmt.Errorf("%s", b.String())
}

// micros is a duration in microseconds.
func micros(d time.Duration) stint.Instant { return stint.Instant(d.Microseconds()) }

// wait is the time from now until an instant.
func wait(now, until stint.Instant) time.Duration {
	if until <= now {
		return 0
	}
	return time.Duration(until-now) * time.Microsecond
}

// beyond is later than every instant that a wait can lead to.
const beyond = stint.Instant(math.MaxInt64 / 4)
