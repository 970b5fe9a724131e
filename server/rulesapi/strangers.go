package rulesapi

import (
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// strangers bounds the records of refused callers who are not known: anybody can have as many
// requests refused as they like, and the log has no such room. Ten records are
// written at once, then one a second. It is safe for concurrent use; make it with newStrangers.
type strangers struct {
	bucket *algorithm.TokenBucket
	now    func() stint.Instant

	mu      sync.Mutex
	state   algorithm.BucketState
	leftOut int64 // since the last record
}

func newStrangers(now func() stint.Instant) *strangers {
	const atOnce = 10
	return &strangers{bucket: algorithm.NewTokenBucket(stint.TokenBucket(atOnce, stint.PerSecond(1))), now: now}
}

// admit reports whether a record is to be written, and how many were left out before it.
func (s *strangers) admit() (leftOut int64, ok bool) {
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
