package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// held is a client of a policy with a hold, whose id is the client's key, and the store's clock.
type held struct {
	*fixture
	clock  *Clock
	policy *stint.Policy
	key    string
}

// newHeld makes a store with a clock that stands at noon, and a policy of these limits.
func newHeld(t testing.TB, newStore newStoreFunc, limits ...stint.Limit) *held {
	t.Helper()
	clock := NewClock(noon)
	return &held{
		&fixture{t: t, ctx: t.Context(), store: newStore(t, clock)}, clock, policyOf(t, "held", limits...), "",
	}
}

// another is another client.
func (h *held) another() { h.key += "k" }

// do carries out a verb on a hold of the client.
func (h *held) do(verb stint.Verb, n int64, hold stint.HoldOp) (stint.HoldOp, error) {
	op := operation(verb, h.key, h.policy, n)
	op.Extra = &stint.Extra{Hold: &hold}
	d, err := h.store.Decide(h.ctx, op)
	if err == nil && !d.Allowed {
		h.t.Fatalf("%s of %+v: %+v", verb, hold, d)
	}
	return hold, err
}

// reserve holds permits, and returns what the caller keeps of it: its commit says the same again whenever it comes.
func (h *held) reserve(n int64, ttl time.Duration) stint.HoldOp {
	h.t.Helper()
	told, err := h.do(stint.VerbReserve, n, stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: ttl}})
	if err != nil {
		h.t.Fatal(err)
	}
	return stint.HoldOp{Hold: told.Hold}
}

// testHoldEnds: each id is charged once, however late the same commit is repeated, or another end follows. The same end
// again is answered as replayed, or, when it is forgotten, as not known.
func testHoldEnds(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.SlidingWindowLog(100, 24*time.Hour))
	for _, ttl := range []time.Duration{bounds.MinHoldTTL, bounds.DefaultHoldTTL, bounds.MaxHoldTTL} {
		for _, end := range []stint.Verb{stint.VerbCommit, stint.VerbCancel} {
			for _, after := range []time.Duration{0, ttl / 2, ttl - time.Microsecond} {
				h.another()
				kept := h.reserve(10, ttl)
				h.clock.Advance(after)
				if _, err := h.do(end, 10, kept); err != nil {
					t.Fatal(err)
				}
				h.clock.Set(kept.ExpiresAt.Add(kept.Remembered()))
				left := int64(90)
				told, err := h.do(stint.VerbCommit, 10, kept)
				if end == stint.VerbCommit && (err != nil || !told.Replayed) {
					t.Errorf("a commit %v after a reserve for %v, repeated as late as may be: %+v, %v", after, ttl, told, err)
				} else if end == stint.VerbCancel {
					if left = 100; !errors.Is(err, stint.ErrResolved) {
						t.Errorf("a cancel %v after a reserve for %v, and a commit as late as may be: %v", after, ttl, err)
					}
				}
				h.clock.Advance(time.Microsecond)
				if _, err := h.do(stint.VerbCommit, 10, kept); err == nil {
					t.Errorf("a %v %v after a reserve for %v, and a commit too late: no error", end, after, ttl)
				}
				if got := h.remaining(h.key, h.policy); got != left {
					t.Errorf("a %v %v after a reserve for %v, and commits later: %d left, not %d", end, after, ttl, got, left)
				}
			}
		}
	}
}

// testLostHold: a commit of a hold that the store does not know is charged, once, until its end
// would have been forgotten. Of one that does not say its TTL that is a minute after it would have
// expired.
func testLostHold(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.SlidingWindowLog(100, 24*time.Hour))
	for _, test := range []struct {
		ttl   time.Duration
		until time.Duration // after it would have expired
	}{
		{0, time.Minute},
		{time.Second, time.Minute},
		{10 * time.Minute, 20 * time.Minute},
	} {
		for _, after := range []time.Duration{-time.Hour, 0, test.until} { // it would have expired
			h.another()
			expires := h.clock.Instant().Add(time.Hour)
			at := expires.Add(after)
			kept := stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: test.ttl, ExpiresAt: expires}}
			h.clock.Set(at)
			if told, err := h.do(stint.VerbCommit, 10, kept); err != nil || !told.Late || told.Replayed {
				t.Errorf("a hold of %v, committed at %v: %+v, %v", test.ttl, at, told, err)
			}
			h.clock.Set(expires.Add(test.until))
			if told, err := h.do(stint.VerbCommit, 10, kept); err != nil || !told.Replayed {
				t.Errorf("a hold of %v, committed at %v and again: %+v, %v", test.ttl, at, told, err)
			}
			if got := h.remaining(h.key, h.policy); got != 90 {
				t.Errorf("a hold of %v, committed at %v and again: %d left, not 90", test.ttl, at, got)
			}
		}
		h.another()
		kept := stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: test.ttl, ExpiresAt: h.clock.Instant()}}
		h.clock.Advance(test.until + time.Microsecond)
		if _, err := h.do(stint.VerbCommit, 10, kept); !errors.Is(err, stint.ErrUnknownReservation) {
			t.Errorf("a hold of %v, committed too late: %v", test.ttl, err)
		}
	}
	for _, at := range []stint.Instant{-1, 1<<53 + 1, 1<<63 - 1} {
		if _, err := h.do(stint.VerbCommit, 1, stint.HoldOp{Hold: stint.Hold{ID: h.key, ExpiresAt: at}}); !errors.Is(err,
			stint.ErrInvalid) {
			t.Errorf("a commit of a hold that expires at %d: %v", int64(at), err)
		}
	}
}

