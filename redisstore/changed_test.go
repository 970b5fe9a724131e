package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// A window that a limit of far shorter windows continues lives to its own end, through
// many of the generations that the shorter windows turn: "G is at least the longest life of
// any state in it".
func TestContinuedWindowsLive(t *testing.T) {
	conn := newConn(t)
	hour, second := stint.FixedWindow(50, time.Hour), stint.FixedWindow(50, time.Second)
	day := stint.CalendarWindow(50, stint.CalendarDay, "Europe/Berlin")
	other := stint.FixedWindow(1000, time.Second).Named("other")
	for name, c := range map[string]struct {
		old, changed *stint.Policy
	}{
		"alone":              {policyOf(t, "", hour), policyOf(t, "", second)},
		"in a policy":        {policyOf(t, "", hour, other), policyOf(t, "", second, other)},
		"of the calendar":    {policyOf(t, "", day), policyOf(t, "", second)},
		"in a policy of one": {policyOf(t, "", day, other), policyOf(t, "", second, other)},
	} {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			store, _ := storeOn(t, conn, redisstore.Options{Partitions: 1, Now: clock.Now})
			want := int64(50)
			for i := range 120 {
				clock.Advance(7 * time.Second)
				// Others' generations are those of the short windows.
				take(t, store, "another", c.changed, 1)
				switch {
				case i == 3:
					take(t, store, "k", c.old, 5)
					want -= 5
				case i > 3 && i%3 == 0:
					want--
					if d := take(t, store, "k", c.changed, 1); d.Remaining != want {
						t.Fatalf("take %d: %d of 50 are left, want %d", i, d.Remaining, want)
					}
				}
			}
		})
	}
}

// Counts that a sliding window counter of another length took over are one number: nothing comes back of what was
// taken before. What was taken since comes back, as do permits of a fixed window, which goes on to its own end.
func TestNothingComesBackToMergedCounts(t *testing.T) {
	minute, second := stint.SlidingWindowCounter(10, time.Minute), stint.SlidingWindowCounter(10, 10*time.Second)
	other := stint.SlidingWindowCounter(1000, time.Hour).Named("other")
	for name, c := range map[string]struct {
		old, changed *stint.Policy
		back         bool // whether what was taken before comes back
	}{
		"counter":             {policyOf(t, "", minute), policyOf(t, "", second), false},
		"counter in a policy": {policyOf(t, "", minute, other), policyOf(t, "", second, other), false},
		"another capacity":    {policyOf(t, "", minute), policyOf(t, "", stint.SlidingWindowCounter(20, time.Minute)), true},
		"fixed window":        {policyOf(t, "", stint.FixedWindow(10, time.Minute)), policyOf(t, "", stint.FixedWindow(10, 10*time.Second)), true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			store, _ := storeOn(t, newConn(t), redisstore.Options{Partitions: 1, Now: clock.Now})
			giveBack := func(policy *stint.Policy, n int64, taken stint.Instant) {
				store.DecideInOneBatch(t, redisstore.InternalOp{Op: op(redisstore.Refund, "k", policy, n), TakenAt: taken})
			}
			first := take(t, store, "k", c.old, 5).At
			clock.Advance(time.Second)
			take(t, store, "k", c.changed, 2)
			clock.Advance(time.Second)
			third := take(t, store, "k", c.old, 1).At // and takes it over once more
			want := left(t, store, "k", c.old)
			if c.back {
				want += 5
			}
			giveBack(c.old, 5, first)
			checkLeft(t, store, "k", c.old, want, "after a return of what was taken before the change")
			giveBack(c.old, 1, third)
			checkLeft(t, store, "k", c.old, want+1, "after a return of what was taken since")
			if d := decide(t, store, op(stint.VerbSettle, "k", c.old, -1)); d.Applied != -1 {
				t.Errorf("a settlement applied %d, want -1", d.Applied)
			}
		})
	}
}
