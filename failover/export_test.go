package failover

import (
	"github.com/stint-go/stint"
)

// What tests of the package from outside reach inside for.

// Divide is the n-th part of a limit.
func Divide(limit stint.Limit, n int64) stint.Limit { return divide(limit, n) }

// IdleProbe is how often an idle store is probed.
const IdleProbe = idleProbe
