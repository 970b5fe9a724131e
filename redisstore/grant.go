package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// grant is a share of a client's permits that the server has charged, to be spent
// here. Only left changes.
type grant struct {
	left    atomic.Int64 // permits; closed once nothing may be spent any more
	granted int64
	half    int64         // at so many left the next share is asked for
	sent    time.Duration // when it was asked for, by the local clock
	span    time.Duration // how long after that it may be spent
	came    time.Duration // when the answer came
	at      stint.Instant // the server's time of the decision
	told    stint.Outcome // of the state with all of the share charged
}

// closed is what is left of a closed grant: less than anybody takes.
const closed = -1

// newGrant makes the grant that an answer brought. It may be spent for as long as most
// says, and ends with a window by the pessimistic reading of the local clock: it was
// sent before the server decided, and the clocks' rates differ by clockRates at most.
func newGrant(l *limit, q *request, came, most time.Duration) *grant {
	g := &grant{granted: q.granted, half: q.granted / 2, sent: q.sent, span: most, came: came, at: q.decision.At, told: q.outs[0]}
	g.left.Store(q.granted)
	g.told.Remaining = max(0, g.told.Remaining-q.more)
	g.told.ResetAfter += l.lasting(q.more)
	if wait := g.told.ResetAfter; l.window != nil {
		g.span = min(most, wait-wait/clockRates)
	}
	return g
}

// fresh reports whether the grant may be spent at a local time.
func (g *grant) fresh(now time.Duration) bool {
	return g != nil && uint64(now-g.sent) < uint64(g.span)
}

// spend takes n permits, all or none, and says how many are left.
func (g *grant) spend(n int64) (left int64, ok bool) {
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
func (g *grant) close() (rest int64) { return max(0, g.left.Swap(closed)) }

// returnable reports whether giving back n permits at a local time can change the
// state: a bucket has not refilled them yet, a window has not ended.
func (g *grant) returnable(l *limit, n int64, now time.Duration) bool {
	until := g.told.ResetAfter
	if l.token != nil {
		until = l.lasting(n)
	}
	return n > 0 && now-g.came < until
}

// tell makes the decision of a take that left so many permits.
func (g *grant) tell(now time.Duration, left int64) stint.Decision {
	elapsed := now - g.sent
	return stint.Decision{
		Allowed: true, Source: stint.SourceLease, Limit: g.told.Limit, Remaining: g.told.Remaining + left,
		ResetAfter: max(0, g.told.ResetAfter-elapsed), At: g.at.Add(elapsed),
	}
}

// outcome is the outcome of a decision that the grant told.
func (g *grant) outcome(l *limit, d *stint.Decision) stint.Outcome {
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
