package redisstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// reader takes the script's reply apart. Once it has run out, it reads zeros.
type reader struct {
	text  string
	short bool
}

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

func (r *reader) byte() byte {
	if text := r.bytes(1); text != "" {
		return text[0]
	}
	return 0
}

func (r *reader) number(n int) int64 { return unsigned(r.bytes(n)) }

// unsigned reads a big-endian number; one of 8 bytes may be signed.
func unsigned(text string) int64 {
	n := int64(0)
	for i := range len(text) {
		n = n<<8 | int64(text[i])
	}
	return n
}

// Values and heads, as generations.lua describes them.
const (
	headBytes  = 32
	inline     = 63
	wide       = 128
	valueOld   = 255
	valueNone  = 254
	wideNumber = 8
)

// generation is one of a hash's generations.
type generation struct {
	start   stint.Instant
	life    stint.Instant
	turn    stint.Instant
	before  stint.Instant // when the states of the generation before are worthless
	writers string        // their parameters, one after another
}

// dead is when its states are worthless, 0 of none.
func (g *generation) dead() stint.Instant { return g.turn + g.life }

func (r *reader) generation() (g generation) {
	head := r.bytes(int(r.number(2)))
	if len(head) < headBytes {
		return g
	}
	number := func(i int) stint.Instant { return stint.Instant(unsigned(head[8*i : 8*i+8])) }
	return generation{start: number(0), life: number(1), turn: number(2), before: number(3), writers: head[headBytes:]}
}

var (
	errShort    = errors.New("it is too short")
	errLong     = errors.New("it is too long")
	errWriter   = errors.New("a state's writer is not known")
	errDisagree = errors.New("it disagrees about what was allowed")
)

// How replies begin that decide nothing.
const (
	replyAsks  = 1 // other edges of calendars are needed
	replyWhole = 2 // the script for one take can't decide this one
	replyStale = 3 // the layout or an epoch is another
)

// read takes the reply apart and answers every operation. It reports whether the
// flight is to be sent again: with other edges of calendars, for the whole script, or under
// other keys.
func (f *flight) read(reply string) (again bool, err error) {
	r := &reader{text: reply}
	switch r.byte() {
	case replyAsks:
		return true, f.readAsks(r)
	case replyWhole:
		f.whole = true
		return true, nil
	case replyStale:
		return true, f.lane.learn(r, f.layout.text, f.policies)
	}
	now := stint.Instant(r.number(8))
	if err := f.readGroups(r, f.first, now); err != nil {
		return false, err
	}
	for _, at := range f.marked {
		f.states[at].resetAt = stint.Instant(r.number(8))
	}
	// The logs' outcomes come before the second part, operations on which may come
	// before those on logs: the second part is read first.
	logged := r.text
	r.bytes(f.loggedBytes())
	if err := f.readGroups(r, f.second, now); err != nil {
		return false, err
	}
	allowed := r.number(6)
	if r.short {
		return false, errShort
	}
	if r.text != "" {
		return false, errLong
	}
	f.store.lifetimes.note(now, f.first, f.second)
	decider := decider{flight: f, now: now, logged: reader{text: logged}}
	f.outs = slices.Grow(f.outs[:0], len(f.parts))[:len(f.parts)]
	for i := range f.entries {
		decider.decide(&f.entries[i])
	}
	if decider.allowed != allowed {
		return false, fmt.Errorf("%w: %d operations, not %d", errDisagree, allowed, decider.allowed)
	}
	return false, nil
}

func (f *flight) readAsks(r *reader) error {
	if f.asked == nil {
		f.asked = map[int32]stint.Instant{}
	}
	for r.text != "" {
		number, around := r.number(4), stint.Instant(r.number(8))
		if r.short || number < 1 || number > int64(len(f.numbered)) {
			return errShort
		}
		f.asked[f.numbered[number-1]] = around
	}
	return nil
}

