package redisstore

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// machine is a limit with its algorithm: one of the pointers is set, none for a log,
// whose outcomes the script answers.
type machine struct {
	limit   stint.Limit
	token   *algorithm.TokenBucket
	leaky   *algorithm.LeakyBucket
	window  *algorithm.FixedWindow
	counter *algorithm.SlidingWindowCounter
	log     bool
}

// state is the state of a fixed-size algorithm; that of the others is not used.
type state struct {
	bucket  algorithm.BucketState
	window  algorithm.WindowState
	counter algorithm.CounterState
}

func newMachine(limit stint.Limit) machine {
	m := machine{limit: limit}
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket:
		m.token = algorithm.NewTokenBucket(limit)
	case stint.AlgorithmLeakyBucket:
		m.leaky = algorithm.NewLeakyBucket(limit)
	case stint.AlgorithmFixedWindow:
		m.window = algorithm.NewFixedWindow(limit)
	case stint.AlgorithmSlidingWindowCounter:
		m.counter = algorithm.NewSlidingWindowCounter(limit)
	case stint.AlgorithmSlidingWindowLog:
		m.log = true
	}
	return m
}

// apply carries out an action on a state, as the script did or would.
func (m *machine) apply(action algorithm.Action, s *state, now stint.Instant, n int64, out *stint.Outcome) {
	switch {
	case m.token != nil:
		m.token.Apply(action, &s.bucket, now, n, out)
	case m.leaky != nil:
		m.leaky.Apply(action, &s.bucket, now, n, out)
	case m.window != nil:
		m.window.Apply(action, &s.window, now, n, out)
	case m.counter != nil:
		m.counter.Apply(action, &s.counter, now, n, out)
	}
}

// grows is how long until Remaining grows.
func (m *machine) grows(s *state, now stint.Instant) time.Duration {
	switch {
	case m.token != nil:
		return m.token.Grows(&s.bucket, now)
	case m.leaky != nil:
		return m.leaky.Grows(&s.bucket, now)
	case m.window != nil:
		return m.window.Grows(&s.window, now)
	case m.counter != nil:
		return m.counter.Grows(&s.counter, now)
	}
	return 0
}

// admit takes n permits k times, one after another, as often as they fit, and returns
// how often.
func (m *machine) admit(s *state, now stint.Instant, n, k int64) int64 {
	switch {
	case m.token != nil:
		return m.token.Admit(&s.bucket, now, n, k)
	case m.leaky != nil:
		return m.leaky.Admit(&s.bucket, now, n, k)
	case m.window != nil:
		return m.window.Admit(&s.window, now, n, k)
	case m.counter != nil:
		return m.counter.Admit(&s.counter, now, n, k)
	}
	return 0
}

// release gives back n permits that were taken at an instant.
func (m *machine) refund(s *state, now stint.Instant, n int64, taken stint.Instant) {
	switch {
	case m.token != nil:
		m.token.Release(&s.bucket, now, n, taken)
	case m.leaky != nil:
		m.leaky.Release(&s.bucket, now, n, taken)
	case m.window != nil:
		m.window.Release(&s.window, now, n, taken)
	case m.counter != nil:
		m.counter.Release(&s.counter, now, n, taken)
	}
}

// lapse gives back n permits that were leased at an instant and not spent.
func (m *machine) returnLease(s *state, now stint.Instant, n int64, leased stint.Instant) {
	if m.token != nil {
		m.token.Lapse(&s.bucket, now, n, leased)
		return
	}
	m.refund(s, now, n, leased)
}

// reset makes a state as new and tells so.
func (m *machine) reset(s *state, out *stint.Outcome) {
	*s = state{}
	*out = stint.Outcome{Allowed: true, Limit: m.limit.Capacity, Remaining: m.limit.Capacity}
}

// load makes a state of its three stored numbers, which a limit with the given
// parameters wrote, and adopts it.
func (m *machine) load(s *state, now stint.Instant, numbers [3]int64, writer string, mine bool) {
	at := stint.Instant(numbers[0])
	switch {
	case m.token != nil:
		s.bucket = algorithm.BucketState{Last: at, Due: at + stint.Instant(numbers[1]), Rest: numbers[2]}
		if !mine {
			s.bucket = m.token.Adopt(s.bucket, algorithm.NewTokenBucket(bucketOf(writer)), now)
		}
	case m.leaky != nil:
		s.bucket = algorithm.BucketState{Last: at, Due: at + stint.Instant(numbers[1]), Rest: numbers[2]}
		if !mine {
			s.bucket = m.leaky.Adopt(s.bucket, algorithm.NewLeakyBucket(bucketOf(writer)), now)
		}
	case m.window != nil:
		length := numbers[1]
		if length == 0 {
			length = windowOf(writer)
		}
		s.window = algorithm.WindowState{Start: at, End: at + stint.Instant(length), Count: numbers[2]}
	case m.counter != nil:
		s.counter = algorithm.CounterState{Start: at, Previous: numbers[1], Current: numbers[2]}
		if !mine {
			window := micros(windowOf(writer))
			s.counter = m.counter.Adopt(s.counter, algorithm.NewSlidingWindowCounter(stint.Limit{Window: window}), now)
		}
	}
}

// widthsBytes is how many bytes of parameters say the widths.
const widthsBytes = 3

// bucketOf is the bucket of a head's parameters, as far as they tell.
func bucketOf(parameters string) stint.Limit {
	text := parameters[widthsBytes:]
	return stint.Limit{
		Capacity: unsigned(text[:4]),
		Rate:     stint.Rate{Permits: unsigned(text[4:8]), Period: micros(unsigned(text[8:14]))},
	}
}

// windowOf is the window of a head's parameters in microseconds.
func windowOf(parameters string) int64 { return unsigned(parameters[widthsBytes : widthsBytes+6]) }

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
