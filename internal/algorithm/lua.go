package algorithm

import (
	_ "embed" // the twins
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
)

var (
	//go:embed arithmetic.lua
	arithmeticLua string
	//go:embed schedule.lua
	scheduleLua string
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
		algorithms = notation.Algorithms()
	}
	source := arithmeticLua
	for _, name := range Twins(algorithms...) {
		source += twinSources[name]
	}
	return source
}

// Twins are the names of the tables of the twins of some algorithms.
func Twins(algorithms ...stint.Algorithm) (names []string) {
	for _, a := range algorithms {
		if name := twinNames[a]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

var twinNames = map[stint.Algorithm]string{
	stint.AlgorithmTokenBucket:          "schedule", // one twin for both buckets
	stint.AlgorithmLeakyBucket:          "schedule",
	stint.AlgorithmFixedWindow:          "fixed_window",
	stint.AlgorithmSlidingWindowLog:     "sliding_window_log",
	stint.AlgorithmSlidingWindowCounter: "sliding_window_counter",
}

var twinSources = map[string]string{
	"schedule":               scheduleLua,
	"fixed_window":           fixedWindowLua,
	"sliding_window_log":     slidingWindowLogLua,
	"sliding_window_counter": slidingWindowCounterLua,
}

// Rate returns a bucket's rate in lowest terms: permits per so many microseconds.
func (m *Machine) Rate() (permits, period int64) { return m.bucket.permits, m.bucket.period }

// TimeOf is how long n permits take at a bucket's rate, in microseconds, rounded up; 0 of a limit that has none.
func (m *Machine) TimeOf(n int64) int64 {
	if m.bucket == nil {
		return 0
	}
	return m.bucket.timeOf(n).ceil()
}

// Window returns a fixed window's window that holds t.
func (m *Machine) Window(t stint.Instant) (start, end stint.Instant) { return m.window.window(t) }

// Step is of what the starts of a fixed window's windows are multiples, in microseconds; 0 with a calendar.
func (m *Machine) Step() int64 { return m.window.step }

// TakeStoredArgs are what take_stored of the twins is given to take n permits, so that keep more are left. Of a bucket:
// how long they take, the rate's permits, and how long the capacity but for those to keep takes, in microseconds each
// with its fraction. Of a window or a counter: n, how much may be counted, and the length in microseconds; of a window,
// too, of what its starts are multiples.
func (m *Machine) TakeStoredArgs(n, keep int64) []int64 {
	s := m.bucket
	switch {
	case m.window != nil:
		return []int64{n, m.capacity - keep, m.window.length, m.window.step, 0}
	case m.counter != nil:
		return []int64{n, m.capacity - keep, m.counter.window, 0, 0}
	case s == nil:
		return []int64{n, m.capacity - keep, 0, 0, 0}
	}
	more, room := s.timeOf(min(n, s.capacity+1)), s.capacityTime // however many more, they don't fit
	if keep > 0 {
		room = s.timeOf(max(0, s.capacity-keep))
	}
	return []int64{more.us, more.frac, s.permits, room.us, room.frac}
}
