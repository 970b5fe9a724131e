// Package rulestore keeps a rule set as one document with revisions.
//
// A [Store] keeps the revisions: a [Memory] here, packages redis and mongo beside. A [Manager]
// stands on a store: it reads, edits and follows the rules, and puts each new revision in force. A
// [Revision] is all rules together, with who made it and when; there are no deltas, and an edit is
// a compare-and-put of the whole: two editors can't overwrite each other, and every process sees
// the same revisions in the same order.
//
// Begin with [NewManager]. What is stored is what package file writes, one rule on each line (see
// [Codec]), so that people can read it with the tools of the database.
package rulestore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-go/stint/rules"
)

const (
	// KeptRevisions is the number of revisions that a store keeps at least, as far as they fit into
	// KeptBytes.
	KeptRevisions = 1000
	// KeptBytes bounds the size of the revisions that a store keeps, in the form in which it keeps them. The newest is
	// kept even if it is larger.
	KeptBytes = 64 << 20
)

// An ID names a revision. The zero value is the ID of a store without revisions.
type ID struct {
	// Number counts the revisions from 1.
	Number int64 `json:"revision"`
	// At is the time of the revision in microseconds since the Unix epoch. It distinguishes two revisions of one
	// number, the first of which was lost with the store's data.
	At int64 `json:"at"`
}

// Time is the time of the revision.
func (id ID) Time() time.Time { return time.UnixMicro(id.At) }

// An Author is the author of a revision, with the reason for it.
type Author struct {
	// By is the author's name, such as a token's. Default: "", unknown.
	By string `json:"by,omitempty"`
	// Action describes the edit in a few words, such as "replace login". Default: "".
	Action string `json:"action,omitempty"`
	// Comment is the author's comment. Default: "".
	Comment string `json:"comment,omitempty"`
}

// Info describes a revision without its rules. The tags are its form in Redis.
type Info struct {
	ID
	Author
	// Count is the number of its rules.
	Count int `json:"rules"`
	// Bytes is the size of its rules as the store writes them, before they are compressed.
	Bytes int64 `json:"bytes"`
}

// A Revision is a whole rule set, from one edit to the next. It never changes.
type Revision struct {
	Info
	// Rules are sorted by ID. They must not be changed.
	Rules []rules.Rule
	// Texts are those rules that a revision changes, by ID, as file.JSON writes them, while it is put. Default: nil, none
	// was written yet.
	Texts map[string][]byte
}

var (
	// ErrConflict says that another revision was put first.
	ErrConflict = errors.New("stint: another revision of the rules was made first")
	// ErrNotKept says that a revision does not exist, or is no longer kept.
	ErrNotKept = errors.New("stint: the revision of the rules is not kept")
	// ErrUnreadable says that a store holds something that stint did not write. Such an error
	// wraps stint.ErrInvalid too.
	ErrUnreadable = errors.New("stint: the stored rules can't be read")
	// ErrCredentials says that the server does not accept the name or password. Such an error wraps stint.ErrUnavailable
	// too.
	ErrCredentials = errors.New("stint: wrong user name or password")
	// ErrRefused says that the store refused a revision before any of it was written, for example
	// because its memory is full.
	ErrRefused = errors.New("stint: the revision was refused and not stored")
)

// A Store keeps whole revisions of one rule set, the newest ones up to a number of bytes. It is safe for
// concurrent use, by several processes too. Its errors wrap stint.ErrUnavailable if its
// server is unreachable, ErrUnreadable if its data can't be read, or are the context's.
type Store interface {
	// Head returns the newest revision's ID. It costs little, so that it can be called every second.
	Head(ctx context.Context) (ID, error)
	// Load returns a revision; number 0 is the newest. If there is none, number 0 returns the zero
	// Revision. The error is ErrNotKept if the revision is not kept.
	Load(ctx context.Context, number int64) (Revision, error)
	// Put makes next the newest revision if expected still is the newest, by its number and its time.
	// Otherwise, or if next.Number is not expected.Number + 1, the error is ErrConflict. The caller
	// sets next.At, to later than expected.At, and sorts next.Rules by ID, which it must not change
	// afterwards; Put sets next.Count and next.Bytes. An error that wraps ErrRefused, ErrConflict or
	// stint.ErrInvalid says that nothing was stored; after any other error the revision may have been
	// stored. Watchers are notified.
	Put(ctx context.Context, expected ID, next *Revision) error
	// History returns at most n revisions with numbers below before, the newest first; with before 0
	// it starts at the newest of all. Revisions that are not kept are left out.
	History(ctx context.Context, before int64, n int) ([]Info, error)
	// Watch calls ready when its subscription is complete, and then notify whenever there may be a new revision. It ends
	// when ctx is done or notifications end, and returns the reason. A store that can't notify returns
	// errors.ErrUnsupported.
	Watch(ctx context.Context, ready, notify func()) error
	// Close closes its connections.
	Close()
}

// Memory is a Store in the process. It is lost when the process ends. Make it with [NewMemory].
type Memory struct {
	mu        sync.Mutex
	revisions []Revision // the newest last, numbered without gaps
	bytes     int64      // of all of them
	codec     Codec
	watchers  map[*func()]bool
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{watchers: map[*func()]bool{}} }

// head is the newest revision, with m.mu held.
func (m *Memory) head() Revision {
	if len(m.revisions) == 0 {
		return Revision{}
	}
	return m.revisions[len(m.revisions)-1]
}

// Head returns the newest revision's ID.
func (m *Memory) Head(ctx context.Context) (ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head().ID, ctx.Err()
}

// Load returns a revision, the newest with number 0.
func (m *Memory) Load(ctx context.Context, number int64) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return Revision{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if number == 0 {
		return m.head(), nil
	}
	at := number - (m.head().Number - int64(len(m.revisions)) + 1)
	if at < 0 || at >= int64(len(m.revisions)) {
		return Revision{}, ErrNotKept
	}
	return m.revisions[at], nil
}

// Put makes next the newest revision.
func (m *Memory) Put(ctx context.Context, expected ID, next *Revision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := m.codec.Next(next)
	if err != nil {
		return err
	}
	kept := *next
	kept.Texts = nil
	m.mu.Lock()
	defer m.mu.Unlock()
	if expected != m.head().ID || next.Number != expected.Number+1 {
		return ErrConflict
	}
	m.codec.Known(text, next.Rules)
	m.revisions, m.bytes = append(m.revisions, kept), m.bytes+next.Bytes
	for len(m.revisions) > 1 && (len(m.revisions) > KeptRevisions || m.bytes > KeptBytes) {
		m.bytes -= m.revisions[0].Bytes
		m.revisions[0] = Revision{}
		m.revisions = m.revisions[1:]
	}
	for notify := range m.watchers {
		go (*notify)()
	}
	return nil
}

// History returns revisions without their rules, the newest first.
func (m *Memory) History(ctx context.Context, before int64, n int) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Info
	for i := len(m.revisions) - 1; i >= 0 && len(list) < n; i-- {
		if before == 0 || m.revisions[i].Number < before {
			list = append(list, m.revisions[i].Info)
		}
	}
	return list, ctx.Err()
}

// Watch notifies of each revision.
func (m *Memory) Watch(ctx context.Context, ready, notify func()) error {
	m.mu.Lock()
	m.watchers[&notify] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, &notify)
	}()
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// Close does nothing.
func (m *Memory) Close() {}
