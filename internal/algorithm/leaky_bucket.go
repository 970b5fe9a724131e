package algorithm

import (
	"github.com/stint-go/stint"
)

// leakyBucket is a queue that drains at a constant rate. A request's turn is the later of now and
// the previous turn plus period/permits; it leaves the queue one such step after its turn. A
// request is admitted while at most capacity permits, its own included, are in the queue. Idle time
// earns no credit. It is immutable and safe for concurrent use.
type leakyBucket struct{ schedule }

// newLeakyBucket prepares a valid limit.
func newLeakyBucket(limit stint.Limit) *leakyBucket { return &leakyBucket{newSchedule(limit)} }

// apply carries out an action of n permits on the state, so that keep more find room in the queue.
// Delay is the time until the turn of the first permit, rounded up. A refund is not for leaky
// buckets.
func (b *leakyBucket) apply(action Action, state *bucketState, now stint.Instant, n, keep int64, out *stint.Outcome) {
	turn := b.schedule.apply(action, state, now, n, keep, out)
	if out.Allowed && (action == Take || action == Peek) {
		out.Delay = micros(turn.ceil())
	}
}
