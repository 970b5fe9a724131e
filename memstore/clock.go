package memstore

import (
	"time"

	"github.com/stint-go/stint"
)

// A state's decisions have times that do not run back, in the order in which they are made. A clock
// that is given by Config.Now, which may be set back, is read while the states are held.
//
// The process's own clock is read before: reading it waits for all that the processor has under
// way, and so would wait for a slot to come from memory. Who reads it early may decide late. So
// each shard knows the latest time of its decisions, and none is earlier: latest' = max(latest, read).
//
// That clock is the monotonic one, counted from an anchor. A machine that boots in 1970, or sleeps
// over midnight, corrects its wall clock later: once a second the two are compared, and where they
// have drifted apart by more than a second there is a new anchor. Limits see a step, as those on
// Redis do when its clock is set.

// An anchor is a reading of both clocks.
type anchor struct {
	at     time.Time     // by the monotonic clock
	origin stint.Instant // by the wall clock
	due    time.Duration // since at, when the clocks are to be compared
}

const (
	// lookEvery is how often the clocks are compared, when decisions are made.
	lookEvery = time.Second
	// maxDrift is how far they may be apart. A shorter step is what time servers do to a clock that
	// is not quite right, and changes no limit.
	maxDrift = time.Second
)

// What a clock may show: a state that nobody has touched is of the epoch, and later times are no exact numbers in the
// scripts of other stores.
var earliest, latest = time.UnixMicro(0), time.UnixMicro(1 << 53)

func newAnchor(now time.Time) *anchor {
	return &anchor{now, stint.Instant(now.UnixMicro()), lookEvery}
}

// look compares the clocks, and returns the anchor to count from.
func (a *anchor) look(now time.Time) *anchor {
	passed := now.Sub(a.at)
	drift := stint.Instant(now.UnixMicro()) - a.origin.Add(passed)
	if most := stint.Instant(maxDrift.Microseconds()); drift < -most || drift > most {
		return newAnchor(now)
	}
	return &anchor{a.at, a.origin, passed + lookEvery}
}

// readClock is the first half of reading the clock, before a state is held.
func (s *Store) readClock() (read stint.Instant) {
	if s.now != nil {
		return 0
	}
	a := s.anchor.Load()
	passed := time.Since(a.at)
	if passed >= a.due {
		return s.lookAtClocks(a)
	}
	return a.origin + stint.Instant(passed/time.Microsecond)
}

// lookAtClocks is readClock when it is time to compare the clocks.
func (s *Store) lookAtClocks(a *anchor) stint.Instant {
	s.anchor.CompareAndSwap(a, a.look(time.Now()))
	a = s.anchor.Load()
	return a.origin.Add(time.Since(a.at))
}

// decidedAt is the second half, while a state of the shard is held: the time of its decision.
func (s *Store) decidedAt(t *shard, read stint.Instant) stint.Instant {
	if s.now == nil && stint.Instant(t.latest.Load()) == read { // the same microsecond
		return read
	}
	return s.decidedLater(t, read)
}

// decidedLater is decidedAt but for the shortest case, which is inlined.
func (s *Store) decidedLater(t *shard, read stint.Instant) stint.Instant {
	if s.now != nil {
		return stint.Instant(s.now().UnixMicro())
	}
	return t.notBefore(read)
}

// decidedTogether is decidedAt for states of several shards, which are locked. They have one time.
func (s *Store) decidedTogether(shards []uint64) (now stint.Instant) {
	if s.now != nil {
		return stint.Instant(s.now().UnixMicro())
	}
	now = s.readClock()
	for _, i := range shards {
		now = s.shards[i].notBefore(now)
	}
	if len(shards) > 1 { // those before a later one
		for _, i := range shards {
			s.shards[i].notBefore(now)
		}
	}
	return now
}

// notBefore notes the time of a decision, and returns that time or the latest that there was. A
// latest time that is far ahead is one from before the clock was set back.
func (t *shard) notBefore(now stint.Instant) stint.Instant {
	for {
		latest := stint.Instant(t.latest.Load())
		if now <= latest && latest-now <= stint.Instant(maxDrift.Microseconds()) {
			return latest
		}
		if t.latest.CompareAndSwap(int64(latest), int64(now)) {
			return now
		}
	}
}