// testHeldByMore: what is held of a limit and does not fit into it any more, since its capacity is
// smaller now, does not come back, and is not said to.
func testHeldByMore(t *testing.T, newStore newStoreFunc) {
	bucket := func(capacity int64) stint.Limit {
		l := stint.TokenBucket(capacity, stint.Per(1, time.Minute))
		l.MaxDebt = stint.NoDebt
		return l
	}
	h := newHeld(t, newStore, bucket(10))
	h.another()
	kept := h.reserve(10, time.Minute)
	h.policy = policyOf(t, "held", bucket(4))
	op := operation(stint.VerbCommit, h.key, h.policy, 2)
	op.Extra = &stint.Extra{Hold: &kept}
	d, err := h.store.Decide(h.ctx, op)
	if err != nil || d.Applied != -4 || d.Remaining != 4 {
		t.Errorf("2 of 10 committed under a capacity of 4: %+v, %v", d, err)
	}
}

// testHeldInABatch: a peek of several limits reads all of them as they are between the operations before it and those
// behind it, though permits of some are held.
func testHeldInABatch(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.FixedWindow(10, time.Hour))
	h.another()
	h.reserve(3, time.Minute)
	other := policyOf(t, "other", stint.FixedWindow(10, time.Hour))
	look := operation(stint.VerbPeek, h.key, h.policy, 1)
	look.And = []stint.Claim{{Key: h.key, Policy: other, Permits: 1}}
	look.Each = make([]stint.Outcome, 2)
	ops := []stint.Op{operation(stint.VerbTake, h.key, other, 2), look, operation(stint.VerbTake, h.key, other, 4)}
	results := make([]stint.Result, len(ops))
	h.store.DecideAll(h.ctx, ops, results)
	for _, r := range results {
		if r.Err != nil || !r.Decision.Allowed {
			t.Errorf("%+v", r)
		}
	}
	if held, free := look.Each[0].Remaining, look.Each[1].Remaining; held != 7 || free != 8 {
		t.Errorf("%d and %d left, expected 7 and 8", held, free)
	}
}

// testExpiredInPart: an expired hold is reserved anew, of all limits, also when only some of them
// have been written since, and the clock was set back to before its expiry.
func testExpiredInPart(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.FixedWindow(10, time.Hour), stint.Concurrency(2))
	h.another()
	kept := h.reserve(2, time.Minute)
	h.clock.Set(kept.ExpiresAt)
	window := policyOf(t, "held", stint.FixedWindow(10, time.Hour))
	if d := h.take(h.key, window, 1); !d.Allowed {
		t.Errorf("a take after the expiry: %+v", d)
	}
	h.clock.Set(kept.ExpiresAt - 1000)
	h.reserve(2, time.Minute)
}

// testResetAndReservedAnew: a hold that was reset is taken anew as a whole, with what an earlier
// expiry had charged of it.
func testResetAndReservedAnew(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.FixedWindow(100, 24*time.Hour))
	h.another()
	hold := stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: time.Second, OnExpiry: stint.ChargeOnExpiry}}
	for _, n := range []int64{1, 9} { // the first one expires, and stays charged
		if _, err := h.do(stint.VerbReserve, n, hold); err != nil {
			t.Fatal(err)
		}
		h.clock.Advance(time.Second)
		hold.Hold = stint.Hold{ID: h.key, TTL: time.Minute}
	}
	h.all([]stint.Op{operation(stint.VerbReset, h.key, h.policy, 1)})
	kept := h.reserve(9, time.Minute)
	h.clock.Advance(2 * time.Minute)
	if _, err := h.do(stint.VerbCommit, 3, kept); err != nil {
		t.Fatal(err)
	}
	if got := h.remaining(h.key, h.policy); got != 97 {
		t.Errorf("3 committed of a hold that was reset: %d left, not 97", got)
	}
}

