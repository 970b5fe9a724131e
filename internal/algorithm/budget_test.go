package algorithm_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/notation"
)

// applier carries out actions on one state of an algorithm.
type applier func(action algorithm.Action, now stint.Instant, n int64, out *stint.Outcome)

func applierOf(limit stint.Limit) applier {
	var state algorithm.State
	m := algorithm.NewMachine(limit)
	return func(action algorithm.Action, now stint.Instant, n int64, out *stint.Outcome) {
		m.Apply(action, &state, now, n, 0, out)
		if action == algorithm.Peek {
			out.GrowsAfter = m.GrowsAfter(&state, now, 0, out.Remaining)
		}
	}
}

// appliers are the five algorithms, with a limit of 100 per second each.
func appliers() map[string]applier {
	return map[string]applier{
		"token_bucket":           applierOf(stint.TokenBucket(100, stint.PerSecond(100))),
		"leaky_bucket":           applierOf(stint.LeakyBucket(100, stint.PerSecond(100))),
		"fixed_window":           applierOf(stint.FixedWindow(100, time.Second)),
		"calendar_window":        applierOf(stint.CalendarWindow(100, stint.CalendarDay, "Europe/Berlin")),
		"sliding_window_counter": applierOf(stint.SlidingWindowCounter(100, time.Second)),
		"sliding_window_log":     applierOf(stint.SlidingWindowLog(100, time.Second)),
	}
}

// The transitions of the fixed-size algorithms don't allocate, whatever they answer;
// neither does the log's where it writes nothing.
func TestApplyDoesNotAllocate(t *testing.T) {
	for _, a := range notation.Algorithms() {
		if name := strings.ToLower(a.String()); appliers()[name] == nil {
			t.Errorf("%s is not measured", name)
		}
	}
	for name, apply := range appliers() {
		t.Run(name, func(t *testing.T) {
			now := year2100
			var out stint.Outcome
			allowed, denied := 0, 0
			step := func(action algorithm.Action, n int64) {
				apply(action, now, n, &out)
				if out.Allowed {
					allowed++
				} else {
					denied++
				}
			}
			if name == "sliding_window_log" {
				step(algorithm.Take, 60)
			}
			allocations := testing.AllocsPerRun(500, func() {
				if name != "sliding_window_log" {
					now += 300_000
					step(algorithm.Take, 20)
					step(algorithm.Settle, 30)
					step(algorithm.Settle, -10)
				}
				step(algorithm.Take, 90)
				step(algorithm.Peek, 1)
				step(algorithm.Deny, 1)
			})
			if allocations != 0 {
				t.Errorf("%v allocations in a few steps, want none", allocations)
			}
			if allowed == 0 || denied == 0 {
				t.Errorf("%d allowed and %d denied: the steps don't show both", allowed, denied)
			}
		})
	}
}

// A log that slides on and on takes memory for what is in the window, and allocates
// as it grows, not with each step.
func TestLogReusesItsRecords(t *testing.T) {
	const limit = 100
	var state algorithm.State
	m := algorithm.NewMachine(stint.SlidingWindowLog(limit, time.Second))
	now := year2100
	var out stint.Outcome
	fill := func() {
		for range 10 * limit {
			now += 10_000
			m.Apply(algorithm.Take, &state, now, 1, 0, &out)
			if !out.Allowed {
				t.Fatalf("one each hundredth of the window is denied: %+v", out)
			}
		}
	}
	fill()
	if allocations := testing.AllocsPerRun(20, fill); allocations > 10 {
		t.Errorf("%v allocations in %d steps", allocations, 10*limit)
	}
	if room := state.Log.Records(); room > 4*limit {
		t.Errorf("room for %d records, of which at most %d are in use", room, limit)
	}
}

func BenchmarkApply(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(appliers())) {
		for _, answer := range []struct {
			name string
			wait stint.Instant // between two requests: 10 ms are the rate
		}{{"allowed", 10_000}, {"denied", 10}} {
			b.Run("alg="+name+"/answer="+answer.name, func(b *testing.B) {
				b.ReportAllocs()
				apply := appliers()[name]
				now := year2000
				var out stint.Outcome
				for b.Loop() {
					now += answer.wait
					apply(algorithm.Take, now, 1, &out)
				}
			})
		}
	}
}
