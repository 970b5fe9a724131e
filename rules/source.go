package rules

import "context"

// A Source is where rules come from, and where they change: files, or a registry that processes
// share.
type Source interface {
	// Follow makes a set of the rules that are there and hands it to take, and again whenever
	// they have changed, until ctx is done; then it returns nil. What can't be used, or not be read,
	// is told to refused, as a whole and with all its faults, and taken by nobody: the set from before
	// stays in force. When that is over take is called again, perhaps with the same set or with one that is equal:
	// so the set in force is what the source has, as far as is known, if take was called after refused. Both are
	// called by one goroutine at a time. An error is returned when the source can't be followed at all.
	Follow(ctx context.Context, take func(*Set), refused func(error)) error
}
