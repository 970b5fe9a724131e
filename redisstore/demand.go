package redisstore

import "time"

// demand is the recent rate of one client in this process.
type rateEstimate struct {
	rate       float64       // permits per second
	counted    int64         // permits up to seen
	observedAt time.Duration // by the local clock
}

// observe brings the rate up to date: taken permits have been asked for in all. A span
// of half a lease's time counts one half, so that the rate follows within a few of
// them.
func (d *rateEstimate) observe(now time.Duration, taken int64, half time.Duration) {
	span := now - d.observedAt
	if span <= 0 {
		return
	}
	weight := float64(span) / float64(span+half)
	d.rate += weight * (float64(taken-d.counted)/span.Seconds() - d.rate)
	d.counted, d.observedAt = taken, now
}

// shareOf is the part of a limit's capacity that a share sized by the rate has at most,
// so that a process with its two shares at hand leaves room for others.
const shareOf = 16

// size is how many permits to ask for; 0 when the client is so slow that a share would
// only be given back. Sized by the rate, a share lasts for half of a lease's time: the
// next is asked for when half of it is spent, so it is used up after three quarters.
// The lease is locked.
func (l *lease) size(now time.Duration) int64 {
	limit := &l.limit.limit
	if limit.Lease > 0 {
		return limit.Lease
	}
	half := l.leases.time / 2
	taken := l.spent + l.direct.Load()
	if g := l.current.Load(); g != nil {
		taken += g.size - max(0, g.left.Load())
	}
	l.estimate.observe(now, taken, half)
	return min(int64(l.estimate.rate*half.Seconds()), max(1, limit.Capacity/shareOf))
}
