package algorithm

import _ "embed" // the twins

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

// Lua is the source of the five twins: each file defines one local table of
// functions, for a script that follows to use.
func Lua() string {
	return arithmeticLua + scheduleLua + tokenBucketLua + leakyBucketLua + fixedWindowLua +
		slidingWindowLogLua + slidingWindowCounterLua
}

// Rate returns a bucket's rate in lowest terms: permits per so many microseconds.
func (s *schedule) Rate() (permits, period int64) { return s.permits, s.period }
