package simulate

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/record"
)

// A Comparison is what a replay of a record says.
type Comparison struct {
	// Decisions are those that the record has, without peeks.
	Decisions int64 `json:"decisions"`
	// Answered were made without the store, by a denial cache; they change nothing and are not
	// compared.
	Answered int64 `json:"answered"`
	// Different decisions are other ones in the replay; FirstDifference words the first.
	Different       int64  `json:"different"`
	FirstDifference string `json:"firstDifference,omitempty"`
	// Unfit says why nobody can claim that the record replays, "" if that can be claimed: lines are
	// missing, for example.
	Unfit string `json:"unfit,omitempty"`
}

// Replay decides what a record has once more, from an empty store, and compares. Each record is of
// one process, its files from the oldest to the newest. A record of a store in the process is
// compared line by line. Of several, or of a store that is shared, decisions are put in the order
// of the store's time; those of one instant have no order that is known, and are taken as what
// remained tells.
func Replay(records ...io.Reader) (*Comparison, error) {
	r := &replay{store: newStore(MaxClients, new(memory)), made: map[string]*stint.Policy{}}
	for i, in := range records {
		r.record, r.policies = i, map[int64]*stint.Policy{}
		if err := r.read(in); err != nil {
			return nil, err
		}
	}
	if r.shared || len(records) > 1 {
		if slices.ContainsFunc(r.ops, func(op recordedOp) bool { return op.number > 0 && len(op.claims) == 0 }) {
			r.unfit("a policy was reset, and nobody knows when by the store's time")
		}
		slices.SortStableFunc(r.ops, byInstant)
	}
	for i := range r.ops {
		r.compare(&r.ops[i])
	}
	return &r.Comparison, nil
}

// A replay reads records one after another into ops, and then carries the operations out on a store
// of its own. Numbers of policies are each record's own; made has one policy for each name and set
// of limits, so that processes of one deployment share their states as they did.
type replay struct {
	Comparison

	store    *store
	claims   []claim                  // of the operation that is compared
	policies map[int64]*stint.Policy  // of the record that is read
	made     map[string]*stint.Policy // by name and limits
	ops      []recordedOp
	record   int
	shared   bool
}

// A recordedOp is an operation with where it stands: the record, and its line there. One without
// claims resets.
type recordedOp struct {
	record.Line

	claims []stint.Claim
	ways   []uint16 // of each, as of the operation
	record int
	number int64
}

// byInstant orders operations by time. Of those of one client at one instant more remains of
// earlier ones, and a denial comes behind the admission that left what it found; where denials
// count, each has to wait longer than the one before.
func byInstant(a, b recordedOp) int {
	if order := cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(clientOf(a), clientOf(b))); order != 0 ||
		!a.takes() || !b.takes() {
		return order
	}
	return cmp.Or(cmp.Compare(b.left(), a.left()), cmp.Compare(a.Retry, b.Retry))
}

// left is what remained of the deciding limit, with what the operation left to others. Of a denial for which nothing
// remained it is not known, and 0, so that the denial comes last.
func (op *recordedOp) left() int64 {
	limit := int(op.Index)
	for i := range op.claims {
		c := &op.claims[i]
		if limit < c.Policy.Len() && (op.Allowed || op.Remaining > 0) {
			return op.Remaining + c.Keep
		}
		limit -= c.Policy.Len()
	}
	return op.Remaining
}

// It is the first claim's; operations of several claims are sorted by it, too.
func clientOf(op recordedOp) string {
	if len(op.claims) == 0 {
		return ""
	}
	return op.claims[0].Policy.Name() + "\n" + op.claims[0].Key
}

// takes reports whether the operation asks for permits now: only those have a remaining amount that
// tells which came first.
func (op *recordedOp) takes() bool {
	return op.Verb == stint.VerbTake.String() || op.Verb == stint.VerbTry.String()
}

// unfit says why the record proves nothing. The first reason stays: what follows is often caused by
// it.
func (r *replay) unfit(format string, args ...any) {
	if r.Unfit == "" {
		r.Unfit = fmt.Sprintf(format, args...)
	}
}

func (r *replay) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for number := int64(1); ; number++ {
		text, err := lines.ReadBytes('\n')
		if len(text) > 0 {
			var line record.Line
			if json.Unmarshal(text, &line) != nil {
				r.unfit("line %d is malformed", number)
			} else if err := r.line(line, number); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return prefix.Join(err)
		}
	}
}

