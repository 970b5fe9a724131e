// Package oracle is the exact model that stores are compared with: of the six kinds of limits, of holds, of
// permits that are kept for others, and of ways. It is naive and slow, in integers of any size, and was written
// from the contract (docs/internals/semantics.md, holds.md, ways.md). It shares no code with what it checks.
//
// To read it, begin with state.go: what is recorded of one limit and one client, and what becomes of it as time
// passes. bucket.go and window.go are its arithmetic, wait.go finds how long a wait is. operation.go decides an
// operation over its limits, ways.go which of them count, holds.go what happens to ids.
package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// An Oracle is the model of a store. It knows instants from 1970 on. It is not safe for concurrent use.
//
// Where the contract leaves a question open, either answer is right, but a store must stay with it. So an oracle
// is the list of the worlds that the answers so far allow, mostly one. One question comes up without holds: once a
// state has been worthless, equal to an untouched one, for longer than the margin of its TTL, a store may have
// dropped it, which can be told after a step back of the clock.
type Oracle struct {
	worlds   []*world
	windows  *calendarWindows
	history  clockHistory // of all operations
	versions versions
	maxHolds int           // of one client under one limit
	epoch    stint.Instant // of the last reset of policies
}

// A world is all that a store may hold. A state that is missing is untouched; an id that is missing is
// unknown. States and records are shared by worlds, and are replaced, not changed.
type world struct {
	states map[name]*state
	ids    map[string]*record
}

// A name identifies a state. Parameters of the limit are not part of it: another version of a limit
// reads the same state.
type name struct {
	policy, limit string
	algorithm     stint.Algorithm
	key           string
}

// New returns the model of an empty store that allows so many holds of one client under one limit; 0 is the default.
func New(maxHolds int) *Oracle {
	if maxHolds == 0 {
		maxHolds = bounds.DefaultMaxHolds
	}
	return &Oracle{
		worlds:   []*world{{map[name]*state{}, map[string]*record{}}},
		windows:  newCalendarWindows(),
		versions: versions{},
		maxHolds: maxHolds,
	}
}

// Check compares a store's answer to an operation at the store's time now with the model, field by field, and
// carries the model on. Once there are more than mostWorlds the others are not looked for: the caller should have
// begun anew long before, see Worlds. op is the operation as it was asked, before the store wrote into it. The error
// names every field that differs, with what was expected and the state that it follows from; the model then stays as it
// was. Check returns what the model says.
func (o *Oracle) Check(op stint.Op, now stint.Instant, got Answer) (want Answer, err error) {
	before := o.history
	o.history = before.add(now)
	var found worlds
	for _, w := range o.worlds {
		for t := range o.transactions(w, now) {
			answer := t.do(op)
			if differences := answer.differences(op, got); len(differences) > 0 {
				if found.list == nil && err == nil {
					want, err = answer, t.explain(op, differences)
				}
				continue
			}
			if found.list == nil {
				want = answer
			}
			if found.list == nil && t.open == 0 && len(o.worlds) == 1 {
				found.list = append(found.list, t.applied(w))
				continue
			}
			if !found.add(t, w) {
				break
			}
		}
	}
	if found.list == nil {
		o.history = before
		return want, err
	}
	o.worlds = found.list
	return want, nil
}

// worlds are those that an operation may lead to, each once.
type worlds struct {
	list []*world
	seen map[string]bool // by their texts
}

// add adds the world that a transaction makes of one, which stays as it is. It reports whether there is room for more.
func (f *worlds) add(t *transaction, w *world) bool {
	if len(f.list) > mostWorlds {
		return false
	}
	next := t.applied(&world{maps.Clone(w.states), maps.Clone(w.ids)})
	if text := next.String(); !f.seen[text] {
		if f.seen == nil {
			f.seen = map[string]bool{}
		}
		f.seen[text] = true
		f.list = append(f.list, next)
	}
	return true
}

// Decide carries out an operation as a store would that never drops a state, and returns the answer. The operation
// must be valid.
func (o *Oracle) Decide(op stint.Op, now stint.Instant) Answer {
	o.history = o.history.add(now)
	t := o.begin(o.worlds[0], now, nil)
	answer := t.do(op)
	o.worlds = []*world{t.applied(o.worlds[0])}
	return answer
}

// Worlds is how many worlds the answers so far allow.
func (o *Oracle) Worlds() int { return len(o.worlds) }