// readGroups reads the states of groups.
func (f *flight) readGroups(r *reader, groups []*group, now stint.Instant) error {
	for _, g := range groups {
		g.current, g.before, g.missing = r.generation(), r.generation(), false
		for _, at := range g.states {
			g.missing = g.missing || r.text != "" && r.text[0] == valueNone
			if err := f.states[at].read(r, &g.current, &g.before, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads the state's value.
func (t *touched) read(r *reader, current, before *generation, now stint.Instant) error {
	t.state = state{}
	g := current
	tag := r.byte()
	if tag == valueOld {
		g = before
		tag = r.byte()
	}
	if tag == valueNone {
		return nil
	}
	mine := t.limit.parameters
	length := len(mine)
	inWide := tag >= wide
	var writer string
	if index := int(tag &^ wide); index == inline {
		writer = r.bytes(length)
	} else if from := index * length; from+length <= len(g.writers) {
		writer = g.writers[from : from+length]
	}
	if len(writer) != length {
		return errWriter
	}
	var numbers [3]int64
	for i := range numbers {
		bytes := int(writer[i])
		if inWide {
			bytes = wideNumber
		}
		numbers[i] = unsigned(r.bytes(bytes))
		if i == 0 {
			unused := 64 - 8*bytes
			numbers[i] = numbers[i]<<unused>>unused + int64(g.start)
		}
	}
	if r.short {
		return errShort
	}
	t.limit.load(&t.state, now, numbers, writer, writer == mine)
	return nil
}

// A log's outcome in the reply, and what stands before an operation's.
const (
	outcomeBytes = 1 + 5*8
	jointBytes   = 1
)

// loggedBytes is how long the outcomes of the logs are.
func (f *flight) loggedBytes() int {
	n := 0
	for i := range f.entries {
		e := &f.entries[i]
		if !e.logs || e.verb == stint.Reset {
			continue
		}
		n += jointBytes
		for _, p := range f.partsOf(e) {
			if f.states[p.state].limit.log {
				n += outcomeBytes
			}
		}
	}
	return n
}

// outcome reads what a log answered.
func (r *reader) outcome(capacity int64) stint.Outcome {
	o := stint.Outcome{Allowed: r.byte() == 1, Limit: capacity, Remaining: r.number(8), RetryAfter: stint.Never}
	if retry := r.number(8); retry >= 0 {
		o.RetryAfter = micros(retry)
	}
	o.ResetAfter, o.Applied = micros(r.number(8)), r.number(8)
	o.GrowsAfter = micros(r.number(8))
	return o
}

// decider works out the answers of a flight's operations, in order, by doing to the
// states what the script did.
type decider struct {
	flight  *flight
	now     stint.Instant
	logged  reader
	allowed int64
}

func (d *decider) decide(e *entry) {
	parts := d.flight.partsOf(e)
	outs := d.flight.outsOf(e)
	switch {
	case e.verb == stint.Reset:
		for i := range parts {
			t := &d.flight.states[parts[i].state]
			parts[i].limit.reset(&t.state, &outs[i])
			t.resetAt = d.now
		}
	case e.verb >= release:
		for i := range parts {
			t := &d.flight.states[parts[i].state]
			giveBack := t.limit.release
			if e.verb == lapse {
				giveBack = t.limit.lapse
			}
			if !t.marked || e.taken > t.resetAt {
				giveBack(&t.state, d.now, parts[i].permits, e.taken)
			}
			outs[i] = stint.Outcome{Allowed: true}
		}
	case len(parts) == 1 && !e.logs:
		d.decideOne(e, &parts[0], &outs[0])
	default:
		d.decideMany(e, parts, outs)
	}
	e.decision = stint.Combine(outs, d.now)
	if e.decision.Allowed && (e.verb == stint.Take || e.verb == stint.Try) {
		d.allowed++
	}
}

// decideOne carries out an operation on one limit.
func (d *decider) decideOne(e *entry, p *part, out *stint.Outcome) {
	t := &d.flight.states[p.state]
	*out = stint.Outcome{}
	t.limit.apply(algorithm.ActionOf(e.verb), &t.state, d.now, p.permits, out)
	if e.extra > 0 {
		e.admitted = t.limit.admit(&t.state, d.now, 1, e.extra)
		d.allowed += e.admitted
	}
	if e.growth {
		out.GrowsAfter = t.limit.grows(&t.state, d.now)
	}
}

// decideMany decides first what all limits say, then carries it out on all. Logs'
// answers are the script's.
func (d *decider) decideMany(e *entry, parts []part, outs []stint.Outcome) {
	action := algorithm.ActionOf(e.verb)
	look := action
	if action == algorithm.Take {
		look = algorithm.Peek
	}
	allowed := true
	if e.logs {
		allowed = d.logged.byte() == 1
	}
	for i := range parts {
		t := &d.flight.states[parts[i].state]
		if t.limit.log {
			outs[i] = d.logged.outcome(t.limit.limit.Capacity)
			continue
		}
		outs[i] = stint.Outcome{}
		t.limit.apply(look, &t.state, d.now, parts[i].permits, &outs[i])
		if !e.logs {
			allowed = allowed && outs[i].Allowed
		}
	}
	for i := range parts {
		t := &d.flight.states[parts[i].state]
		if t.limit.log {
			continue
		}
		if allowed && action == algorithm.Take {
			t.limit.apply(algorithm.Take, &t.state, d.now, parts[i].permits, &outs[i])
		}
		if e.growth {
			outs[i].GrowsAfter = t.limit.grows(&t.state, d.now)
		}
	}
}
