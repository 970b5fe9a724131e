// Package record writes what a store decides to files, which `stint simulate --replay` decides once more.
package record

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// A Recorder is a store that writes what another one decides, as lines of JSON that a replay of package simulate reads.
// It is safe for concurrent use; make it with [New]. The order that matters is that in
// which the store decides. A store in this process has no other witness of it, so that one mutex is
// held around each decision and its line; a shared store stamps decisions with its own time, by
// which a replay sorts them.
type Recorder struct {
	inner stint.Store
	out   io.Writer
	plain bool
	// nil: the order of lines need not be that of decisions
	order *sync.Mutex
	known atomic.Int64
	owner byte // of the numbers that policies carry
}

// Options say how a [Recorder] records. The zero value is for a store that several
// processes share.
type Options struct {
	// Memory says that the store is in this process, where it was empty at the begin. Decisions are
	// made one after another then, so that the record has them in order, as otherwise nobody could
	// tell.
	Memory bool
	// PlainKeys keeps keys as they are. Default: false, their SHA-256 stands for them.
	PlainKeys bool
}

// A Line is one of a record: what begins it, a policy, or an operation; or how many lines are missing in its
// place.
type Line struct {
	Begin   string `json:"begin,omitempty"` // memory or shared
	Dropped int64  `json:"dropped,omitempty"`
	Policy  int64  `json:"policy,omitempty"`
	// of a policy that is defined, or reset
	Name   string          `json:"name,omitempty"`
	Limits json.RawMessage `json:"limits,omitempty"`
	// which of them are of denials, as that of a rule's block: a rule file has no word for it
	Denials []int `json:"denials,omitempty"`

	At        stint.Instant `json:"at,omitempty"`
	Verb      string        `json:"verb,omitempty"`
	Claims    []Claim       `json:"claims,omitempty"`
	Allowed   bool          `json:"allowed,omitempty"`
	Index     int32         `json:"index,omitempty"`
	Remaining int64         `json:"remaining,omitempty"`
	// in microseconds as the others; -1 is never
	Retry   int64  `json:"retry,omitempty"`
	Reset   int64  `json:"reset,omitempty"`
	Delay   int64  `json:"delay,omitempty"`
	Applied int64  `json:"applied,omitempty"`
	Source  string `json:"source,omitempty"` // "": the store
	Via     uint8  `json:"via,omitempty"`    // as of the decision
}

// LineOf is that of a decision, without its claims. Times and durations are whole microseconds, as
// the store counts them, so that a replay can compare them exactly.
func LineOf(verb stint.Verb, d stint.Decision) Line {
	return Line{
		At:        d.At,
		Verb:      verb.String(),
		Allowed:   d.Allowed,
		Index:     int32(d.Index),
		Remaining: d.Remaining,
		Retry:     microsOrNever(d.RetryAfter),
		Reset:     d.ResetAfter.Microseconds(),
		Delay:     d.Delay.Microseconds(),
		Applied:   d.Applied,
		Via:       d.Via,
	}
}

// microsOrNever are microseconds, of which -1 is never.
func microsOrNever(d time.Duration) int64 {
	if d == stint.Never {
		return -1
	}
	return d.Microseconds()
}

// A Claim is one of an operation, with the number of its policy.
type Claim struct {
	Policy  int64  `json:"policy"`
	Key     string `json:"key"`
	Permits int64  `json:"permits"`
	// which older records do not have, nor
	Keep int64  `json:"keep,omitempty"`
	Way  uint16 `json:"way,omitempty"` // its number
}

// The verbs of a line that has no operation.
const (
	ResetPolicy = "reset-policy"
	ResetAll    = "reset-all"
)

// New records the decisions of a store. Each write to out is of whole lines. A write that waits delays the
// callers of the store.
func New(inner stint.Store, out io.Writer, options Options) *Recorder {
	r := &Recorder{inner: inner, out: out, plain: options.PlainKeys}
	begin := "shared"
	if options.Memory {
		r.order, begin = new(sync.Mutex), "memory"
	}
	r.write(&Line{Begin: begin})
	return r
}

// Decide implements [stint.Store].
func (r *Recorder) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	defer r.inOrder()()
	d, err := r.inner.Decide(ctx, op)
	r.note(&op, d, err)
	return d, err
}

// Take implements [stint.Store].
func (r *Recorder) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return r.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

// DecideAll implements [stint.Store].
func (r *Recorder) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	defer r.inOrder()()
	r.inner.DecideAll(ctx, ops, results)
	for i := range ops {
		r.note(&ops[i], results[i].Decision, results[i].Err)
	}
}

// Watch implements [stint.Store].
func (r *Recorder) Watch(timeout time.Duration, unreachable func(int, error)) stint.Shards {
	return r.inner.Watch(timeout, unreachable)
}

// ResetAll implements [stint.Store].
func (r *Recorder) ResetAll(ctx context.Context, scope stint.Scope) error {
	defer r.inOrder()()
	err := r.inner.ResetAll(ctx, scope)
	if err == nil && scope.All {
		r.write(&Line{Verb: ResetAll})
	} else if err == nil {
		r.write(&Line{Verb: ResetPolicy, Name: scope.Policy})
	}
	return err
}

// inOrder keeps other decisions out until done is called, if the record is to be in order.
func (r *Recorder) inOrder() (done func()) {
	if r.order == nil {
		return func() {}
	}
	r.order.Lock()
	return r.order.Unlock
}

