package redisstore

import (
	"math/rand/v2"
	"time"
)

const (
	// farAway is the round trip from which a server is far away.
	farRoundTrip = 2 * sendGap
	// paceWindow is for how long the shortest round trip is remembered, at least; at most twice as long.
	paceWindow = 5 * time.Second
)

// pace says how much may be under way, by how long batches take. The shortest
// round trip of late is how far away the server is. What batches take on top is spent waiting,
// for the server or for a processor, which more work would only prolong. So when batches take longer,
// fewer and smaller ones leave, and what does not get its turn in time is refused as overload
// rather than found unanswered.
type pace struct {
	latest   time.Duration
	shortest [2]time.Duration // of this window and the one before; 0 for none
	until    time.Time        // the end of this window
	less     int              // how often batches are halved
}

// maxHalvings bounds how small batches become: a quarter of MaxBatch.
const maxHalvings = 2

// note notes how long a batch took that is back now.
func (p *pace) note(took time.Duration, now time.Time) {
	if now.After(p.until) {
		p.shortest = [2]time.Duration{took, p.shortest[0]}
		p.until = now.Add(paceWindow)
	}
	p.shortest[0] = min(p.shortest[0], took)
	p.latest = took
	if p.slow() {
		p.less = min(p.less+1, maxHalvings)
	} else {
		p.less = max(p.less-1, 0)
	}
}

// slow reports whether the latest batch took much longer than the distance explains.
func (p *pace) slow() bool { return p.latest > 2*p.distance()+sendGap }

// distance is the shortest round trip of late, 0 if there was none.
func (p *pace) distance() time.Duration {
	if p.shortest[1] == 0 {
		return p.shortest[0]
	}
	return min(p.shortest[0], p.shortest[1])
}

// far reports whether the server is far away.
func (p *pace) far() bool { return p.distance() > farRoundTrip }

// batches is how many may be under way, where standard is the number for a server that is
// near.
func (p *pace) maxInFlight(standard int) int {
	switch {
	case p.slow():
		return 1
	case p.far():
		return min(standard+int(p.distance()/sendGap), max(standard, maxInFlight))
	default:
		return standard
	}
}

// batch is how many operations may be in one batch, where most is the number while batches are
// quick.
func (p *pace) maxOperations(most int) int { return max(most>>p.less, 1) }

// jitter is a time between half of another and all of it, by chance, so that processes
// do not keep step.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2) //nolint:gosec // nobody gains by guessing it
}
