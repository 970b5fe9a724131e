package storetest

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// testChanged: a denied client of a changed limit is told the right time from the first answer on, though no
// denial writes anything: of what the old limit has and of what the new one has made of it since, the better.
func testChanged(t *testing.T, newStore newStoreFunc) {
	const second, hour = time.Second, time.Hour
	token, leaky, counter := stint.TokenBucket, stint.LeakyBucket, stint.SlidingWindowCounter
	log, slow := stint.SlidingWindowLog, stint.Per(5, 5*hour)
	for name, c := range map[string]struct {
		old, changed stint.Limit
		used         int64
		after        time.Duration // the change, after the limit was used up
		cost         int64
		want         time.Duration
	}{
		"token bucket raised":   {token(5, slow), token(100, stint.PerSecond(1)), 5, 0, 1, second},
		"token bucket, later":   {token(10, slow), token(100, stint.PerSecond(1)), 10, 5 * second, 20, 15 * second},
		"token bucket lowered":  {token(100, stint.PerSecond(100)), token(10, stint.PerHour(10)), 100, 0, 1, second / 100},
		"leaky bucket raised":   {leaky(5, slow), leaky(5, stint.PerSecond(1)), 5, 0, 1, second},
		"leaky bucket lowered":  {leaky(5, stint.PerSecond(1)), leaky(5, slow), 5, 0, 1, second},
		"log lengthened":        {log(5, second), log(5, hour), 5, 0, 1, second},
		"log shortened":         {log(5, hour), log(5, second), 5, 0, 1, second},
		"counter shortened":     {counter(5, hour), counter(5, second), 5, 0, 1, hour + 6*second/5},
		"counter, the next one": {counter(5, hour), counter(5, second), 5, hour, 1, 6 * second / 5},
		"counter lengthened":    {counter(5, second), counter(5, hour), 5, 0, 1, 6 * second / 5},
	} {
		t.Run(name, func(t *testing.T) {
			clock := NewClock(noon)
			b := &fixture{t: t, ctx: t.Context(), store: newStore(t, clock)}
			old, changed := policyOf(t, "", c.old), policyOf(t, "", c.changed)
			b.take("k", old, c.used)
			clock.Advance(c.after)
			for range 3 { // denials change nothing
				if d := b.take("k", changed, c.cost); d.Allowed || d.RetryAfter != c.want {
					t.Fatalf("%+v, want %d permits to be there after %v", d, c.cost, c.want)
				}
			}
			clock.Advance(c.want - time.Microsecond)
			if d := b.take("k", changed, c.cost); d.Allowed || d.RetryAfter != time.Microsecond {
				t.Fatalf("a microsecond before: %+v", d)
			}
			clock.Advance(time.Microsecond)
			if d := b.take("k", changed, c.cost); !d.Allowed {
				t.Fatalf("after the wait: %+v", d)
			}
		})
	}
}

// testPlansInTurn: two plans of one client in turn don't fill each other's buckets.
func testPlansInTurn(t *testing.T, newStore newStoreFunc) {
	token, leaky, quick := stint.TokenBucket, stint.LeakyBucket, stint.PerSecond(10)
	for name, c := range map[string]struct {
		small, big stint.Limit
		most       int64 // in 10 s: see docs/internals/changed-limits.md
	}{
		"10 at 10/s and 100 at 1/h":   {token(10, quick), token(100, stint.PerHour(1)), 1100},
		"10 at 10/s and 100 at 100/s": {token(10, quick), token(100, stint.PerSecond(100)), 1100},
		"10 at 10/s and 100 at 10/s":  {token(10, quick), token(100, quick), 1100},
		"leaky, 10/s and 1/h":         {leaky(10, quick), leaky(100, stint.PerHour(1)), 200},
	} {
		t.Run(name, func(t *testing.T) {
			clock := NewClock(noon)
			b := &fixture{t: t, ctx: t.Context(), store: newStore(t, clock)}
			small, big := policyOf(t, "", c.small), policyOf(t, "", c.big)
			admitted := int64(0)
			for range 100 {
				for _, take := range []struct {
					policy *stint.Policy
					n      int64
				}{{big, 90}, {small, 1}} {
					if b.take("k", take.policy, take.n).Allowed {
						admitted += take.n
					}
				}
				clock.Advance(100 * time.Millisecond)
			}
			if admitted > c.most {
				t.Errorf("%d admitted in 10 s, at most %d are allowed", admitted, c.most)
			}
		})
	}
}

