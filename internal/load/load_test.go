package load

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Each question of an open loop is asked once, when it is due, and those of a closed loop by equal shares; Length ends both.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		plan Plan
		want int
	}{
		"open, by questions":         {Plan{Rate: stint.PerSecond(7), Length: time.Hour, Questions: 11}, 11},
		"open, by length":            {Plan{Rate: stint.PerSecond(7), Length: time.Second, Questions: 1000}, 7},
		"open, a part of a period":   {Plan{Rate: stint.PerMinute(60), Length: 1500 * time.Millisecond}, 2},
		"closed, by questions":       {Plan{Length: time.Hour, Questions: 11}, 11},
		"closed, by length":          {Plan{Length: 950 * time.Millisecond}, 30},
		"closed, fewer than callers": {Plan{Questions: 2}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			start := time.Now()
			c.plan.Callers, c.plan.Sleep = 3, func(d time.Duration) { <-time.After(d) }
			c.plan.Ask = func(_, i int, due time.Time) {
				asked.Add(1)
				if want := start.Add(c.plan.Rate.Period * time.Duration(i) / time.Duration(max(c.plan.Rate.Permits, 1))); c.plan.Rate.Permits > 0 && (!due.Equal(want) || time.Now().Before(due)) {
					t.Errorf("%s: question %d at %v, due %v; want %v", name, i, time.Now(), due, want)
				}
				<-time.After(100 * time.Millisecond)
			}
			c.plan.Run(t.Context())
			if n := int(asked.Load()); n != c.want {
				t.Errorf("%s: %d questions; want %d", name, n, c.want)
			}
		})
	}
}

// A context ends an open loop before its next question is due.
func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := Plan{Callers: 1, Rate: stint.Per(1, time.Hour), Length: 24 * time.Hour, Ask: func(int, int, time.Time) { cancel() }}
	p.Run(ctx)
}
