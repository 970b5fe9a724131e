package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// MaxRuleBytes bounds a rule as JSON.
const MaxRuleBytes = 2 << 20

// ErrNotBegun says that nothing was made of an edit, as the rules that it would have changed could not be read.
var ErrNotBegun = errors.New("stint: the edit could not begin, and nothing was stored")

// Options say how a [Manager] works. The zero value is complete.
type Options struct {
	// StrictSlash tells /users from /users/, as in [rules.Options]. Default: false.
	StrictSlash bool
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in [rules.Options]. It is the same
	// for all processes that share a store. Default: 0, which is 64.
	IPv6Prefix int
	// Interval is how often the store is asked for its newest revision without a notification:
	// 10ms to 1m. Default: 0, which is 1s.
	Interval time.Duration
	// Now is the clock that revisions are dated by, and that says how long ago the store was read.
	// Default: nil, time.Now.
	Now func() time.Time
	// Cut is called with the reason when the store answers but does not notify, as without the right to
	// subscribe: edits of others are in force only after Interval. It is called once, until notifications are back,
	// and not while Follow's functions are. Default: nil.
	Cut func(error)
	// Restored is called after the manager restored revision was, as [Manager.Follow] says. The store's
	// history is gone. It is not called while Follow's functions are, and must not call the manager. Default: nil.
	Restored func(made Info, was ID)
}

// RestoredBy is the author of revisions that a manager makes by itself.
const RestoredBy = "stint"

// A Manager reads, edits and follows the rules of a store. It is safe for
// concurrent use; make it with [NewManager].
type Manager struct {
	store   Store
	options Options
	inForce atomic.Int64 // the number of the revision whose set is in force

	turn    chan struct{} // held while the fields below are read or written
	known   bool          // whether the store's rules were ever read
	current Revision      // what the store has, as far as is known
	seen    time.Time     // when it was last asked, since the manager is followed; zero: never
	set     *rules.Set    // the last one without faults
	fault   *refusal      // why the current revision is not in force; nil if it is
	take    func(*rules.Set)
	refused bool      // whether Follow's refused was called since take was
	pending *Revision // was put to restore the current one, without an answer; nil for none
}