// testBucketsAreKept: while there are several versions of a limit a token bucket that is full is kept until
// it could have been filled from empty, since it is worth less to the others.
func testBucketsAreKept(t *testing.T, newStore newStoreFunc) {
	clock := NewClock(noon)
	b := &fixture{t: t, ctx: t.Context(), store: newStore(t, clock)}
	small := policyOf(t, "", stint.TokenBucket(10, stint.PerMinute(10)))
	big := policyOf(t, "", stint.TokenBucket(1000, stint.PerHour(1)))
	b.take("other", big, 1)
	b.take("k", small, 1)
	for range 58 { // it is full after 6 s, and others' decisions give a store the time to drop it
		clock.Advance(time.Second)
		for range 300 {
			b.take("other", small, 1)
		}
	}
	if got := b.remaining("k", big); got != 10 {
		t.Errorf("%d of 1000 after 58 s, want the 10 of the bucket that is full", got)
	}
	clock.Advance(2 * time.Second)
	if got := b.remaining("k", big); got != 1000 {
		t.Errorf("%d of 1000 after a minute, in which the bucket could have been filled", got)
	}
}

// testTimeNeverRunsBack: an operation that takes nothing under a changed limit leaves a state's time where it was.
func testTimeNeverRunsBack(t *testing.T, newStore newStoreFunc) {
	limit := func(perSecond int64) stint.Limit {
		return stint.TokenBucket(10, stint.PerSecond(perSecond)).WithCost(5)
	}
	h := newHeld(t, newStore, limit(10))
	h.another()
	h.clock.Set(noon + 1_000_000)
	h.reserve(1, time.Minute)
	h.policy = policyOf(t, "held", limit(10_000))
	h.clock.Set(noon + 3_000_000)
	h.reserve(1, time.Minute) // renews, and takes nothing
	h.clock.Set(noon + 2_500_000)
	op := operation(stint.VerbPeek, h.key, h.policy, 1)
	op.Each = make([]stint.Outcome, 1)
	if d, err := h.store.Decide(h.ctx, op); err != nil || !d.Allowed || d.ResetAfter > 501*time.Millisecond {
		t.Errorf("half a second before the renewal: %+v, %v", d, err)
	}
}

// testGrowsByExpiries: Remaining grows at the expiry of a hold, and of places above those that are kept for others.
func testGrowsByExpiries(t *testing.T, newStore newStoreFunc) {
	for name, c := range map[string]struct {
		limit stint.Limit
		keep  int64
		want  time.Duration
	}{
		"fixed window":      {stint.FixedWindow(10, time.Hour), 0, time.Second},
		"token bucket":      {stint.TokenBucket(15, stint.Per(15, 24*time.Hour)), 0, time.Second},
		"places":            {stint.Concurrency(10), 0, time.Second},
		"places, some kept": {stint.Concurrency(10), 6, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeld(t, newStore, c.limit)
			for _, hold := range []struct {
				n   int64
				ttl time.Duration
			}{{1, time.Second}, {5, time.Minute}} {
				h.key = "k"
				op := stint.HoldOp{Hold: stint.Hold{ID: hold.ttl.String(), TTL: hold.ttl}}
				if _, err := h.do(stint.VerbReserve, hold.n, op); err != nil {
					t.Fatal(err)
				}
			}
			op := operation(stint.VerbPeek, "k", h.policy, 1)
			op.Keep, op.Each = c.keep, make([]stint.Outcome, 1)
			if _, err := h.store.Decide(h.ctx, op); err != nil || op.Each[0].GrowsAfter != c.want {
				t.Errorf("%+v, %v, want more to remain after %v", op.Each[0], err, c.want)
			}
		})
	}
}

