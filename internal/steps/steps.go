// Package steps lets a simulation take the steps of package enforce's decisions by itself, in its own time.
package steps

import (
	"context"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/waitqueue"
	"github.com/stint-go/stint/rules"
)

// Of are the steps of an enforce.Limiter's decisions.
type Of[Verdict any] interface {
	// Prepare finds the rules that hold for a request, and decides what can be without the store: if the verdict is
	// Allowed, its Claims are to decide, by Ask, or by a Waiter if one of their rules waits.
	Prepare(r *rules.Request, v *Verdict, verb stint.Verb) error
	// Ask asks the limits of a prepared verdict, and completes it by what they say. The error is the store's: those that
	// a failure of the store would be are for the next step of a Waiter. Shadow has none.
	Ask(ctx context.Context, v *Verdict, do waitqueue.Action) error
	// Waiter makes the waiter of a prepared verdict, which waits for so long at most. turn is called when its turn comes
	// after a Follow, at a time; it must not use the limiter. The verdict is the waiter's until it is Done.
	Waiter(v *Verdict, now int64, longest time.Duration, turn func(now int64)) Waiter
}

// A Waiter is a request that rules may have wait, and decides it step by step. It knows no clock and no store: each
// step takes the time, and says what to do before the next one. All waiters of a limiter have one clock, in nanoseconds
// above 0, which does not go back. It is not safe for concurrent use; those of a limiter are, beside each other.
type Waiter interface {
	// Step says what to do next, at a time. err is what became of what was asked since the last step, if that is that the
	// store could not decide; any other error ends the wait. The error is why the request can't be decided, with Done.
	Step(now int64, err error) (waitqueue.Step, error)
}
