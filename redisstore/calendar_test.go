package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// calendarStores are two stores on the same keys: one whose time is pinned, to write
// states of another time, and one on the server's time.
func calendarStores(t *testing.T) (pinned, live *redisstore.Store, clock *storetest.Clock) {
	t.Helper()
	clock = storetest.NewClock(dawn)
	conn := newConn(t)
	pinned, prefix := storeOn(t, conn, redisstore.Options{Now: clock.Now, Partitions: 16})
	live = another(t, conn, redisstore.Options{KeyPrefix: prefix})
	return pinned, live, clock
}

// docs/internals/semantics.md, "Fixed window": where the client's guess of the calendar is
// wrong, as with a state far ahead of the clocks, the script asks again and then answers.
func TestCalendarAskedAgain(t *testing.T) {
	pinned, live, clock := calendarStores(t)
	for _, unit := range []stint.Calendar{stint.CalendarMinute, stint.CalendarDay, stint.CalendarYear} {
		for _, ahead := range []time.Duration{0, time.Hour, 24 * time.Hour, 40 * 366 * 24 * time.Hour} {
			t.Run(fmt.Sprint(unit, ahead), func(t *testing.T) {
				now := stint.Instant(time.Now().UnixMicro())
				clock.Set(now.Add(ahead + 366*24*time.Hour))
				policy := policyOf(t, unit.String(), stint.CalendarWindow(3, unit, "Australia/Lord_Howe"))
				key := ahead.String()
				take(t, pinned, key, policy, 2)
				// The state's time is the later one, so the live store sees its window.
				if d := take(t, live, key, policy, 1); !d.Allowed || d.Remaining != 0 {
					t.Errorf("%+v, want the last of 3", d)
				}
				d := take(t, live, key, policy, 1)
				if d.Allowed || d.At.Add(d.RetryAfter) <= clock.Instant() {
					t.Errorf("%+v, want a denial until after %s", d, clock.Instant().Time())
				}
			})
		}
	}
}

// Each operation of a batch, and each limit of a policy, has a calendar of its own
// to be looked up, however many are far off.
func TestCalendarsFarApart(t *testing.T) {
	pinned, live, clock := calendarStores(t)
	minute := stint.CalendarWindow(3, stint.CalendarMinute, "")
	day := stint.CalendarWindow(3, stint.CalendarDay, "Asia/Kathmandu")
	one, other := policyOf(t, "", minute), policyOf(t, "", day.Named("day"))
	both := policyOf(t, "", minute, day.Named("day"))
	now := stint.Instant(time.Now().UnixMicro())
	ops := make([]stint.Op, 12)
	for i := range ops {
		key := fmt.Sprint("k", i)
		ops[i] = op(stint.VerbTake, key, both, 1)
		ops[i].Each = make([]stint.Outcome, 2)
		clock.Set(now.Add(time.Duration(1+i) * 1000 * time.Hour))
		take(t, pinned, key, one, 1)
		if i%3 == 0 { // the two limits disagree about the time
			clock.Set(now.Add(time.Duration(2+i) * 3000 * time.Hour))
			take(t, pinned, key, other, 2)
		}
	}
	results := make([]stint.Result, len(ops))
	live.DecideAll(t.Context(), ops, results)
	for i, r := range results {
		left := int64(2)
		if i%3 == 0 {
			left = 0
		}
		each := ops[i].Each
		if r.Err != nil || !r.Decision.Allowed || each[0].Remaining != 1 || each[1].Remaining != left {
			t.Errorf("operation %d: %+v %+v, want 1 and %d remaining", i, r, each, left)
		}
	}
}
