package registry

import (
	"context"
	"errors"
)

var (
	// ErrConflict says that another edit came first.
	ErrConflict = errors.New("registry: another version was made meanwhile")
	// ErrNotKept says that a version is not kept, or not any more.
	ErrNotKept = errors.New("registry: the version is not kept")
	// ErrUnreadable says that a backend holds something that stint did not write: nothing is wrong
	// with what was asked. Such an error wraps stint.ErrInvalid too.
	ErrUnreadable = errors.New("registry: what is kept can't be read")
	// ErrRefused says that the backend refused a version before any of it was made, as with a full
	// memory or without the right to write.
	ErrRefused = errors.New("registry: the version was refused, and nothing was made")
	// ErrNotBegun says that nothing was made of an edit, as what it would have changed could not be read.
	ErrNotBegun = errors.New("registry: the edit could not begin, and nothing was made")
)

// A Backend keeps rules and their versions. It is safe for concurrent use, by several
// processes too. Its errors wrap stint.ErrUnavailable when it can't be asked,
// ErrUnreadable and stint.ErrInvalid when what it holds can't be read, or are the context's.
type Backend interface {
	// Head is the newest version. It costs little, so that it can be asked every second.
	Head(ctx context.Context) (Head, error)
	// Load returns all rules as of one version.
	Load(ctx context.Context) (Snapshot, error)
	// Commit makes v the newest version, all of its changes or none, if the one before it still is
	// the newest, by its number and its time: another one of that number may have been made after a
	// loss. Else, or if v.Number is not the next, it returns ErrConflict. An error that wraps ErrRefused
	// says for certain that nothing was made; after another one it may have been. Who watches is told.
	Commit(ctx context.Context, before Head, v *Version) error
	// Versions returns at most n versions with numbers below before, the newest first; with
	// before 0, the newest of all. Those that are not kept are left out.
	Versions(ctx context.Context, before int64, n int) ([]Version, error)
	// Watch calls ready when it hears of every version from now on, and notify when there may be
	// a new one, until ctx is done or no news come any more, and says why. A backend without news returns errors.ErrUnsupported.
	Watch(ctx context.Context, ready, notify func()) error
}