// NewManager makes a manager of the rules in a store. It asks nothing of it.
func NewManager(store Store, options Options) (*Manager, error) {
	if options.Interval == 0 {
		options.Interval = time.Second
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	var faults []error
	if store == nil {
		faults = append(faults, stint.Invalid("store", "nil", "a store such as NewMemory makes"))
	}
	if options.Interval < 10*time.Millisecond || options.Interval > time.Minute {
		faults = append(faults, stint.Invalid("Interval", options.Interval, "10ms to 1m"))
	}
	if options.IPv6Prefix < 0 || options.IPv6Prefix > 128 {
		faults = append(faults, stint.Invalid("IPv6Prefix", options.IPv6Prefix, "1 to 128"))
	}
	if err := prefix.Join(faults...); err != nil {
		return nil, err
	}
	return &Manager{store: store, options: options, turn: make(chan struct{}, 1)}, nil
}

// begin waits for the turn, which the returned function ends.
func (m *Manager) begin(ctx context.Context) (end func(), err error) {
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Current returns the newest revision that the store has now.
func (m *Manager) Current(ctx context.Context) (Revision, error) {
	end, err := m.begin(ctx)
	if err != nil {
		return Revision{}, err
	}
	defer end()
	if err := m.refresh(ctx); err != nil {
		return Revision{}, err
	}
	return m.current, nil
}

// Revision returns one revision. The error is ErrNotKept if it is not kept.
func (m *Manager) Revision(ctx context.Context, number int64) (Revision, error) {
	if number < 1 || number == math.MaxInt64 {
		return Revision{}, ErrNotKept
	}
	return m.store.Load(ctx, number)
}

// History returns at most n revisions with numbers below before, the newest first; with before
// 0, the newest of all. n is 1 to KeptRevisions.
func (m *Manager) History(ctx context.Context, before int64, n int) ([]Info, error) {
	if before < 0 {
		return nil, stint.Invalid("before", before, "0 or more")
	}
	if n < 1 || n > KeptRevisions {
		return nil, stint.Invalid("n", n, fmt.Sprintf("1 to %d", KeptRevisions))
	}
	return m.store.History(ctx, before, n)
}

// An Edited says what came of an edit.
type Edited struct {
	// Info is of the revision that was made, or of the newest if nothing was changed.
	Info
	rules.Changes
}

// maxAttempts bounds how often an edit begins anew as others came first.
const maxAttempts = 20

// Edit changes rules: what change makes of the draft becomes the next revision, all of it or
// nothing. When an edit of somebody else comes first, change is called again with a
// draft of the newer rules, so it must do nothing but read and change its draft; its
// error ends the edit and is returned as it is.
//
// When Edit returns, the revision is in force where this manager is followed. Without a change it makes no
// revision and returns the newest. Rules that can't be enforced together are an error that wraps
// stint.ErrInvalid and names all faults, each a [*rules.Fault]. When the store could not be asked the error
// wraps stint.ErrUnavailable or is the context's. If it wraps ErrNotBegun or ErrRefused too, nothing was stored;
// else the revision may have been.
//
// When the store lost its rules they are restored before an edit, by a manager that is followed and
// read them a moment ago, as [Manager.Follow] says. Any other edit begins without rules then.
func (m *Manager) Edit(ctx context.Context, author Author, change func(*Draft) error) (Edited, error) {
	end, err := m.begin(ctx)
	if err != nil {
		return Edited{}, notBegun(err)
	}
	defer end()
	for range maxAttempts {
		edited, err := m.try(ctx, author, change)
		if !errors.Is(err, ErrConflict) {
			return edited, err
		}
	}
	return Edited{}, ErrConflict
}

// Rollback makes a revision with the rules of an older one; 0 is before the
// first. check, which may be nil, is called as an edit's change would be, before anything is
// changed. The error is ErrNotKept if the older one is not kept.
func (m *Manager) Rollback(ctx context.Context, author Author, number int64, check func(*Draft) error) (Edited, error) {
	if number < 0 {
		return Edited{}, stint.Invalid("revision", number, "0 or more")
	}
	return m.Edit(ctx, author, func(d *Draft) error {
		if check != nil {
			if err := check(d); err != nil {
				return err
			}
		}
		var older Revision
		if number > 0 {
			var err error
			switch older, err = m.Revision(ctx, number); {
			case errors.Is(err, ErrNotKept):
				return err
			case err != nil:
				return notBegun(err)
			}
		}
		d.Replace(older.Rules)
		return nil
	})
}

// try makes an edit unless another one comes first.
func (m *Manager) try(ctx context.Context, author Author, change func(*Draft) error) (Edited, error) {
	if err := m.refresh(ctx); err != nil {
		return Edited{}, notBegun(err)
	}
	draft := &Draft{from: m.current}
	if err := change(draft); err != nil {
		return Edited{}, err
	}
	changes := draft.Changes()
	if len(changes) == 0 {
		return Edited{Info: m.current.Info}, nil
	}
	next := Revision{Info: Info{ID: m.nextID(), Author: author}, Rules: draft.Rules()}
	set, err := m.compile(next.Rules)
	if err != nil {
		return Edited{}, err
	}
	if err := check(changes, author); err != nil {
		return Edited{}, err
	}
	if err := m.store.Put(ctx, m.current.ID, &next); err != nil {
		return Edited{}, err
	}
	m.current = next
	m.enforce(set)
	return Edited{Info: next.Info, Changes: rules.Summarize(changes)}, nil
}

// nextID is that of the revision after the current one. Its time is later, whatever the clock says.
func (m *Manager) nextID() ID {
	return ID{Number: m.current.Number + 1, At: max(m.options.Now().UnixMicro(), m.current.At+1)}
}

// check reports text of the author or of a changed rule that would be read as another, and rules that are too large.
func check(changes []rules.Change, author Author) error {
	for _, text := range []string{author.By, author.Action, author.Comment} {
		if !utf8.ValidString(text) {
			return stint.Invalid("the author", author, "text in UTF-8")
		}
	}
	for _, change := range changes {
		if change.After == nil {
			continue
		}
		text, err := CheckSize(change.After)
		if err != nil {
			return err
		}
		text = bytes.Join([][]byte{[]byte("["), text, []byte("]")}, nil)
		if read, err := Decode("the edit", text); err != nil || len(read) != 1 || !read[0].Equal(change.After) {
			return stint.Invalid(fmt.Sprintf("rule %q", change.ID), "a rule that would be read as another", "text in UTF-8")
		}
	}
	return nil
}

// CheckSize returns a rule as JSON, or reports that it exceeds MaxRuleBytes. The error wraps stint.ErrInvalid.
func CheckSize(rule *rules.Rule) ([]byte, error) {
	text, err := file.JSON(*rule)
	if err != nil {
		return nil, prefix.Errorf("rule %q: %w", rule.ID, err)
	}
	if len(text) > MaxRuleBytes {
		return nil, stint.Invalid(fmt.Sprintf("rule %q", rule.ID), document.Verbatim(fmt.Sprintf("%d bytes of JSON", len(text))),
			fmt.Sprintf("at most %d bytes; make several rules", MaxRuleBytes))
	}
	return text, nil
}

// notBegun is the error of a read that an edit begins with.
func notBegun(err error) error { return prefix.Errorf("%w: %w", ErrNotBegun, err) }

func (m *Manager) compile(list []rules.Rule) (*rules.Set, error) {
	return rules.Compile(list, rules.Options{Previous: m.set, StrictSlash: m.options.StrictSlash, IPv6Prefix: m.options.IPv6Prefix})
}

// InForce is the number of the revision whose rules [Manager.Follow] handed over last, or hands over now; 0 before the first.
// Unlike the other methods it may be called by the functions of Follow.
func (m *Manager) InForce() int64 { return m.inForce.Load() }

// enforce puts a set in force, that of the current revision.
func (m *Manager) enforce(set *rules.Set) {
	m.set, m.fault = set, nil
	m.inForce.Store(m.current.Number)
	m.handOver()
}

// handOver lets the follower take the set in force.
func (m *Manager) handOver() {
	if m.take != nil {
		m.refused = false
		m.take(m.set)
	}
}

// refresh takes over what the store has. While that can't be enforced the set from before stays
// in force.
func (m *Manager) refresh(ctx context.Context) error {
	err := m.read(ctx)
	if err == nil {
		m.seen = m.options.Now()
	}
	return err
}

func (m *Manager) read(ctx context.Context) error {
	head, err := m.store.Head(ctx)
	if err != nil {
		return err
	}
	if m.pending != nil && head == m.pending.ID {
		m.restored(m.pending)
	}
	if head != (ID{}) {
		m.pending = nil
	}
	if m.known && head == m.current.ID {
		return nil
	}
	// A manager that is not followed has nothing in force, and may have read the rules long ago.
	if head == (ID{}) && m.take != nil && len(m.current.Rules) > 0 {
		return m.lost(ctx)
	}
	next, err := m.store.Load(ctx, 0)
	if err != nil {
		return err
	}
	m.known, m.current = true, next
	set, err := m.compile(next.Rules)
	if err != nil {
		m.fault = &refusal{prefix.Errorf("revision %d: %w", next.Number, err)}
		return nil
	}
	m.enforce(set)
	return nil
}

// A refusal is why a revision of the store can't be enforced.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

// restoreWithin is how long ago a store may have been read at most for its rules to be restored,
// or three intervals if that is longer. It is the time of a restart; a process that could not ask for longer may
// have missed edits of others.
const restoreWithin = time.Minute

// lost restores the rules in force to a store that has none any more, if they were the store's a moment ago.
// Otherwise they stay in force until somebody puts a revision.
func (m *Manager) lost(ctx context.Context) error {
	if m.options.Now().Sub(m.seen) <= max(restoreWithin, 3*m.options.Interval) {
		return m.restore(ctx)
	}
	m.fault = &refusal{prefix.Errorf("the store has no rules any more, and revision %d was read too long ago to be restored; what is in force stays until the next edit, which begins without rules", m.current.Number)}
	m.current, m.pending = Revision{}, nil
	return nil
}

// restore puts the rules that are known to a store that lost all of its own.
func (m *Manager) restore(ctx context.Context) error {
	next := Revision{
		Info: Info{
			ID:     ID{Number: 1, At: m.options.Now().UnixMicro()},
			Author: Author{By: RestoredBy, Action: fmt.Sprintf("restore revision %d", m.current.Number), Comment: "the store had lost its rules"},
		},
		Rules: m.current.Rules,
	}
	switch err := m.store.Put(ctx, ID{}, &next); {
	case errors.Is(err, ErrConflict):
		return m.refresh(ctx) // another process was first
	case err != nil:
		m.pending = &next
		return err
	}
	m.restored(&next)
	return nil
}

// restored takes over that a revision has the current rules.
func (m *Manager) restored(made *Revision) {
	was := m.current.ID
	m.current = *made
	m.inForce.Store(made.Number)
	if m.options.Restored != nil {
		m.options.Restored(made.Info, was)
	}
}
