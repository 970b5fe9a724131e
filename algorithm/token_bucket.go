package algorithm

import (
	"time"

	"github.com/stint-go/stint"
)

// TokenBucket holds up to a capacity of permits, starts full and refills
// continuously. Over every interval [a, b] it admits at most
// capacity + permits x (b - a) / period, and it denies only what the exact
// rational bucket could not pay. It is immutable and safe for concurrent use.
type TokenBucket struct{ schedule }

// NewTokenBucket prepares a valid limit.
func NewTokenBucket(limit stint.Limit) *TokenBucket { return &TokenBucket{newSchedule(limit)} }

// Apply carries out an action of n permits on the state.
func (b *TokenBucket) Apply(action Action, state *BucketState, now stint.Instant, n int64, out *stint.Outcome) {
	b.apply(action, state, now, n, out)
}

// Grows is how long until Remaining grows, 0 when the bucket is full.
func (b *TokenBucket) Grows(state *BucketState, now stint.Instant) time.Duration {
	return micros(b.grows(state, now))
}

// Adopt takes over a state that another limit wrote: the whole permits it held, at
// most the new capacity; a full bucket stays full.
func (b *TokenBucket) Adopt(state BucketState, writer *TokenBucket, now stint.Instant) BucketState {
	if b.same(&writer.schedule) {
		return state
	}
	return b.adopt(state, &writer.schedule, now, b.capacity-writer.capacity)
}
