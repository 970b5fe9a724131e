package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// held is a client of a policy with a hold, whose id is the client's key, and the store's clock.
type held struct {
	*fixture
	clock  *Clock
	policy *stint.Policy
	key    string
}

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
	op.Hold = &hold
	d, err := h.store.Decide(h.ctx, op)
	if err == nil && !d.Allowed {
		h.t.Fatalf("%s of %+v: %+v", verb, hold, d)
	}
	return hold, err
}

// reserve holds permits, and returns what the caller keeps of it: its commit says the same again whenever it comes.
func (h *held) reserve(n int64, ttl time.Duration) stint.HoldOp {
	h.t.Helper()
	told, err := h.do(stint.Reserve, n, stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: ttl}})
	if err != nil {
		h.t.Fatal(err)
	}
	return stint.HoldOp{Hold: told.Hold, ExpiresAt: told.ExpiresAt}
}

// testHoldEnds: each id is charged once, however late the same commit is repeated, or another end follows. The same end
// again is answered as replayed, or, when it is forgotten, as not known.
func testHoldEnds(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.SlidingWindowLog(100, 24*time.Hour))
	for _, ttl := range []time.Duration{stint.MinHoldTTL, stint.DefaultHoldTTL, stint.MaxHoldTTL} {
		for _, end := range []stint.Verb{stint.Commit, stint.Cancel} {
			for _, after := range []time.Duration{0, ttl / 2, ttl - time.Microsecond} {
				h.another()
				kept := h.reserve(10, ttl)
				h.clock.Advance(after)
				if _, err := h.do(end, 10, kept); err != nil {
					t.Fatal(err)
				}
				h.clock.Set(kept.ExpiresAt.Add(kept.Remembered()))
				left := int64(90)
				told, err := h.do(stint.Commit, 10, kept)
				if end == stint.Commit && (err != nil || !told.Replayed) {
					t.Errorf("a commit %v after a reserve for %v, repeated as late as may be: %+v, %v", after, ttl, told, err)
				} else if end == stint.Cancel {
					if left = 100; !errors.Is(err, stint.ErrResolved) {
						t.Errorf("a cancel %v after a reserve for %v, and a commit as late as may be: %v", after, ttl, err)
					}
				}
				h.clock.Advance(time.Microsecond)
				if _, err := h.do(stint.Commit, 10, kept); err == nil {
					t.Errorf("a %v %v after a reserve for %v, and a commit too late: no error", end, after, ttl)
				}
				if got := h.remaining(h.key, h.policy); got != left {
					t.Errorf("a %v %v after a reserve for %v, and commits later: %d left, not %d", end, after, ttl, got, left)
				}
			}
		}
	}
}

// testLostHold: a commit of a hold that the store does not know is charged, once, until its end would have been forgotten.
// Of one that does not say its TTL that is a minute after it would have expired.
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
			expires := h.clock.Now().Add(time.Hour)
			at := expires.Add(after)
			kept := stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: test.ttl}, ExpiresAt: expires}
			h.clock.Set(at)
			if told, err := h.do(stint.Commit, 10, kept); err != nil || !told.Late || told.Replayed {
				t.Errorf("a hold of %v, committed at %v: %+v, %v", test.ttl, at, told, err)
			}
			h.clock.Set(expires.Add(test.until))
			if told, err := h.do(stint.Commit, 10, kept); err != nil || !told.Replayed {
				t.Errorf("a hold of %v, committed at %v and again: %+v, %v", test.ttl, at, told, err)
			}
			if got := h.remaining(h.key, h.policy); got != 90 {
				t.Errorf("a hold of %v, committed at %v and again: %d left, not 90", test.ttl, at, got)
			}
		}
		h.another()
		kept := stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: test.ttl}, ExpiresAt: h.clock.Now()}
		h.clock.Advance(test.until + time.Microsecond)
		if _, err := h.do(stint.Commit, 10, kept); !errors.Is(err, stint.ErrUnknownReservation) {
			t.Errorf("a hold of %v, committed too late: %v", test.ttl, err)
		}
	}
	for _, at := range []stint.Instant{-1, 1<<53 + 1, 1<<63 - 1} {
		if _, err := h.do(stint.Commit, 1, stint.HoldOp{Hold: stint.Hold{ID: h.key}, ExpiresAt: at}); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("a commit of a hold that expires at %d: %v", int64(at), err)
		}
	}
}
