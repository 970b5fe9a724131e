package algorithm_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// A state that another version of the limit wrote is the limit's own once the limit has changed it: what it says of
// waits is what its numbers say.
func TestWrittenIsOwn(t *testing.T) {
	for name, limits := range map[string][2]stint.Limit{ // the writer and the reader
		"bucket":  {stint.TokenBucket(10, stint.Per(1, 20*time.Second)), stint.TokenBucket(10, stint.Per(1, time.Minute))},
		"counter": {stint.SlidingWindowCounter(10, time.Minute), stint.SlidingWindowCounter(10, time.Hour)},
	} {
		writer, m := algorithm.NewMachine(limits[0]), algorithm.NewMachine(limits[1])
		for how, change := range map[string]func(*algorithm.State, stint.Instant) bool{
			"apply": func(s *algorithm.State, now stint.Instant) bool {
				return m.Apply(algorithm.Take, s, now, 4, 0, new(stint.Outcome))
			},
			"admit":  func(s *algorithm.State, now stint.Instant) bool { return m.Admit(s, now, 1, 0, 4) == 4 },
			"refund": func(s *algorithm.State, now stint.Instant) bool { return m.Refund(s, now, 1, now) },
			"lease":  func(s *algorithm.State, now stint.Instant) bool { return m.ReturnLease(s, now, 1, now) },
			"nothing": func(s *algorithm.State, now stint.Instant) bool {
				m.Apply(algorithm.Peek, s, now, 1, 0, new(stint.Outcome))
				return true
			},
		} {
			now := year2000 + 1
			var state algorithm.State
			writer.Apply(algorithm.Take, &state, now, 9, 0, new(stint.Outcome))
			now = now.Add(98 * time.Second)
			m.Adopt(&state, &writer)
			m.Read(&state, now)
			if !change(&state, now) {
				t.Errorf("%s, %s: nothing was changed: %+v", name, how, state)
			}
			own := algorithm.State{Numbers: state.Numbers}
			got, want := m.GrowsAfter(&state, now, 0, 9), m.GrowsAfter(&own, now, 0, 9)
			if (got == want) != (how != "nothing") {
				t.Errorf("%s, %s: all remains after %s, of its numbers after %s", name, how, got, want)
			}
		}
	}
}
