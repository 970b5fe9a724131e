package rulestore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
)

// MaxRuleBytes bounds a rule as JSON.
const MaxRuleBytes = 2 << 20

// ErrNotBegun says that an edit changed nothing, because the rules could not be read.
var ErrNotBegun = errors.New("stint: the edit could not begin, and nothing was stored")

// Options say how a [Manager] works. The zero value is complete.
type Options struct {
	// StrictSlash distinguishes /users from /users/, as in [rules.Options]. Default: false.
	StrictSlash bool
	// IPv6Prefix is the number of bits by which IPv6 clients are counted, as in [rules.Options]. All
	// processes that share a store need the same. Default: 0, which is 64.
	IPv6Prefix int
	// Interval is how often the store is asked for its newest revision without a notification:
	// 10ms to 1m. Default: 0, which is 1s.
	Interval time.Duration
	// Now is the clock. It dates revisions and measures how long ago the store was read.
	// Default: nil, time.Now.
	Now func() time.Time
	// Cut is called with the reason when the store answers but does not notify, for example without the
	// right to subscribe. Edits of others are then in force only after Interval. It is called once, until
	// notifications are back, and not at the same time as Follow's functions. Default: nil.
	Cut func(error)
	// Restored is called after the manager restored the revision was, as [Manager.Follow] says. The
	// store's history is gone. It is not called at the same time as Follow's functions, and must not
	// call the manager. Default: nil.
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
	seen    time.Time     // when the store last answered, since the manager is followed; zero: never
	set     *rules.Set    // the last one without faults
	fault   error         // why the current revision is not in force; nil if it is
	take    func(*rules.Set)
	refused bool      // whether Follow's refused was called since take was called
	pending *Revision // was put without an answer, to restore the current one; nil for none
}

// NewManager makes a manager of the rules in a store. It does not call the store.
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

