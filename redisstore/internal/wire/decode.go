package wire

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/redisstore/internal/layout"
)

// reader takes the script's reply apart. Once it has run out, it reads zeros. So reading needs no
// check at each step: short is looked at once, at the end.
type reader struct {
	text  string
	short bool
}

// bytes is the next n bytes, or "" if there are not so many, after which the reader has run out.
func (r *reader) bytes(n int) string {
	if n < 0 || n > len(r.text) {
		r.short = true
		r.text = ""
		return ""
	}
	text := r.text[:n]
	r.text = r.text[n:]
	return text
}

// byte is the next byte.
func (r *reader) byte() byte {
	if text := r.bytes(1); text != "" {
		return text[0]
	}
	return 0
}

// number is a number of n bytes. Numbers are big-endian, as in what was sent.
func (r *reader) number(n int) int64 { return layout.Unsigned(r.bytes(n)) }

// generation is one of a hash's generations.
type generation struct {
	start    stint.Instant
	versions string // the limits' parameters, one after another
}

// generation reads a head behind its length; without one the generation is empty. The head is the
// start of the generation, in 8 bytes, and more that only the script needs, up to headBytes; then
// come the parameters of the limits that wrote into it.
func (r *reader) generation() (g generation) {
	head := r.bytes(int(r.number(2)))
	if len(head) < headBytes {
		return g
	}
	return generation{start: stint.Instant(layout.Unsigned(head[:8])), versions: head[headBytes:]}
}

// These are faults of a script that is not this one, or of what something else wrote in its place.
var (
	errShort    = errors.New("it is too short")
	errLong     = errors.New("it is too long")
	errVersion  = errors.New("a state's writer is not known")
	errDisagree = errors.New("it disagrees about what was allowed")
)

// decode takes the reply apart and answers every operation. It reports whether the batch is to be
// sent again: with other edges of calendars, for the whole script, or under other keys. The script
// says how many takes it admitted; a replay that comes to another number disagrees with it, and is
// an error rather than a wrong answer. What the script decided by itself is read; the rest is
// decided here once more, by the code of package algorithm on the states that the script found,
// which must come to the same.
func (b *Batch) decode(reply string) (again bool, err error) {
	r := &reader{text: reply}
	switch r.byte() {
	case replyAsks:
		return true, b.decodeAsks(r)
	case replyWhole:
		b.fullScript = true
		return true, nil
	case replyHolds:
		b.holds, b.usualLeft = true, true
		return true, nil
	case replyStale:
		return true, b.target.adopt(r, b.layout.Text, b.epochFields)
	}
	now := stint.Instant(r.number(8))
	b.loaded = slices.Grow(b.loaded[:0], len(b.states))[:len(b.states)]
	clear(b.loaded)
	answersFirst := b.mix&(firstHolds|withHolds) != 0
	if !answersFirst {
		if err := b.decodeGroups(r, b.firstGroups, now); err != nil {
			return false, err
		}
	}
	for _, at := range b.resetMarked {
		b.states[at].resetAt = stint.Instant(r.number(8))
	}
	if err := b.decodeGroups(r, b.secondGroups, now); err != nil {
		return false, err
	}
	decider := decider{batch: b, now: now, answers: r}
	b.outcomes = slices.Grow(b.outcomes[:0], len(b.opLimits))[:len(b.opLimits)]
	for i := range b.entries {
		e := &b.entries[i]
		if !e.answered && (e.hold != nil || b.mix&withHolds != 0 || !b.meetsHolds(e)) {
			decider.decide(e)
			e.answered = e.hold == nil || !e.hold.left
		}
		again = again || !e.answered
	}
	allowed := r.number(6)
	if r.short {
		return false, errShort
	}
	if r.text != "" {
		return false, errLong
	}
	if decider.allowed != allowed {
		return false, fmt.Errorf("%w: %d operations, not %d", errDisagree, allowed, decider.allowed)
	}
	b.holds, b.usualLeft = b.holds || again, again
	return again, nil
}

