package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// A log that becomes coarser again and again takes less memory, admits at most what an
// exact one does in every span of a window, and forgets everything a window later.
func TestCoarsen(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		limit, window := 1+random.Int64N(40), time.Duration(1+random.Int64N(1000))*time.Millisecond
		m := algorithm.NewMachine(stint.SlidingWindowLog(limit, window))
		var state algorithm.State
		type taken struct {
			at      stint.Instant
			permits int64
		}
		var admitted []taken
		now := stint.Instant(1_790_000_000_000_000)
		for range 300 {
			now = now.Add(time.Duration(random.Int64N(int64(window)/10 + 1)).Truncate(time.Microsecond))
			if random.IntN(8) == 0 {
				before := state.Log.Records()
				if smaller := state.Log.Coarsen(); smaller != (state.Log.Records() < before) {
					t.Fatalf("%d records became %d, and it says %t", before, state.Log.Records(), smaller)
				}
			}
			var out stint.Outcome
			n := 1 + random.Int64N(3)
			m.Read(&state, now)
			if m.Apply(algorithm.Take, &state, now, n, 0, &out); !out.Allowed {
				continue
			}
			admitted = append(admitted, taken{now, n})
			var sum int64
			for _, a := range admitted {
				if a.at > now.Add(-window) {
					sum += a.permits
				}
			}
			if sum > limit {
				t.Fatalf("%d admitted within a window, the limit is %d", sum, limit)
			}
		}
		var out stint.Outcome
		if m.Apply(algorithm.Peek, &state, now.Add(window), 1, 0, &out); out.Remaining != limit {
			t.Fatalf("%d of %d remain a window later", out.Remaining, limit)
		}
	}
}