// line takes one line: what begins a process, what is missing, what defines a policy, or an
// operation. An error is one of the record's policies; all else that is wrong makes the record
// unfit.
func (r *replay) line(line record.Line, number int64) error {
	switch {
	case number == 1 && line.Begin == "":
		r.unfit("it does not begin where its process began")
	case number > 1 && line.Begin != "memory" && line.Begin != "":
		r.unfit("line %d: its process began anew", number)
	}
	switch {
	case line.Begin != "": // a store in a process is empty at its begin
		r.shared = r.shared || line.Begin != "memory"
		r.ops = append(r.ops, recordedOp{Line: record.Line{Verb: record.ResetAll}})
	case line.Dropped > 0:
		r.unfit("line %d: %d lines are missing", number, line.Dropped)
	case line.Policy > 0:
		return r.define(line, number)
	case line.Verb != "":
		op := recordedOp{Line: line, number: number, record: r.record}
		for _, c := range line.Claims {
			if len(c.Key) > bounds.MaxKeyBytes {
				r.unfit("line %d: a key has %d bytes, more than %d", number, len(c.Key), bounds.MaxKeyBytes)
				return nil
			}
			if r.policies[c.Policy] == nil {
				r.unfit("line %d: policy %d is not defined", number, c.Policy)
				return nil
			}
			op.claims = append(op.claims, stint.Claim{
				Key: c.Key, Policy: r.policies[c.Policy], Permits: c.Permits, Keep: c.Keep,
			})
			op.ways = append(op.ways, c.Way)
		}
		r.ops = append(r.ops, op)
	}
	return nil
}

// define makes a policy, or finds the one of that name with the same limits.
func (r *replay) define(line record.Line, number int64) error {
	id := fmt.Sprint(line.Name, "\n", string(line.Limits), line.Denials)
	if r.made[id] == nil {
		parsed, _, err := rulefile.Parse(
			fmt.Sprintf("line %d", number),
			[]byte(`[{"id":"r","scope":"global","limits":`+string(line.Limits)+`}]`),
		)
		if err != nil {
			return err
		}
		limits := parsed[0].Limits
		for _, i := range line.Denials {
			if i >= 0 && i < len(limits) {
				limits[i].Denials = true
			}
		}
		policy, err := stint.NewPolicy(line.Name, limits...)
		if err != nil {
			return prefix.Errorf("line %d: %w", number, err)
		}
		r.made[id] = policy
	}
	r.policies[line.Policy] = r.made[id]
	return nil
}

// compare carries out an operation.
func (r *replay) compare(op *recordedOp) {
	switch op.Verb {
	case record.ResetPolicy:
		r.store.last = nil
		for policy := range r.store.tables {
			if policy.Name() == op.Name {
				delete(r.store.tables, policy)
			}
		}
		return
	case record.ResetAll:
		r.store.last = nil
		clear(r.store.tables)
		return
	}
	r.Decisions++
	switch op.Source {
	case "":
	case stint.SourceDenialCache.String():
		r.Answered++
		return
	default:
		r.unfit("line %d: it was not the store that decided, but %s", op.number, op.Source)
	}
	if !op.takes() && op.Verb != stint.VerbReset.String() && op.Verb != stint.VerbSettle.String() {
		r.unfit("line %d: holds can't be replayed, as a record does not say which one it is", op.number)
		return
	}
	verb := stint.VerbTake
	for v := stint.VerbTake; v <= stint.VerbSettle; v++ {
		if v.String() == op.Verb {
			verb = v
		}
	}
	r.claims = sized(r.claims, len(op.claims))
	for i, c := range op.claims {
		r.store.claim(&r.claims[i], nil, &op.claims[i], op.ways[i])
		if r.changed(&r.claims[i], c.Policy) {
			r.unfit("line %d: the limits of a client of policy %q changed", op.number, c.Policy.Name())
		}
	}
	d, _ := r.store.decide(verb, r.claims, op.At)
	got, want := record.LineOf(verb, d), op.Line
	got.At, got.Claims, want.Source = op.At, op.Claims, ""
	texts := [2][]byte{}
	for i, line := range []record.Line{want, got} {
		texts[i], _ = json.Marshal(line) // which was read as JSON
	}
	if string(texts[0]) != string(texts[1]) {
		if r.Different++; r.Different == 1 {
			r.FirstDifference = fmt.Sprintf(
				"record %d, line %d: recorded %s; replayed %s", op.record+1, op.number, texts[0], texts[1],
			)
		}
	}
}

// changed reports whether a new client of a policy is known under other limits, as after a reload. A client with an
// override has it from the start.
func (r *replay) changed(c *claim, under *stint.Policy) bool {
	if _, known := c.table.look(&c.key); known {
		return false
	}
	for policy, t := range r.store.tables {
		if policy == under || policy.Name() != under.Name() {
			continue
		}
		same := func(l stint.Limit) bool {
			return slices.ContainsFunc(
				under.Limits(),
				func(k stint.Limit) bool { return k.Name == l.Name && k.Algorithm == l.Algorithm },
			)
		}
		if _, known := t.look(&c.key); known && slices.ContainsFunc(policy.Limits(), same) {
			return true
		}
	}
	return false
}
