package algorithm

import (
	"github.com/stint-go/stint"
)

// tokenBucket holds up to a capacity of permits, starts full and refills continuously. Over every
// interval [a, b] it admits at most capacity + permits x (b - a) / period, and it denies only what
// the exact rational bucket could not pay. It is immutable and safe for concurrent use.
type tokenBucket struct{ schedule }

// newTokenBucket prepares a valid limit.
func newTokenBucket(limit stint.Limit) *tokenBucket { return &tokenBucket{newSchedule(limit)} }

// returnLeased gives back n permits that were leased at an instant and not spent, and reports whether that changed the
// state. What the bucket has refilled since stays away.
func (b *tokenBucket) returnLeased(state *bucketState, now stint.Instant, n int64, leased stint.Instant) bool {
	since := span{us: max(0, int64(max(now, state.Last)-leased))}
	if since.us >= b.timeOf(n).us {
		return false
	}
	return b.refundTaken(state, now, n-b.permitsIn(since), leased)
}
