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