// hold waits for its turn and calls do, or returns the context's error.
func (m *Manager) hold(ctx context.Context, do func() error) error {
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
		return do()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Current returns the newest revision that the store has now.
func (m *Manager) Current(ctx context.Context) (now Revision, err error) {
	err = m.hold(ctx, func() error {
		err := m.refresh(ctx)
		if err == nil {
			now = m.current
		}
		return err
	})
	return now, err
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

// An Edited is the result of an edit.
type Edited struct {
	// Info is of the revision that was made, or of the newest if nothing was changed.
	Info
	rulediff.Changes
	// Texts are the rules that were added or changed, by ID, as rulefile.JSON writes them.
	Texts map[string][]byte
}

// maxAttempts bounds the attempts of an edit when others come first.
const maxAttempts = 20

// Edit changes rules: change edits a draft, and the draft becomes the next revision, all of it or
// nothing. When an edit of somebody else comes first, change is called again with a
// draft of the newer rules, so it must do nothing but read and change its draft. Its
// error ends the edit and is returned unchanged.
//
// When Edit returns, the revision is in force where this manager is followed. Without a change it makes no
// revision and returns the newest. Rules that can't be enforced together are an error that wraps
// stint.ErrInvalid and names all faults, each a [*rules.Fault]. If the store is unreachable, the error
// wraps stint.ErrUnavailable or is the context's. If it wraps ErrNotBegun or ErrRefused too, nothing was stored.
// Otherwise the revision may have been stored.
//
// If the store lost its rules, a manager that is followed and read them a moment ago restores them before
// an edit, as [Manager.Follow] says. Otherwise the edit begins without rules.
func (m *Manager) Edit(ctx context.Context, author Author, change func(*Draft) error) (edited Edited, err error) {
	held := m.hold(ctx, func() error {
		for range maxAttempts {
			if edited, err = m.try(ctx, author, change); !errors.Is(err, ErrConflict) {
				return nil
			}
		}
		return nil
	})
	if held != nil {
		return Edited{}, notBegun(held)
	}
	return edited, err
}

// Rollback makes a revision with the rules of an older one, or with the one of an ID alone as it was
// there: removed, if it was not. 0 is before the first. check, which may be nil, is called with the
// draft before it is changed. The error is ErrNotKept if the older one is not kept.
func (m *Manager) Rollback(
	ctx context.Context, author Author, number int64, id string, check func(*Draft) error,
) (Edited, error) {
	if number < 0 {
		return Edited{}, stint.Invalid("revision", number, "0 or more")
	}
	return m.Edit(ctx, author, func(d *Draft) error {
		if check != nil {
			if err := check(d); err != nil {
				return err
			}
		}
		d.restores = true
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
		if id == "" {
			d.Replace(older.Rules)
			return nil
		}
		was := slices.IndexFunc(older.Rules, func(r rules.Rule) bool { return r.ID == id })
		switch _, is := d.Rule(id); {
		case was >= 0:
			d.Put(older.Rules[was])
		case is:
			d.Delete(id)
		default:
			return fmt.Errorf("%w: %q, neither now nor in revision %d", ErrNoRule, id, number)
		}
		return nil
	})
}

// ErrNoRule says that no rule has an ID, neither now nor where it was looked for.
var ErrNoRule = errors.New("there is no such rule")

// try makes an edit unless another one comes first.
func (m *Manager) try(ctx context.Context, author Author, change func(*Draft) error) (Edited, error) {
	if err := m.refresh(ctx); err != nil {
		return Edited{}, notBegun(err)
	}
	draft := &Draft{from: m.current, rules: slices.Clone(m.current.Rules)}
	if err := change(draft); err != nil {
		return Edited{}, err
	}
	changes := draft.Changes()
	if len(changes) == 0 {
		return Edited{Info: m.current.Info}, nil
	}
	next := Revision{Info: Info{ID: m.nextID(), Author: author}, Rules: draft.rules}
	set, err := m.compile(next.Rules, !draft.restores)
	if err != nil {
		return Edited{}, err
	}
	texts, err := check(changes, author)
	if err != nil {
		return Edited{}, err
	}
	next.Texts = texts
	if err := m.store.Put(ctx, m.current.ID, &next); err != nil {
		return Edited{}, err
	}
	next.Texts = nil
	m.current = next
	m.enforce(set)
	return Edited{Info: next.Info, Changes: rulediff.Summarize(changes), Texts: texts}, nil
}

// nextID is that of the revision after the current one. Its time is later, whatever the clock says.
func (m *Manager) nextID() ID {
	return ID{Number: m.current.Number + 1, At: max(m.options.Now().UnixMicro(), m.current.At+1)}
}

// check reports text of the author or of a changed rule that a store would not return unchanged, and rules that are too
// large. It returns the rules as they are written, by ID.
func check(changes []rulediff.Change, author Author) (texts map[string][]byte, err error) {
	if !utf8.ValidString(author.By + author.Action + author.Comment) {
		return nil, stint.Invalid("the author", author, "text in UTF-8")
	}
	texts = make(map[string][]byte, len(changes))
	for _, change := range changes {
		if change.After == nil {
			continue
		}
		name := fmt.Sprintf("rule %q", change.ID)
		text, err := rulefile.JSON(*change.After)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(text) > MaxRuleBytes {
			return nil, stint.Invalid(
				name, document.Verbatim(fmt.Sprintf("%d bytes of JSON", len(text))),
				fmt.Sprintf("at most %d bytes; make several rules", MaxRuleBytes),
			)
		}
		if read, err := Decode("the edit", slices.Concat([]byte("["), text, []byte("]"))); err != nil || len(read) != 1 ||
			!read[0].Equal(change.After) {
			return nil, stint.Invalid(name, "a rule that would be read as another", "text in UTF-8")
		}
		texts[change.ID] = text
	}
	return texts, nil
}

// notBegun is the error of an edit whose first read failed.
func notBegun(err error) error { return prefix.Errorf("%w: %w", ErrNotBegun, err) }

// compile makes a set of rules, reviewed where they are being written.
func (m *Manager) compile(list []rules.Rule, review bool) (*rules.Set, error) {
	return rules.Compile(list, rules.Options{
		Previous: m.set, StrictSlash: m.options.StrictSlash, IPv6Prefix: m.options.IPv6Prefix, Review: review,
	})
}

// InForce is the number of the revision whose rules [Manager.Follow] handed over last, or hands over
// now; 0 before the first. Unlike the other methods it may be called by the functions of Follow.
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

// refresh reads the newest revision. If its rules can't be enforced, the set from before stays in force.
func (m *Manager) refresh(ctx context.Context) (err error) {
	defer func() {
		if err == nil {
			m.seen = m.options.Now()
		}
	}()
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
		return m.restore(ctx)
	}
	next, err := m.store.Load(ctx, 0)
	if err != nil {
		return err
	}
	m.known, m.current = true, next
	set, err := m.compile(next.Rules, false)
	if err != nil {
		m.fault = prefix.Errorf("revision %d: %w", next.Number, err)
		return nil
	}
	m.enforce(set)
	return nil
}

// restoreWithin is the longest time since the store was last read after which its rules are restored,
// or three intervals if that is longer. A restart takes less. A process that could not read for longer may
// have missed edits of others.
const restoreWithin = time.Minute

// restore puts the rules in force into a store that lost its data, if they were read from it a moment ago.
// Otherwise they stay in force until somebody puts a revision.
func (m *Manager) restore(ctx context.Context) error {
	now := m.options.Now()
	if now.Sub(m.seen) > max(restoreWithin, 3*m.options.Interval) {
		m.fault = fmt.Errorf("the store has no rules any more, and revision %d was read too long ago to be restored; "+
			"what is in force stays until the next edit, which begins without rules", m.current.Number)
		m.current, m.pending = Revision{}, nil
		return nil
	}
	next := Revision{
		Info: Info{
			ID: ID{Number: 1, At: now.UnixMicro()},
			Author: Author{
				By:      RestoredBy,
				Action:  fmt.Sprintf("restore revision %d", m.current.Number),
				Comment: "the store had lost its rules",
			},
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

// restored records that a revision with the current rules was put.
func (m *Manager) restored(made *Revision) {
	was := m.current.ID
	m.current = *made
	m.inForce.Store(made.Number)
	if m.options.Restored != nil {
		m.options.Restored(made.Info, was)
	}
}

// Follow puts every revision in force until ctx is done, as [rules.Source] says: an edit of this
// manager before it returns, other edits when the store notifies of them, at the latest after the
// options' Interval.
//
// While the store is unreachable, or its rules can't be read or enforced, the rules stay in force, and refused is
// called when that begins and for each other reason. When that is over, take is called again, also with unchanged
// rules.
//
// A store that lost its rules gets them back in a first revision by [RestoredBy], if they were read from it while
// following, at most a minute ago, or three intervals if that is longer. Otherwise the rules stay in force, and refused
// is called. A manager can be followed once at a time.
func (m *Manager) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	err := m.hold(ctx, func() error {
		if m.take != nil {
			return errFollowed
		}
		m.take, m.seen = take, time.Time{}
		if m.set != nil {
			m.handOver()
		}
		return nil
	})
	switch {
	case errors.Is(err, errFollowed):
		return err
	case err != nil:
		return nil //nolint:nilerr // ctx is done
	}
	notified, ended := make(chan struct{}, 1), make(chan struct{})
	watching, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		m.watch(watching, notified)
	}()
	defer func() {
		cancel()
		<-ended
		_ = m.hold(context.WithoutCancel(ctx), func() error { m.take = nil; return nil })
	}()
	wrong := ""    // the kind of fault of the last poll
	var told error // the last fault that refused was called with
	for ctx.Err() == nil {
		_ = m.hold(ctx, func() error {
			err := m.poll(ctx)
			if ctx.Err() != nil {
				return nil
			}
			refuse := func(err error) {
				m.refused = true
				refused(err)
			}
			now := kindOf(err)
			if now != "" && (now != wrong || !m.refused) { // an edit may have been taken since it was told
				refuse(err)
			}
			back := wrong != "" && now == ""
			wrong = now
			if m.fault != nil && (back || m.fault != told) { //nolint:errorlint // the very same
				refuse(m.fault)
				told = m.fault
			}
			if err == nil && m.fault == nil && m.refused {
				m.handOver() // nothing is refused any longer
			}
			return nil
		})
		m.pause(ctx, notified)
	}
	return nil
}

// kindOf is the same text for errors that are reported only once, "" for none. The errors of an unreachable store
// differ, for example in the local port.
func kindOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, stint.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "unreachable"
	default:
		return err.Error()
	}
}

