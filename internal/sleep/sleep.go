// Package sleep waits for a time, or until a context ends.
package sleep

import (
	"context"
	"time"
)

// For waits for d and returns nil, or the context's error once that has ended. A d of 0 or less does not wait.
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