// testRenewedExpiresLast: of holds that expire at one instant the one that was reserved last is the last, renewed or
// not. It matters where a bucket that was lowered has no room for all that is held: then only the last one gives back.
func testRenewedExpiresLast(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.TokenBucket(4, stint.PerSecond(2)))
	reserve := func(id string, end stint.Expiry) {
		t.Helper()
		h.key = "k"
		hold := stint.HoldOp{Hold: stint.Hold{ID: id, TTL: time.Minute, OnExpiry: end}}
		if _, err := h.do(stint.VerbReserve, 2, hold); err != nil {
			t.Fatal(err)
		}
	}
	reserve("given back", stint.ReleaseOnExpiry)
	reserve("kept", stint.ChargeOnExpiry)
	h.policy = policyOf(t, "held", stint.TokenBucket(1, stint.PerSecond(1)))
	reserve("given back", stint.ReleaseOnExpiry)
	op := operation(stint.VerbPeek, "k", h.policy, 1)
	op.Each = make([]stint.Outcome, 1)
	if _, err := h.store.Decide(h.ctx, op); err != nil || op.Each[0].GrowsAfter != time.Minute {
		t.Errorf("%+v, %v, want more to remain when both have expired", op.Each[0], err)
	}
}

// testForgottenIsNotNoticed: an id that is forgotten begins anew. Where nothing is taken for it nothing is written,
// also if what it held long ago has expired there: a write would bring the window to now, and a clock that is set back
// would count in that.
func testForgottenIsNotNoticed(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.SlidingWindowCounter(3, time.Second))
	reserve := func(id string, n int64, ttl time.Duration, via uint8) {
		t.Helper()
		hold := stint.HoldOp{Hold: stint.Hold{ID: id, TTL: ttl}}
		op := stint.Op{Verb: stint.VerbReserve, Extra: &stint.Extra{
			Groups: [][]stint.Way{{{{Key: "k", Policy: h.policy, Permits: n}}, nil}}, Hold: &hold,
		}}
		if d, err := h.store.Decide(h.ctx, op); err != nil || !d.Allowed || d.Via != via {
			t.Fatal(d, d.Via, err)
		}
	}
	reserve("held", 1, time.Hour, 0)
	reserve("forgotten", 1, time.Second, 0)
	h.clock.Advance(10 * time.Minute)
	reserve("forgotten", 4, time.Second, 1)
	h.clock.Advance(-500 * time.Millisecond)
	op := operation(stint.VerbSettle, "k", h.policy, 1)
	op.Each = make([]stint.Outcome, 1)
	if _, err := h.store.Decide(h.ctx, op); err != nil || op.Each[0].ResetAfter != 1500*time.Millisecond {
		t.Errorf("%+v, %v, want a charge in the window of its time", op.Each[0].ResetAfter, err)
	}
}

// testGivenBackByAnother: a window of which all is given back keeps its start, also if another version of the limit,
// whose own windows began before, gives it back: a clock that is set back then counts in it.
func testGivenBackByAnother(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.FixedWindow(9, time.Minute))
	second := h.policy
	h.clock.Advance(time.Hour + time.Minute)
	h.key = "k"
	hold, err := h.do(stint.VerbReserve, 4, stint.HoldOp{Hold: stint.Hold{ID: "h", TTL: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	h.policy = policyOf(t, "held", stint.FixedWindow(9, time.Hour))
	end := stint.HoldOp{Hold: stint.Hold{ID: "h", ExpiresAt: hold.ExpiresAt}}
	if _, err := h.do(stint.VerbCancel, 0, end); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(-time.Second)
	op := operation(stint.VerbTake, "k", second, 1)
	op.Each = make([]stint.Outcome, 1)
	if _, err := h.store.Decide(h.ctx, op); err != nil || op.Each[0].ResetAfter != time.Minute+time.Second {
		t.Errorf("%+v, %v, want a request in the window that was given back", op.Each[0], err)
	}
}
