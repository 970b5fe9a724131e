package failover

import (
	"context"
	"time"

	"github.com/stint-go/stint"
)

// What tests of the package from outside reach inside for.

// Divide is the n-th part of a limit.
func Divide(limit stint.Limit, n int64) stint.Limit { return divide(limit, n) }

// WithTimeout returns the context that calls get, and what releases it. ok is false
// when it is the parent itself.
func WithTimeout(parent context.Context, timeout time.Duration) (ctx context.Context, release func(), ok bool) {
	d := withTimeout(parent, time.Now(), timeout)
	if d == nil {
		return parent, func() {}, false
	}
	return d, d.release, true
}

// IdleProbe is how often an idle store is probed.
const IdleProbe = idleProbe
