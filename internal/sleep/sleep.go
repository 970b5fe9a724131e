// Package sleep waits for a time, once or again and again, or until a context ends.
//
// Begin with [For]; [Every] is for what is done again and again in the background, and [Jittered]
// for what many processes do at the same interval. All of them end with their context, and none
// leaves a goroutine or a timer behind. They stand on the lowest floor, so that every package can
// wait in the same way.
package sleep

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d and returns nil, or the context's error once that has ended. A d of 0 or less
// does not wait.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until is [For], and returns as soon as it is woken, too.
func Until(ctx context.Context, d time.Duration, woken <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Every calls a function each d, more than 0, until the context ends. A call that takes longer
// delays the next one.
func Every(ctx context.Context, d time.Duration, do func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			do()
		case <-ctx.Done():
			return
		}
	}
}

// Jittered is [For] with a time between half of d and d, by chance, so that processes do not keep step. d is at
// least 2 nanoseconds.
func Jittered(ctx context.Context, d time.Duration) error {
	return For(ctx, d/2+rand.N(d/2))
}