// meetsHolds reports whether the script has left an operation to the one with holds. Permits that
// are held make a state more than its numbers, which the quick scripts do not read.
func (b *Batch) meetsHolds(e *Entry) bool {
	for _, p := range b.Limits(e) {
		if b.states[p.state].held {
			return true
		}
	}
	return false
}

// decodeAsks reads which states need other windows of their calendars. A guess of the time was
// wrong if this process's clock is off by more than a window, or a state's time is ahead.
func (b *Batch) decodeAsks(r *reader) error {
	if b.asked == nil {
		b.asked = map[int32]stint.Instant{}
	}
	for r.text != "" {
		number, around := r.number(4), stint.Instant(r.number(8))
		if r.short || number < 1 || number > int64(len(b.numbered)) {
			return errShort
		}
		b.asked[b.numbered[number-1]] = around
	}
	return nil
}

// decodeGroups reads the states of groups.
func (b *Batch) decodeGroups(r *reader, groups []*group, now stint.Instant) error {
	for _, g := range groups {
		g.current, g.previous = r.generation(), r.generation()
		for _, at := range g.states {
			if err := b.states[at].read(r, &g.current, &g.previous, now, &b.loaded[at].State); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads the state's value. A value is a tag and three numbers: the tag says which limit in the
// head of the generation wrote it, so whose widths they have. The first is a time, relative to the
// generation's start, and signed.
func (ref *stateRef) read(
	r *reader, current, before *generation, now stint.Instant, into *algorithm.State,
) error {
	ref.held = false
	g := current
	tag := r.byte()
	if tag == tagHeld {
		ref.held = true
		return nil
	}
	if tag == tagPrev {
		g = before
		tag = r.byte()
	}
	if tag == tagNone {
		return nil
	}
	mine := ref.limit.Parameters
	length := len(mine)
	inWide := tag >= tagWide
	var writer string
	if index := int(tag &^ tagWide); index == tagInline {
		writer = r.bytes(length)
	} else if from := index * length; from+length <= len(g.versions) {
		writer = g.versions[from : from+length]
	}
	if len(writer) != length {
		return errVersion
	}
	var numbers [3]int64
	for i := range numbers {
		bytes := int(writer[i])
		if inWide {
			bytes = 8
		}
		numbers[i] = layout.Unsigned(r.bytes(bytes))
		if i == 0 {
			unused := 64 - 8*bytes
			numbers[i] = numbers[i]<<unused>>unused + int64(g.start)
		}
	}
	if r.short {
		return errShort
	}
	ref.limit.Load(into, now, numbers, writer, writer == mine)
	return nil
}

// outcome reads what the script answered of a limit, and whether the operation is bound to its way.
func (r *reader) outcome(spec *stint.Limit) (o stint.Outcome, bound bool) {
	flags := r.byte()
	o = stint.Outcome{Allowed: flags&1 != 0, Denials: spec.Denials, Limit: spec.Capacity, Remaining: r.number(8)}
	o.RetryAfter = stint.Never
	if retry := r.number(8); retry >= 0 {
		o.RetryAfter = layout.Micros(retry)
	}
	o.ResetAfter, o.Delay, o.Applied = layout.Micros(r.number(8)), layout.Micros(r.number(8)), r.number(8)
	o.GrowsAfter = layout.Micros(r.number(8))
	return o, flags&2 != 0
}

// decider works out the answers of a batch's operations, in order, by doing to the states what the
// script did. Operations are decided in their order, each on what the one before has left.
type decider struct {
	batch     *Batch
	operation decide.Operation
	now       stint.Instant
	answers   *reader // of logs, and of all operations when permits are held
	allowed   int64
}

// decide answers an operation: by what the script answered, or by the same transitions on the
// states that it found.
func (d *decider) decide(e *Entry) {
	limits := d.batch.Limits(e)
	outcomes := d.batch.Outcomes(e)
	single := false // whether one limit was decided here
	switch {
	case e.hold != nil, d.batch.mix&withHolds != 0:
		d.readAnswer(e, limits, outcomes)
	case e.Verb == stint.VerbReset:
		for i := range limits {
			outcomes[i] = limits[i].Limit.Untouched(int64(limits[i].Keep))
			d.batch.loaded[limits[i].state] = decide.State{}
			d.batch.states[limits[i].state].resetAt = d.now
		}
	case e.Verb >= Refund:
		for i := range limits {
			ref := &d.batch.states[limits[i].state]
			giveBack := ref.limit.Refund
			if e.Verb == ReturnLease {
				giveBack = ref.limit.ReturnLease
			}
			if !ref.resetMarked || e.takenAt > ref.resetAt {
				giveBack(&d.batch.loaded[limits[i].state].State, d.now, limits[i].permits, e.takenAt)
			}
			outcomes[i] = stint.Outcome{Allowed: true}
		}
	case len(limits) == 1 && !e.logs && len(e.Ways) == 0:
		d.decideOne(e, &limits[0], &outcomes[0])
		single = true
	default:
		d.decideMany(e, limits, outcomes)
	}
	if e.hold != nil && (e.hold.err != nil || e.hold.left) {
		return
	}
	if single {
		e.Decision = decide.Single(&outcomes[0], d.now)
	} else {
		e.Decision = e.combine(outcomes, d.now)
	}
	if e.Verb == stint.VerbSettle {
		e.Decision.Applied = decide.Settled(outcomes, func(i int) bool { return limits[i].Limit.Settles() })
	}
	if e.hold != nil && e.Verb != stint.VerbReserve {
		e.Decision.Allowed, e.Decision.RetryAfter, e.Decision.Applied = true, 0, e.hold.applied
	}
	if e.Decision.Allowed && (e.Verb == stint.VerbTake || e.Verb == stint.VerbTry) {
		d.allowed++
	}
}

// decideOne carries out an operation on one limit. A bulk is takes of one permit each that stand
// behind the operation, of which as many are admitted as fit.
func (d *decider) decideOne(e *Entry, p *OpLimit, out *stint.Outcome) {
	machine, state := &d.batch.states[p.state].limit.Machine, &d.batch.loaded[p.state]
	*out = stint.Outcome{}
	state.One(machine, e.Verb, d.now, p.permits, int64(p.Keep), e.Growth && e.bulk == 0, out)
	if e.bulk > 0 {
		e.BulkAdmitted = machine.Admit(&state.State, d.now, 1, 0, e.bulk)
		d.allowed += e.BulkAdmitted
		if e.Growth {
			out.GrowsAfter = machine.GrowsAfter(&state.State, d.now, int64(p.Keep), out.Remaining)
		}
	}
}

// decideMany carries out an operation on several limits, or on logs, whose answers are the script's.
func (d *decider) decideMany(e *Entry, limits []OpLimit, outcomes []stint.Outcome) {
	if e.logs {
		d.answers.byte() // whether it was admitted, which the answers say, too
	}
	o := &d.operation
	o.Verb, o.Now, o.States, o.Ways, o.Outs, o.Told = e.Verb, d.now, d.batch.loaded, e.Ways, outcomes, e.Growth
	o.Parts = o.Parts[:0]
	for i, p := range limits {
		part := decide.Part{State: int(p.state), Permits: p.permits, Keep: int64(p.Keep)}
		outcomes[i] = stint.Outcome{}
		if l := d.batch.states[p.state].limit; l.HasLog() {
			outcomes[i], _ = d.answers.outcome(&l.Spec)
		} else {
			part.Machine = &l.Machine
		}
		o.Parts = append(o.Parts, part)
	}
	o.Decide()
}

// combine is the decision of what the operation's limits say. A group of which the script bound the operation to a way
// is described by that way.
func (e *Entry) combine(outcomes []stint.Outcome, now stint.Instant) stint.Decision {
	ways := e.Ways
	if e.bound != nil {
		ways = e.bound
	}
	d := decide.Combine(outcomes, ways, now)
	if d.Allowed {
		d.Via = max(d.Via, e.via)
	}
	return d
}
