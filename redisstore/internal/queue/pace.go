package queue

import (
	"cmp"
	"time"
)

const (
	// farRoundTrip is the round trip from which a server is far away. A batch that is full takes
	// the server a millisecond.
	farRoundTrip = 4 * time.Millisecond
	// sendsPerTrip is how many batches are sent within a round trip to a server far away: a call then
	// waits for 1/32 of it on average. Each batch costs the server some 20 microseconds by itself.
	sendsPerTrip = 16
	// slowBy is what a batch may take beyond twice the distance.
	slowBy = 10 * time.Millisecond
	// paceWindow is for how long the shortest round trip is remembered, at least; at most twice as long.
	paceWindow = 5 * time.Second
	// maxHalvings bounds how small batches become: a quarter of MaxBatch.
	maxHalvings = 2
)

// pace says how much may be in flight, by how long batches take. The shortest
// round trip of late is how far away the server is. The time that batches take beyond it is spent waiting,
// for the server or for a processor, which more work would only prolong. So when batches take longer,
// fewer and smaller ones are sent, and what does not get its turn in time is refused as overload
// rather than found unanswered.
type pace struct {
	fixed              bool // whether inFlight and maxBatch always hold
	inFlight, maxBatch int  // while the server is near and batches are quick

	latest   time.Duration
	shortest [2]time.Duration // of this window and the one before; 0 for none
	until    time.Time        // the end of this window
	halvings int              // how often batches are halved
}

// DefaultInFlight is how many batches are in flight at most to a server that is near.
const DefaultInFlight = 2

func newPace(c *Config) pace {
	return pace{fixed: c.InFlight != 0, inFlight: cmp.Or(c.InFlight, DefaultInFlight), maxBatch: c.MaxBatch}
}

// note notes how long a batch took whose reply has come now.
func (p *pace) note(took time.Duration, now time.Time) {
	if now.After(p.until) {
		p.shortest = [2]time.Duration{took, p.shortest[0]}
		p.until = now.Add(paceWindow)
	}
	p.shortest[0] = min(p.shortest[0], took)
	p.latest = took
	if p.slow() {
		p.halvings = min(p.halvings+1, maxHalvings)
	} else {
		p.halvings = max(p.halvings-1, 0)
	}
}

// slow reports whether the latest batch took much longer than the distance explains.
func (p *pace) slow() bool { return p.latest > 2*p.distance()+slowBy }

// distance is the shortest round trip of late, 0 if there was none.
func (p *pace) distance() time.Duration {
	if p.shortest[1] == 0 {
		return p.shortest[0]
	}
	return min(p.shortest[0], p.shortest[1])
}

// far reports whether a batch is sent every gap, since the server is far away.
func (p *pace) far() bool { return !p.fixed && p.distance() > farRoundTrip }

// gap is the time between two batches to a server far away.
func (p *pace) gap() time.Duration { return p.distance() / sendsPerTrip }

// maxInFlight is how many batches may be in flight.
func (p *pace) maxInFlight() int {
	switch {
	case p.fixed:
		return p.inFlight
	case p.slow():
		return 1
	case p.far():
		return p.inFlight + sendsPerTrip
	default:
		return p.inFlight
	}
}

// maxLimits is how many limits there may be in one batch.
func (p *pace) maxLimits() int {
	if p.fixed {
		return p.maxBatch
	}
	return max(p.maxBatch>>p.halvings, 1)
}
