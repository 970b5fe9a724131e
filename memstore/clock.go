package memstore

import (
	"time"

	"github.com/stint-go/stint"
)

// A state's decisions have times that do not run back, in the order in which they are made. A clock that is given by
// Config.Now, which may be set back, is read while the states are held.
//
// The process's own clock does not run back, and is read before: reading it waits for all that the processor has under
// way, and so would wait for a slot to come from memory. Who reads it early may decide late. So each shard knows
// the latest time of its decisions, and none is earlier: latest' = max(latest, read).

// readClock is the first half of reading the clock, before a state is held.
func (s *Store) readClock() (read stint.Instant) {
	if s.now != nil {
		return 0
	}
	return s.origin + stint.Instant(time.Since(s.anchor)/time.Microsecond)
}

// decidedAt is the second half, while a state of the shard is held: the time of its decision.
func (s *Store) decidedAt(t *shard, read stint.Instant) stint.Instant {
	if s.now != nil {
		return s.now()
	}
	return t.notBefore(read)
}

// decidedTogether is decidedAt for states of several shards, which are locked. They have one time.
func (s *Store) decidedTogether(shards []uint64) (now stint.Instant) {
	if s.now != nil {
		return s.now()
	}
	now = s.readClock()
	if len(shards) == 1 { // all are of one client
		return s.shards[shards[0]].notBefore(now)
	}
	for _, i := range shards {
		now = max(now, stint.Instant(s.shards[i].latest.Load()))
	}
	for _, i := range shards {
		s.shards[i].notBefore(now)
	}
	return now
}

// notBefore notes the time of a decision, and returns that time or the latest that there was.
func (t *shard) notBefore(now stint.Instant) stint.Instant {
	for {
		latest := t.latest.Load()
		if int64(now) <= latest {
			return stint.Instant(latest)
		}
		if t.latest.CompareAndSwap(latest, int64(now)) {
			return now
		}
	}
}