// errFollowed says that the manager is followed already.
var errFollowed = errors.New("stint: the manager is followed already")

// pollTimeout bounds a poll of the store.
const pollTimeout = 5 * time.Second

func (m *Manager) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return m.refresh(ctx)
}

// pause waits for a notification, or until it is time to poll without one.
func (m *Manager) pause(ctx context.Context, notified <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, m.options.Interval)
	defer cancel()
	select {
	case <-notified:
	case <-ctx.Done():
	}
}

// watch receives notifications, and subscribes again an interval after they end.
func (m *Manager) watch(ctx context.Context, notified chan<- struct{}) {
	notify := func() {
		select {
		case notified <- struct{}{}:
		default: // one is enough
		}
	}
	var cut time.Time // since when there are no notifications
	told := false
	for ctx.Err() == nil {
		var subscribed atomic.Bool
		// A revision from before the subscription is found by the poll that ready asks for.
		err := m.store.Watch(ctx, func() { subscribed.Store(true); notify() }, notify)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return
		case subscribed.Load():
			cut, told = time.Time{}, false
		case cut.IsZero():
			cut = m.options.Now()
		case !told && m.options.Cut != nil:
			_ = m.hold(ctx, func() error {
				if told = m.seen.After(cut) && ctx.Err() == nil; told {
					m.options.Cut(err)
				}
				return nil
			})
		}
		m.pause(ctx, nil)
	}
}
