package algorithm

import (
	_ "embed" // the twins
	"slices"

	"github.com/stint-go/stint"
)

var (
	//go:embed arithmetic.lua
	arithmeticLua string
	//go:embed schedule.lua
	scheduleLua string
	//go:embed token_bucket.lua
	tokenBucketLua string
	//go:embed leaky_bucket.lua
	leakyBucketLua string
	//go:embed fixed_window.lua
	fixedWindowLua string
	//go:embed sliding_window_log.lua
	slidingWindowLogLua string
	//go:embed sliding_window_counter.lua
	slidingWindowCounterLua string
)

// Lua is the source of the twins of some algorithms, of all when none is named: each
// file defines one local table of functions, for a script that follows to use.
func Lua(algorithms ...stint.Algorithm) string {
	if len(algorithms) == 0 {
		algorithms = stint.Algorithms()
	}
	source := arithmeticLua
	if slices.Contains(algorithms, stint.AlgorithmTokenBucket) || slices.Contains(algorithms, stint.AlgorithmLeakyBucket) {
		source += scheduleLua
	}
	for _, a := range algorithms {
		source += twinSources[a]
	}
	return source
}

var twinSources = map[stint.Algorithm]string{
	stint.AlgorithmTokenBucket:          tokenBucketLua,
	stint.AlgorithmLeakyBucket:          leakyBucketLua,
	stint.AlgorithmFixedWindow:          fixedWindowLua,
	stint.AlgorithmSlidingWindowLog:     slidingWindowLogLua,
	stint.AlgorithmSlidingWindowCounter: slidingWindowCounterLua,
}

// Rate returns a bucket's rate in lowest terms: permits per so many microseconds.
func (s *schedule) Rate() (permits, period int64) { return s.permits, s.period }

// TimeOf is how long n permits take at the rate, in microseconds, rounded up.
func (s *schedule) TimeOf(n int64) int64 { return s.timeOf(n).ceil() }

// TakeStoredArgs are what take_stored of the buckets' twins is given to take n permits, so that keep
// more are left: how long they take, the rate's permits, and how long the capacity but for those takes,
// in microseconds each with its fraction.
func (s *schedule) TakeStoredArgs(n, keep int64) []int64 {
	more, room := s.timeOf(min(n, s.capacity+1)), s.capacityTime // however many more, they don't fit
	if keep > 0 {
		room = s.timeOf(max(0, s.capacity-keep))
	}
	return []int64{more.us, more.frac, s.permits, room.us, room.frac}
}
