package algorithm

import (
	"github.com/stint-go/stint"
)

// TokenBucket holds up to a capacity of permits, starts full and refills continuously. Over every
// interval [a, b] it admits at most capacity + permits x (b - a) / period, and it denies only what
// the exact rational bucket could not pay. It is immutable and safe for concurrent use.
type TokenBucket struct{ schedule }

// NewTokenBucket prepares a valid limit.
func NewTokenBucket(limit stint.Limit) *TokenBucket { return &TokenBucket{newSchedule(limit)} }

// Apply carries out an action of n permits on the state, so that keep more are left.
func (b *TokenBucket) Apply(action Action, state *BucketState, now stint.Instant, n, keep int64, out *stint.Outcome) {
	b.apply(action, state, now, n, keep, out)
}

func (b *TokenBucket) returnLeased(state *BucketState, now stint.Instant, n int64, leased stint.Instant) bool {
	since := span{us: max(0, int64(max(now, state.Last)-leased))}
	if since.us >= b.timeOf(n).us {
		return false
	}
	return b.RefundTaken(state, now, n-b.permitsIn(since), leased)
}