// testGrowth: a hold that asks for more is told when that is there while it holds on, and not when
// it would expire itself.
func testGrowth(t *testing.T, newStore newStoreFunc) {
	for _, limit := range []stint.Limit{
		stint.Concurrency(10), stint.TokenBucket(10, stint.Per(1, time.Hour)), stint.SlidingWindowLog(10, 24*time.Hour),
	} {
		h := newHeld(t, newStore, limit)
		h.another()
		mine := h.reserve(6, time.Minute)
		another := stint.HoldOp{Hold: stint.Hold{ID: "another", TTL: 3 * time.Minute}}
		if _, err := h.do(stint.VerbReserve, 3, another); err != nil {
			t.Fatal(err)
		}
		for total, want := range map[int64]time.Duration{10: 3 * time.Minute, 8: 3 * time.Minute} {
			op := operation(stint.VerbReserve, h.key, h.policy, total)
			op.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: mine.Hold}}
			d, err := h.store.Decide(h.ctx, op)
			if err != nil || d.Allowed || d.RetryAfter != want {
				t.Errorf("%v: 6 held, of 10 with 3 others, and %d asked for: %+v, %v; want %v", limit, total, d, err, want)
			}
		}
	}
	h := newHeld(t, newStore, stint.Concurrency(10))
	h.another()
	mine := h.reserve(6, time.Minute)
	op := operation(stint.VerbReserve, h.key, h.policy, 11)
	op.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: mine.Hold}}
	if d, err := h.store.Decide(h.ctx, op); err != nil || d.Allowed || d.RetryAfter != stint.Never {
		t.Errorf("6 held, and 11 of 10 asked for: %+v, %v", d, err)
	}
}

// testLongQueue: an id lives as long as its turn of a queue is far, and its end is known from then on, however long
// that is: a reserve of it never takes another turn.
func testLongQueue(t *testing.T, newStore newStoreFunc) {
	const day = 24 * time.Hour
	for _, queue := range []stint.Limit{
		stint.LeakyBucket(4, stint.Per(1, 10*day)),
		stint.LeakyBucket(9, stint.Per(1, bounds.MaxPeriod)).WithMaxDebt(stint.NoDebt), // nearly ten years
	} {
		h := newHeld(t, newStore, queue.WithCost(1))
		h.another()
		var last stint.HoldOp
		for i := range queue.Capacity {
			told, err := h.do(stint.VerbReserve, 1, stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(i), TTL: time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			last = stint.HoldOp{Hold: told.Hold}
		}
		turns := time.Duration(queue.Capacity-1) * queue.Rate.Period
		if want := noon.Add(turns + time.Minute); last.ExpiresAt != want {
			t.Errorf("the last in the queue expires at %s, not %s", last.ExpiresAt, want)
		}
		h.clock.Set(noon.Add(turns / 2))
		if told, err := h.do(stint.VerbReserve, 1, last); err != nil || !told.Replayed {
			t.Errorf("half of %v later: %+v, %v", turns, told, err)
		}
		if _, err := h.do(stint.VerbCommit, 1, last); err != nil {
			t.Error(err)
		}
		known := last.ExpiresAt.Add(2 * time.Minute)
		for _, at := range []stint.Instant{noon.Add(turns * 3 / 4), known - 1, known} {
			h.clock.Set(at)
			if told, err := h.do(stint.VerbCommit, 1, last); err != nil || !told.Replayed {
				t.Errorf("committed again at %s of a queue of %v: %+v, %v", at, turns, told, err)
			}
			if _, err := h.do(stint.VerbReserve, 1, last); !errors.Is(err, stint.ErrResolved) {
				t.Errorf("reserved again at %s, committed before, of a queue of %v: %v", at, turns, err)
			}
		}
		h.clock.Set(known + 1)
		if _, err := h.do(stint.VerbCommit, 1, last); !errors.Is(err, stint.ErrUnknownReservation) {
			t.Errorf("committed again when it is forgotten, of a queue of %v: %v", turns, err)
		}
		for _, verb := range []stint.Verb{stint.VerbReserve, stint.VerbCommit} { // the id is new
			if told, err := h.do(verb, 1, stint.HoldOp{Hold: last.Hold}); err != nil || told.Replayed {
				t.Errorf("%s anew, of a queue of %v: %+v, %v", verb, turns, told, err)
			}
		}
	}
}
