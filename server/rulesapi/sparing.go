package rulesapi

import (
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// sparing bounds the lines of one kind in the log, of which anybody can cause as many as they like. It is
// safe for concurrent use; make it with newSparing.
type sparing struct {
	bucket *algorithm.TokenBucket
	now    func() stint.Instant

	mu      sync.Mutex
	state   algorithm.BucketState
	leftOut int64 // since the last line
}

// newStrangers bounds the records of refused callers who are not known: ten at once, then one a second.
func newStrangers(now func() stint.Instant) *sparing {
	return newSparing(stint.TokenBucket(10, stint.PerSecond(1)), now)
}

// newAbsence bounds the lines about requests for rules that could not be read, as who shows them asks
// again and again: ten at once, then one in ten seconds.
func newAbsence(now func() stint.Instant) *sparing {
	return newSparing(stint.TokenBucket(10, stint.Every(10*time.Second)), now)
}

func newSparing(limit stint.Limit, now func() stint.Instant) *sparing {
	return &sparing{bucket: algorithm.NewTokenBucket(limit), now: now}
}

// admit reports whether a line is to be written, and how many were left out before it.
func (s *sparing) admit() (leftOut int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out stint.Outcome
	if s.bucket.Apply(algorithm.Take, &s.state, s.now(), 1, &out); !out.Allowed {
		s.leftOut++
		return 0, false
	}
	leftOut, s.leftOut = s.leftOut, 0
	return leftOut, true
}

// clock is the time of the process.
func clock() stint.Instant { return stint.Instant(time.Now().UnixMicro()) }
