package memstore

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// Two ways of one hold may ask for the same state. Where the clock was set back since another state has noticed that
// the hold expired, both say the same of it: that nothing of the hold is there.
func TestWaysOfOneStateSayTheSame(t *testing.T) {
	clock := stint.Instant(1_790_000_000_000_000)
	s := New(Config{Now: func() time.Time { return clock.Time() }})
	quick, places := named(t, "quick", stint.TokenBucket(2, stint.PerMinute(2))), named(t, "places", stint.Concurrency(10))
	do := func(op stint.Op) stint.Op {
		t.Helper()
		op.Each = make([]stint.Outcome, op.Limits())
		if _, err := s.Decide(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		return op
	}
	hold := func(id string, n int64, ttl time.Duration) stint.Op {
		return do(stint.Op{
			Verb: stint.VerbReserve, Claim: stint.Claim{Key: "k", Policy: quick, Permits: n},
			Extra: &stint.Extra{
				Groups: [][]stint.Way{{
					{{Key: "k", Policy: places, Permits: 3}}, {{Key: "k", Policy: places, Permits: 2}},
				}},
				Hold: &stint.HoldOp{Hold: stint.Hold{ID: id, TTL: ttl}},
			},
		})
	}
	hold("other", 1, time.Hour)
	hold("a", 1, time.Minute)
	clock = clock.Add(time.Minute)
	do(stint.Op{Verb: stint.VerbTake, Claim: stint.Claim{Key: "k", Policy: quick, Permits: 1}})
	clock = clock.Add(-time.Microsecond)
	told := hold("a", 3, time.Minute).Each // more than there ever is
	if told[1].Allowed != true || told[1].Remaining != 7 || told[1].GrowsAfter != 59*time.Minute+time.Microsecond {
		t.Errorf("one way says %+v, want 7 left for the 59 minutes of the other hold", told[1])
	}
	if told[2].Remaining != told[1].Remaining || told[2].GrowsAfter != told[1].GrowsAfter {
		t.Errorf("one way says %+v of a state of which the other says %+v", told[2], told[1])
	}
}
