package spans_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/spans"
)

// A limit renews itself within its window, nominally of its calendar, or in the time that its bucket takes to fill.
func TestSpan(t *testing.T) {
	for _, test := range []struct {
		limit stint.Limit
		want  time.Duration
	}{
		{stint.TokenBucket(100, stint.PerSecond(10)), 10 * time.Second},
		{stint.LeakyBucket(1_000_000_000, stint.Every(100*time.Millisecond)), 100_000_000 * time.Second},
		{stint.SlidingWindowLog(5, 90*time.Second), 90 * time.Second},
		{stint.CalendarWindow(5, stint.CalendarWeek, ""), 168 * time.Hour},
	} {
		if got := spans.Of(test.limit); got != test.want {
			t.Errorf("%v: %v, want %v", test.limit, got, test.want)
		}
	}
}
