package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// grant is a share of a client's permits that the server has charged, to be spent
// here. Only left changes.
type leaseChunk struct {
	left         atomic.Int64 // permits; closed once nothing may be spent any more
	size         int64
	renewAt      int64         // at so many left the next share is asked for
	sent         time.Duration // when it was asked for, by the local clock
	span         time.Duration // how long after that it may be spent
	receivedAt   time.Duration // when the answer came
	at           stint.Instant // the server's time of the decision
	outcomeAtEnd stint.Outcome // of the state with all of the share charged
}

// closed is what is left of a closed grant: less than anybody takes.
const closed = -1

// newGrant makes the grant that an answer brought. It may be spent for as long as most
// says, and ends with a window by the pessimistic reading of the local clock: it was
// sent before the server decided, and the clocks' rates differ by clockRates at most.
func newLeaseChunk(l *limit, q *chunkRequest, came, most time.Duration) *leaseChunk {
	g := &leaseChunk{size: q.granted, renewAt: q.granted / 2, sent: q.sent, span: most, receivedAt: came, at: q.decision.At, outcomeAtEnd: q.outs[0]}
	g.left.Store(q.granted)
	g.outcomeAtEnd.Remaining = max(0, g.outcomeAtEnd.Remaining-q.bulkAdmitted)
	g.outcomeAtEnd.ResetAfter += l.lasting(q.bulkAdmitted)
	if wait := g.outcomeAtEnd.ResetAfter; l.window != nil {
		g.span = min(most, wait-wait/clockRates)
	}
	return g
}

// fresh reports whether the grant may be spent at a local time.
func (g *leaseChunk) fresh(now time.Duration) bool {
	return g != nil && uint64(now-g.sent) < uint64(g.span)
}

// spend takes n permits, all or none, and says how many are left.
func (g *leaseChunk) spend(n int64) (left int64, ok bool) {
	for {
		left = g.left.Load()
		if left < n {
			return left, false
		}
		if g.left.CompareAndSwap(left, left-n) {
			return left - n, true
		}
	}
}

// close ends the grant, and returns what was not spent.
func (g *leaseChunk) close() (rest int64) { return max(0, g.left.Swap(closed)) }

// returnable reports whether giving back n permits at a local time can change the
// state: a bucket has not refilled them yet, a window has not ended.
func (g *leaseChunk) returnable(l *limit, n int64, now time.Duration) bool {
	until := g.outcomeAtEnd.ResetAfter
	if l.token != nil {
		until = l.lasting(n)
	}
	return n > 0 && now-g.receivedAt < until
}

// tell makes the decision of a take that left so many permits.
func (g *leaseChunk) decision(now time.Duration, left int64) stint.Decision {
	elapsed := now - g.sent
	return stint.Decision{
		Allowed: true, Source: stint.SourceLease, Limit: g.outcomeAtEnd.Limit, Remaining: g.outcomeAtEnd.Remaining + left,
		ResetAfter: max(0, g.outcomeAtEnd.ResetAfter-elapsed), At: g.at.Add(elapsed),
	}
}

// outcome is the outcome of a decision that the grant told.
func (g *leaseChunk) outcome(l *limit, d *stint.Decision) stint.Outcome {
	out := stint.Outcome{Allowed: true, Limit: d.Limit, Remaining: d.Remaining, ResetAfter: d.ResetAfter}
	out.GrowsAfter = out.ResetAfter
	if l.token != nil {
		out.GrowsAfter = min(l.lasting(1), out.ResetAfter)
	}
	return out
}

// lasting is how long a token bucket takes to refill n permits, rounded up; 0 of a
// window.
func (l *limit) lasting(n int64) time.Duration {
	if l.token == nil {
		return 0
	}
	return micros(l.token.Lasting(n))
}
