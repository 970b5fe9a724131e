package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// Options say how a registry works. The zero value is complete.
type Options struct {
	// StrictSlash tells /users from /users/, as in [rules.Options]. Default: false.
	StrictSlash bool
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in [rules.Options]. It is the same
	// for all who share a backend. Default: 0, which is 64.
	IPv6Prefix int
	// Interval is how often the backend is asked for its newest version though it told of none:
	// 10ms to 1m. Default: 0, which is 1s.
	Interval time.Duration
	// Now is the clock that versions are dated by, and that says how long ago the backend was read.
	// Default: nil, time.Now.
	Now func() time.Time
	// Cut hears, while the registry is followed, why the backend tells no news though it answers, as
	// without the right to subscribe: edits of others are in force only after Interval. It hears that once, until
	// there are news again, and is not called while Follow's functions are. Default: nil.
	Cut func(error)
	// Restored hears of a version that the registry made by itself, as [Registry.Follow] says, when
	// the backend had lost its rules: it has those of the version that was, whose history is gone.
	// It is not called while Follow's functions are, and must not ask the registry anything. Default: nil.
	Restored func(made Version, was Head)
}

// RestoredBy is the author of versions that a registry makes by itself.
const RestoredBy = "stint"

// A Registry is the rules of a backend, to be read, edited and followed. It is safe for
// concurrent use; make it with [New].
type Registry struct {
	backend Backend
	options Options

	turn     chan struct{} // held by who reads or writes what follows
	known    bool          // whether the backend's rules were read ever
	snapshot Snapshot      // what the backend has, as far as is known
	seen     time.Time     // when that was so, since the registry is followed; zero: never
	set      *rules.Set    // the last one without faults
	fault    *refusal      // why the snapshot is not in force; nil if it is
	take     func(*rules.Set)
	behind   bool     // whether Follow's refused was called since take was
	unsure   *Version // that was to restore the snapshot, and may have been made; nil for none
}

