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
	windows *calendarWindows
	history clockHistory
}

// NewOracle returns an oracle to which every key is untouched.
func NewOracle() *Oracle {
	return &Oracle{states: map[stateID][]candidate{}, windows: newCalendarWindows()}
}

// stateID is what a state belongs to.
type stateID struct {
	policy, limit string
	algorithm     stint.Algorithm
	key           string
}

// A limitOp is an operation as one of its limits sees it.
type limitOp struct {
	id      stateID
	slot    int // of the operation's states; ways of one group may share one
	limit   *stint.Limit
	permits int64
	keep    int64 // how many of the limit's permits are left to others
	way     stint.Way
}

// most is the largest cost that the limit ever admits, less than 1 if it admits none.
func (op limitOp) most() int64 { return op.limit.Capacity - op.keep }

// A candidate is one state that a store may hold. The zero value is the
// untouched state.
type candidate struct {
	state    limitState    // nil: untouched
	written  int           // the operation that wrote it, see clockHistory
	dropFrom stint.Instant // from then on a store may have dropped it
}

// Check compares a store's answer to an operation at the store's time now with
// the model, field by field, and carries the model on. outcomes is op.Each as the
// store filled it in, or nil. The error names every field that differs, with what
// was expected and the state that it follows from; the model then stays as it was.
func (o *Oracle) Check(op stint.Op, now stint.Instant, decision stint.Decision, outcomes []stint.Outcome) error {
	ops, ids := o.limitOps(op)
	o.history.add(now)
	sets := make([][]candidate, len(ids))
	for i, id := range ids {
		sets[i] = o.candidates(id, now)
	}
	next := make([][]candidate, len(ids))
	chosen := make([]candidate, len(ids))
	var fault error
	matched := false
	combinations := 1
	for _, set := range sets {
		combinations *= len(set)
	}
	for n := range combinations {
		for i, set := range sets {
			chosen[i] = set[n%len(set)]
			n /= len(set)
		}
		expected := o.evaluate(op.Verb, now, ops, chosen)
		differences := expected.differences(decision, outcomes)
		if len(differences) > 0 {
			if fault == nil {
				fault = explain(op, now, ops, chosen, differences)
			}
			continue
		}
		matched = true
		for i := range ids {
			next[i] = merge(next[i], expected.after[i])
		}
	}
	if !matched {
		return fault
	}
	for i, id := range ids {
		o.store(id, next[i])
	}
	return nil
}

// Decide carries out the operation as a store would that never drops a state, and
// returns the answer, with one outcome per limit. The operation must be valid.
func (o *Oracle) Decide(op stint.Op, now stint.Instant) (stint.Decision, []stint.Outcome) {
	ops, ids := o.limitOps(op)
	o.history.add(now)
	chosen := make([]candidate, len(ids))
	for i, id := range ids {
		chosen[i] = o.candidates(id, now)[0]
	}
	expected := o.evaluate(op.Verb, now, ops, chosen)
	for i, id := range ids {
		o.store(id, []candidate{expected.after[i]})
	}
	return expected.decision, expected.outcomes
}

// ResetAll clears the states of a scope, as a store's ResetAll does.
func (o *Oracle) ResetAll(scope stint.Scope) {
	maps.DeleteFunc(o.states, func(id stateID, _ []candidate) bool { return scope.All || id.policy == scope.Policy })
}

// Clone returns a copy: a checker of concurrent histories tries an operation on one, and goes back.
func (o *Oracle) Clone() *Oracle {
	return &Oracle{maps.Clone(o.states), o.windows, clockHistory{o.history.operations, slices.Clone(o.history.peaks)}}
}