// note writes an operation; a peek or a list changes nothing and is left out. One that failed may have
// been carried out, so that what follows can't be replayed: a line is missing.
func (r *Recorder) note(op *stint.Op, d stint.Decision, err error) {
	if op.Verb == stint.VerbPeek || op.Verb == stint.VerbList {
		return
	}
	if err != nil {
		if op.Validate() == nil {
			r.write(&Line{Dropped: 1})
		}
		return
	}
	line := LineOf(op.Verb, d)
	if d.Source != stint.SourceStore || d.Leased {
		line.Source = d.Source.String()
	}
	for nth := range op.Len() {
		claim, way := op.NthClaim(nth)
		line.Claims = append(line.Claims, r.claim(*claim, way))
	}
	r.write(&line)
}

// claim is a claim with the number of its policy, which the first claim of it defines in a line
// before. By default the key's hash stands for the key: two claims are of one client if their
// hashes are equal, which is all that a replay has to know.
func (r *Recorder) claim(c stint.Claim, way uint16) Claim {
	number, _ := c.Policy.Prepared(&r.owner, func() any { return r.define(c.Policy) }).(int64)
	if !r.plain {
		c.Key = rules.HashedClient(c.Key)
	}
	return Claim{number, c.Key, c.Permits, c.Keep, way}
}

// define writes a policy, and returns its number. The number is the record's own. Limits are
// written as a rule file would have them, through a rule that has nothing else.
func (r *Recorder) define(policy *stint.Policy) int64 {
	number := r.known.Add(1)
	line := Line{Policy: number, Name: policy.Name()}
	text, err := rulefile.JSON(rules.Rule{ID: "r", Scope: []string{rules.Global}, Limits: policy.Limits()})
	if err == nil {
		var rule struct {
			Limits json.RawMessage `json:"limits"`
		}
		err = json.Unmarshal(text, &rule)
		line.Limits = rule.Limits
	}
	for i := range policy.Len() {
		if policy.Limit(i).Denials {
			line.Denials = append(line.Denials, i)
		}
	}
	if err != nil {
		line = Line{Dropped: 1}
	}
	r.write(&line)
	return number
}

// write writes one line in one call, so that lines of concurrent calls do not mix. An error has
// nobody to go to: a decision must not fail for its record, and out counts what it loses.
func (r *Recorder) write(line *Line) {
	text, err := json.Marshal(line)
	if err != nil { // a key that is no text has a hash; numbers can be written
		text = DroppedLine(1)
	}
	_, _ = r.out.Write(append(text, '\n')) // which counts what is lost
}

// DroppedLine stands in a record for lines that are missing in its place.
func DroppedLine(lines int64) []byte { return fmt.Appendf(nil, "{\"dropped\":%d}\n", lines) }

// A Rotator writes lines to a file, which it renames when it is full, to the name with .1, that to
// .2 and so on, and removes the oldest. New files begin with the policies that older ones defined.
// It is not safe for concurrent use; make it with [NewRotator]. Any suffix of the files can thus be
// replayed as far as definitions go; what it lacks of earlier decisions shows in the comparison.
type Rotator struct {
	name     string
	size     int64
	files    int
	out      *os.File
	written  int64
	policies []byte // the lines that define them
}

// maxPolicies bounds what is written again, in bytes.
const maxPolicies = 8 << 20

// NewRotator writes to a file of a name, of up to so many bytes, and keeps so many files, at least one. What an earlier
// run wrote is rotated away.
func NewRotator(name string, size int64, files int) (*Rotator, error) {
	r := &Rotator{name: name, size: size, files: max(1, files)}
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if err := r.rename(); err != nil {
			return nil, err
		}
	}
	return r, r.open()
}

// open begins the file anew. Only its owner may read it, as it says who asked for what.
func (r *Rotator) open() (err error) {
	r.written = 0
	r.out, err = os.OpenFile(r.name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return prefix.Join(err)
}

// Write writes whole lines.
func (r *Rotator) Write(lines []byte) (int, error) {
	if r.written > 0 && r.written+int64(len(lines)) > r.size {
		if err := r.rotate(); err != nil {
			return 0, err
		}
	}
	for line := range strings.Lines(string(lines)) {
		if strings.HasPrefix(line, `{"policy":`) && len(r.policies) < maxPolicies {
			r.policies = append(r.policies, line...)
		}
	}
	n, err := r.out.Write(lines)
	r.written += int64(n)
	return n, prefix.Join(err)
}

// rotate begins a new file, with the lines that define policies at its head.
func (r *Rotator) rotate() error {
	if err := r.Close(); err != nil {
		return err
	}
	if err := r.rename(); err != nil {
		return err
	}
	if err := r.open(); err != nil {
		return err
	}
	_, err := r.out.Write(r.policies)
	return prefix.Join(err)
}

// rename makes room for a new file. The oldest is overwritten by the one before it: .n-1 is the
// last of n files, and with one file only the full one is removed.
func (r *Rotator) rename() error {
	at := func(i int) string {
		if i == 0 {
			return r.name
		}
		return fmt.Sprintf("%s.%d", r.name, i)
	}
	for i := r.files - 2; i >= 0; i-- {
		if err := os.Rename(at(i), at(i+1)); err != nil && !os.IsNotExist(err) {
			return prefix.Join(err)
		}
	}
	if r.files == 1 {
		return prefix.Join(os.Remove(r.name))
	}
	return nil
}

// Close closes the file.
func (r *Rotator) Close() error { return prefix.Join(r.out.Close()) }
