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
		source += twins[a]
	}
	return source
}

var twins = map[stint.Algorithm]string{
	stint.AlgorithmTokenBucket:          tokenBucketLua,
	stint.AlgorithmLeakyBucket:          leakyBucketLua,
	stint.AlgorithmFixedWindow:          fixedWindowLua,
	stint.AlgorithmSlidingWindowLog:     slidingWindowLogLua,
	stint.AlgorithmSlidingWindowCounter: slidingWindowCounterLua,
}

// Rate returns a bucket's rate in lowest terms: permits per so many microseconds.
func (s *schedule) Rate() (permits, period int64) { return s.permits, s.period }

// Lasting is how long n permits take at the rate, in microseconds, rounded up.
func (s *schedule) Lasting(n int64) int64 { return s.lasting(n).ceil() }

// Needs is what take_stored of the buckets' twins is given to take n permits: how long they last, the rate's
// permits and how long the capacity lasts, in microseconds each with its rest.
func (s *schedule) Needs(n int64) []int64 {
	more := s.lasting(min(n, s.capacity+1)) // however many more, they don't fit
	return []int64{more.us, more.rest, s.permits, s.brim.us, s.brim.rest}
}