// String lists the states that are not untouched. Oracles of one text answer alike from the
// newest of their times on.
func (o *Oracle) String() string {
	lines := make([]string, 0, len(o.states))
	for id, set := range o.states {
		lines = append(lines, fmt.Sprintf("%+v: %s", id, set))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// limitOps are the limits of an operation in order, and the states that they are about.
func (o *Oracle) limitOps(op stint.Op) (ops []limitOp, ids []stateID) {
	for _, claim := range append([]stint.Claim{op.Claim}, op.And...) {
		limits, way := claim.Policy.Limits(), claim.Way
		for j := range limits {
			id := stateID{claim.Policy.Name(), limits[j].Name, limits[j].Algorithm, claim.Key}
			slot := slices.Index(ids, id)
			if slot < 0 {
				slot = len(ids)
				ids = append(ids, id)
			}
			ops = append(ops, limitOp{id, slot, &limits[j], claim.Permits, claim.Keep, way})
			if way != stint.Must {
				way = stint.With // all limits of a claim are of one way
			}
		}
	}
	return ops, ids
}

// candidates are the states that a store may find under the id at now. Unless the
// clock is behind the highest time that a state has lived through, a dropped
// state and a worthless one give the same answers.
func (o *Oracle) candidates(id stateID, now stint.Instant) []candidate {
	set := o.states[id]
	if len(set) == 0 {
		return []candidate{{}}
	}
	if now < o.history.highest() {
		for _, c := range set {
			if c.state != nil && o.history.highestSince(c.written) >= c.dropFrom {
				return merge(slices.Clone(set), candidate{})
			}
		}
	}
	return set
}

func (o *Oracle) store(id stateID, set []candidate) {
	if len(set) == 0 || len(set) == 1 && set[0].state == nil {
		delete(o.states, id)
		return
	}
	o.states[id] = set
}

// merge adds a candidate to a set unless an equal one is there.
func merge(set []candidate, c candidate) []candidate {
	for i, other := range set {
		if c.equal(other) {
			set[i].dropFrom = min(c.dropFrom, other.dropFrom)
			return set
		}
	}
	return append(set, c)
}

func (c candidate) equal(other candidate) bool {
	if c.state == nil || other.state == nil {
		return c.state == other.state
	}
	return c.state.untouchedAt() == other.state.untouchedAt() && c.state.String() == other.state.String()
}

// String describes the state completely.
func (c candidate) String() string {
	if c.state == nil {
		return "untouched"
	}
	return c.state.String()
}

// written is the candidate for a state that the current operation wrote. The TTL
// that a store gives it covers its life and a margin of a tenth, at least one
// second.
func (o *Oracle) written(c limitState, now stint.Instant) candidate {
	at := max(now, c.time())
	worthless := max(at, c.untouchedAt())
	margin := max(micros(time.Second), (worthless-at)/10)
	return candidate{state: c, written: o.history.operations, dropFrom: worthless + margin}
}

// A clockHistory knows, for every operation, the highest time of it and of those after it.
// Only the times that can still be the highest are kept, highest first.
type clockHistory struct {
	operations int
	peaks      []peak
}

type peak struct {
	operation int
	at        stint.Instant
}

func (t *clockHistory) add(now stint.Instant) {
	t.operations++
	for len(t.peaks) > 0 && t.peaks[len(t.peaks)-1].at <= now {
		t.peaks = t.peaks[:len(t.peaks)-1]
	}
	t.peaks = append(t.peaks, peak{t.operations, now})
}

func (t *clockHistory) highest() stint.Instant { return t.peaks[0].at }

func (t *clockHistory) highestSince(operation int) stint.Instant {
	for _, p := range t.peaks {
		if p.operation >= operation {
			return p.at
		}
	}
	return 0
}

// explain words what differs.
func explain(op stint.Op, now stint.Instant, ops []limitOp, states []candidate, differences []string) error {
	for i, each := range ops {
		differences = append(differences, fmt.Sprintf("limit %d: %s of key %q was %s", i, describeLimit(*each.limit), each.id.key, states[each.slot]))
	}
	return fmt.Errorf("stint: at %s, %s:\n\t%s", now, describeOp(op), strings.Join(differences, "\n\t"))
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

// farFuture is later than every instant that a wait can lead to.
const farFuture = stint.Instant(math.MaxInt64 / 4)