// Clone returns a copy: a checker of concurrent histories tries an operation on one, and goes back.
func (o *Oracle) Clone() *Oracle {
	c := *o
	c.worlds, c.versions = nil, maps.Clone(o.versions)
	for _, w := range o.worlds {
		c.worlds = append(c.worlds, &world{maps.Clone(w.states), maps.Clone(w.ids)})
	}
	return &c
}

// String lists the states that are not untouched, and the ids. Oracles of one text answer alike from the newest of
// their times on.
func (o *Oracle) String() string {
	var texts []string
	for _, w := range o.worlds {
		texts = append(texts, w.String())
	}
	return strings.Join(texts, "\nor\n")
}

// String lists what a world has, in an order of its own. Worlds of one text are one: Check keeps the
// first of them.
func (w *world) String() string {
	lines := make([]string, 0, len(w.states)+len(w.ids))
	for n, s := range w.states {
		lines = append(lines, fmt.Sprintf("%+v: %s", n, s))
	}
	for id, r := range w.ids {
		lines = append(lines, fmt.Sprintf("%s: %+v", id, *r))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// mostWorlds bounds the memory of an operation whose open questions are many.
const mostWorlds = 1024

// mostQuestions is how many open questions of one operation are answered in all manners: each doubles the time.
const mostQuestions = 12

// versions are the versions of each limit that operations have had, with the number of the first operation of
// each. While there are several a store keeps token buckets for longer.
type versions map[name][]version

type version struct {
	limit stint.Limit
	first int
}

// saw notes an operation's version of a limit.
func (v versions) saw(n name, limit stint.Limit, operation int) {
	n.key = ""
	isThis := func(seen version) bool { return !changed(seen.limit, limit) }
	if !slices.ContainsFunc(v[n], isThis) {
		v[n] = append(slices.Clip(v[n]), version{limit, operation})
	}
}

// dropFrom is from when on a store may have dropped a state: later, if it knew of another version when it wrote that.
func (v versions) dropFrom(n name, s *state) stint.Instant {
	n.key = ""
	for _, seen := range v[n] {
		if changed(seen.limit, s.limit) && seen.first <= s.written {
			return s.all.dropFrom
		}
	}
	return s.own.dropFrom
}

// begin begins an operation on a world, with the answers to the first open questions.
func (o *Oracle) begin(w *world, now stint.Instant, path []bool) *transaction {
	return &transaction{Oracle: o, world: w, now: now, states: map[name]*state{}, ids: map[string]*record{}, path: path}
}

// transactions are those of an operation on a world, one for each way to answer the questions that
// come up. Which questions come up depends on earlier answers, so a path is counted up like a binary
// number whose length the last run told: its last "no" becomes "yes", and all after it is asked anew.
func (o *Oracle) transactions(w *world, now stint.Instant) func(yield func(*transaction) bool) {
	return func(yield func(*transaction) bool) {
		for path := []bool{}; ; {
			t := o.begin(w, now, path)
			if !yield(t) {
				return
			}
			path = slices.Clone(t.path[:min(t.open, mostQuestions)])
			last := len(path) - 1
			for last >= 0 && path[last] {
				last--
			}
			if last < 0 {
				return
			}
			path = append(path[:last], true)
		}
	}
}

// applied is the world after the transaction.
func (t *transaction) applied(w *world) *world {
	for n, s := range t.states {
		if s == nil {
			delete(w.states, n)
		} else {
			w.states[n] = s
		}
	}
	maps.Copy(w.ids, t.ids)
	return w
}

// A clockHistory knows, for every operation, the highest time of it and of those after it. Only the
// times that can still be the highest are kept, highest first. It is not changed in place. It tells
// whether a store has seen a time at which it might drop a state, before the clock was set back.
type clockHistory struct {
	operations int // so far: the number of the newest
	peaks      []peak
}

// A peak is an operation with a higher time than all after it.
type peak struct {
	operation int
	at        stint.Instant
}

// add is the history with one operation more.
func (h clockHistory) add(now stint.Instant) clockHistory {
	peaks := h.peaks
	for len(peaks) > 0 && peaks[len(peaks)-1].at <= now {
		peaks = peaks[:len(peaks)-1]
	}
	return clockHistory{h.operations + 1, append(slices.Clip(peaks), peak{h.operations + 1, now})}
}

// highestSince is the highest time of an operation and those after it; 0: there is none.
func (h clockHistory) highestSince(operation int) stint.Instant {
	for _, p := range h.peaks {
		if p.operation >= operation {
			return p.at
		}
	}
	return 0
}
