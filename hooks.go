package stint

import (
	"context"
	"time"
)

// Hooks are called by a [Limiter] as it works. Every field may be nil. A hook runs
// in the caller's goroutine before the verb returns, so it must not block, and
// must be safe for concurrent use.
type Hooks struct {
	// Decided is called after every operation, with its decision or its error. Wait
	// and WaitN make several operations.
	Decided func(ctx context.Context, event Event)
}

// An Event describes one operation to a hook.
type Event struct {
	Verb     Verb
	Claim    Claim
	Decision Decision
	Err      error         // nil when the store decided
	Elapsed  time.Duration // how long the store took
}