// New makes a registry of the rules in a backend. It asks nothing of it.
func New(backend Backend, options Options) (*Registry, error) {
	if options.Interval == 0 {
		options.Interval = time.Second
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	var faults []error
	if backend == nil {
		faults = append(faults, stint.Invalid("backend", "nil", "a backend such as NewMemory makes"))
	}
	if options.Interval < 10*time.Millisecond || options.Interval > time.Minute {
		faults = append(faults, stint.Invalid("Interval", options.Interval, "10ms to 1m"))
	}
	if options.IPv6Prefix < 0 || options.IPv6Prefix > 128 {
		faults = append(faults, stint.Invalid("IPv6Prefix", options.IPv6Prefix, "1 to 128"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Registry{backend: backend, options: options, turn: make(chan struct{}, 1)}, nil
}

// begin waits for the turn, which the returned function ends.
func (r *Registry) begin(ctx context.Context) (end func(), err error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Current returns the rules as the backend has them now.
func (r *Registry) Current(ctx context.Context) (Snapshot, error) {
	end, err := r.begin(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer end()
	if err := r.refresh(ctx); err != nil {
		return Snapshot{}, err
	}
	return r.snapshot, nil
}

// maxAttempts bounds how often an edit begins anew as others came first.
const maxAttempts = 20

// Edit changes rules: what change makes of the draft becomes the next version, all of it or
// nothing. When an edit of somebody else comes first, change is called again with a
// draft of the newer rules, so it must do nothing but look at its draft and change that; its
// error ends the edit and is returned as it is.
//
// When Edit returns, the version is in force where this registry is followed. Without a change it makes no
// version and returns the head. Rules that can't be enforced together are an error that wraps
// stint.ErrInvalid and names all faults, each a [*rules.Fault]. When the backend could not be asked the error
// wraps stint.ErrUnavailable or is the context's. If it wraps ErrNotBegun or ErrRefused too, nothing was made;
// else the version may have been.
//
// When the backend lost its rules they are restored before an edit, by a registry that is followed and
// read them a moment ago, as [Registry.Follow] says. Any other edit begins without rules then.
func (r *Registry) Edit(ctx context.Context, author Author, change func(*Draft) error) (Version, error) {
	end, err := r.begin(ctx)
	if err != nil {
		return Version{}, notBegun(err)
	}
	defer end()
	for range maxAttempts {
		version, err := r.try(ctx, author, change)
		if !errors.Is(err, ErrConflict) {
			return version, err
		}
	}
	return Version{}, ErrConflict
}

// try makes an edit unless another one comes first.
func (r *Registry) try(ctx context.Context, author Author, change func(*Draft) error) (Version, error) {
	if err := r.refresh(ctx); err != nil {
		return Version{}, notBegun(err)
	}
	draft := &Draft{from: r.snapshot}
	if err := change(draft); err != nil {
		return Version{}, err
	}
	v := Version{Head: r.snapshot.Head, Author: author, Changes: draft.Changes()}
	if len(v.Changes) == 0 {
		return v, nil
	}
	v.Number++
	v.At = max(r.options.Now().UnixMicro(), v.At+1)
	set, err := r.compile(draft.Rules())
	if err != nil {
		return Version{}, err
	}
	if err := v.check(); err != nil {
		return Version{}, err
	}
	if err := r.backend.Commit(ctx, r.snapshot.Head, &v); err != nil {
		return Version{}, err
	}
	r.snapshot = r.snapshot.Apply(&v)
	r.enforce(set)
	return v, nil
}

// notBegun is the error of what an edit has to read.
func notBegun(err error) error { return fmt.Errorf("%w: %w", ErrNotBegun, err) }

func (r *Registry) compile(list []rules.Rule) (*rules.Set, error) {
	return rules.Compile(list, rules.Options{Previous: r.set, StrictSlash: r.options.StrictSlash, IPv6Prefix: r.options.IPv6Prefix})
}

// enforce puts a set in force.
func (r *Registry) enforce(set *rules.Set) {
	r.set, r.fault = set, nil
	r.handOver()
}

// handOver lets who follows take the set in force.
func (r *Registry) handOver() {
	if r.take != nil {
		r.behind = false
		r.take(r.set)
	}
}

// refresh takes over what the backend has. While that can't be enforced the set from before stays
// in force.
func (r *Registry) refresh(ctx context.Context) error {
	err := r.read(ctx)
	if err == nil {
		r.seen = r.options.Now()
	}
	return err
}

func (r *Registry) read(ctx context.Context) error {
	head, err := r.backend.Head(ctx)
	if err != nil {
		return err
	}
	if r.unsure != nil && head == r.unsure.Head {
		r.restored(r.unsure)
	}
	if head != (Head{}) {
		r.unsure = nil
	}
	if r.known && head == r.snapshot.Head {
		return nil
	}
	// Who does not follow has nothing in force, and may have read the rules long ago.
	if head == (Head{}) && r.take != nil && len(r.snapshot.Rules) > 0 {
		return r.lost(ctx)
	}
	next, err := r.next(ctx, head)
	if err != nil {
		return err
	}
	r.known, r.snapshot = true, next
	set, err := r.compile(next.Rules)
	if err != nil {
		r.fault = &refusal{fmt.Errorf("version %d: %w", next.Number, err)}
		return nil
	}
	r.enforce(set)
	return nil
}

// A refusal is why a version of the backend can't be enforced.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

const (
	// fewVersions is how many versions at most are read to catch up. A version may be as large
	// as many rules, and more than once the same.
	fewVersions = 4
	// catchUpTimeout bounds how long that may take, so that there is time to load.
	catchUpTimeout = time.Second
)

// next is what the backend has: by the versions made since, if these are few, come soon and
// follow those that are known, else all of it.
func (r *Registry) next(ctx context.Context, head Head) (Snapshot, error) {
	behind := head.Number - r.snapshot.Number
	if !r.known || r.snapshot.Number == 0 || behind < 1 || behind > fewVersions {
		return r.backend.Load(ctx)
	}
	if next, whole := r.catchUp(ctx, head, int(behind)); whole {
		return next, nil
	}
	return r.backend.Load(ctx)
}

// catchUp applies the versions up to a head. It reports whether they could be read in time, and
// follow those that are known.
func (r *Registry) catchUp(ctx context.Context, head Head, behind int) (next Snapshot, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	// The one that is known is asked for as well, since it may have been lost and made anew.
	since, err := r.backend.Versions(ctx, head.Number+1, behind+1)
	if err != nil || len(since) != behind+1 || since[behind].Head != r.snapshot.Head {
		return Snapshot{}, false
	}
	next = r.snapshot
	for i := behind - 1; i >= 0; i-- {
		if since[i].Number != next.Number+1 {
			return Snapshot{}, false
		}
		next = next.Apply(&since[i])
	}
	return next, true
}

// restoreWithin is how long ago a backend may have been read at most for its rules to be restored,
// or three intervals if that is longer. It is the time of a restart; who could not ask for longer may
// have missed edits of others.
const restoreWithin = time.Minute

// lost is what becomes of the rules in force when the backend has none any more: they are restored
// if they were the backend's a moment ago. Else they stay in force until somebody makes a version.
func (r *Registry) lost(ctx context.Context) error {
	if r.options.Now().Sub(r.seen) <= max(restoreWithin, 3*r.options.Interval) {
		return r.restore(ctx)
	}
	r.fault = &refusal{fmt.Errorf("the backend has no rules any more, and version %d was read too long ago to be restored; what is in force stays until the next edit, which begins without rules", r.snapshot.Number)}
	r.snapshot, r.unsure = Snapshot{}, nil
	return nil
}

// restore writes the rules that are known to a backend that lost all of its own.
func (r *Registry) restore(ctx context.Context) error {
	v := Version{
		Head:   Head{Number: 1, At: r.options.Now().UnixMicro()},
		Author: Author{By: RestoredBy, Action: fmt.Sprintf("restore version %d", r.snapshot.Number), Comment: "the backend had lost its rules"},
	}
	for i := range r.snapshot.Rules {
		v.Changes = append(v.Changes, Change{ID: r.snapshot.Rules[i].ID, After: &r.snapshot.Rules[i]})
	}
	switch err := r.backend.Commit(ctx, Head{}, &v); {
	case errors.Is(err, ErrConflict):
		return r.refresh(ctx) // somebody else was first
	case err != nil:
		r.unsure = &v
		return err
	}
	r.restored(&v)
	return nil
}

// restored takes over that a version has the rules of the snapshot.
func (r *Registry) restored(v *Version) {
	was := r.snapshot.Head
	r.snapshot.Head = v.Head
	if r.options.Restored != nil {
		r.options.Restored(*v, was)
	}
}
