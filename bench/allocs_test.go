package bench

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// TestDecisionsAllocateNothing holds the memory store to its budget on the decision
// path, admitted and denied, once a client is known.
func TestDecisionsAllocateNothing(t *testing.T) {
	const runs, window = 1000, 366 * 24 * time.Hour
	limits := []struct {
		name string
		make func(permits int64) stint.Limit
	}{
		{"token bucket", func(n int64) stint.Limit { return stint.TokenBucket(n, stint.PerDay(1)) }},
		{"leaky bucket", func(n int64) stint.Limit { return stint.LeakyBucket(n, stint.PerDay(1)) }},
		{"fixed window", func(n int64) stint.Limit { return stint.FixedWindow(n, window) }},
		{"sliding window counter", func(n int64) stint.Limit { return stint.SlidingWindowCounter(n, window) }},
	}
	for _, limit := range limits {
		t.Run(limit.name, func(t *testing.T) {
			requireNoAllocs(t, newStintLimiter(t, limit.make(runs+2)), runs, true)
			requireNoAllocs(t, newStintLimiter(t, limit.make(1)), runs, false)
		})
	}
	// A log grows with what it remembers. Its denials are free, and so are its
	// admissions when they take the place of entries that have left.
	t.Run("sliding window log", func(t *testing.T) {
		requireNoAllocs(t, newStintLimiter(t, stint.SlidingWindowLog(1, window)), runs, false)
		now := time.UnixMicro(1_790_000_000_000_000)
		l := newLimiterOn(t, memstore.Config{Now: func() time.Time {
			now = now.Add(time.Second)
			return now
		}}, stint.SlidingWindowLog(100, time.Minute))
		for range 1000 {
			must.Get(l.Allow(t.Context(), "user:42"))(t)
		}
		requireNoAllocs(t, l, runs, true)
	})
}

func requireNoAllocs(t *testing.T, l *stint.Limiter, runs int, want bool) {
	t.Helper()
	ctx := t.Context()
	if d, err := l.Allow(ctx, "user:42"); err != nil || !d.Allowed {
		t.Fatalf("the first decision is %+v, error %v", d, err)
	}
	surprises := 0
	allocs := testing.AllocsPerRun(runs, func() {
		if d, err := l.Allow(ctx, "user:42"); err != nil || d.Allowed != want {
			surprises++
		}
	})
	if allocs != 0 {
		t.Errorf("allowed %t: %v allocations per decision, want 0", want, allocs)
	}
	if surprises != 0 {
		t.Errorf("%d of %d decisions were not %t", surprises, runs, want)
	}
}
