package storetest

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// testResetBeforeExpiry: a hold that was reset holds nothing, before its expiry and after it: its end moves nothing,
// and says so, and a Reserve takes all of it anew. A reset after the expiry comes too late for that: then the hold has
// expired, and what that charged is charged.
func testResetBeforeExpiry(t *testing.T, newStore newStoreFunc) {
	limits := []stint.Limit{stint.Concurrency(10), stint.TokenBucket(10, stint.Per(1, 24*time.Hour))}
	for _, algorithm := range []stint.Algorithm{
		stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowCounter, stint.AlgorithmSlidingWindowLog,
	} {
		l := simpleLimit(algorithm, 10)
		l.Window = 24 * time.Hour
		limits = append(limits, l)
	}
	for _, limit := range limits {
		h := newHeld(t, newStore, limit)
		client, none := func() { h.all([]stint.Op{operation(stint.VerbReset, h.key, h.policy, 1)}) }, func() {}
		policy := func() {
			if err := h.store.ResetAll(h.ctx, stint.Scope{Policy: h.policy.Name()}); err != nil {
				t.Fatal(err)
			}
		}
		resets := map[string][2]func(){"the client": {client, none}}
		if resetsAll(h.store) {
			resets["the policy"] = [2]func(){policy, none}
			resets["the client, and later the policy"] = [2]func(){client, policy}
		}
		for name, reset := range resets {
			for _, keep := range []bool{false, true} {
				for _, noticed := range []bool{false, true} { // by a write of the state after the expiry
					r := &resetting{h, limit, name, reset[0], reset[1], keep, noticed}
					r.beforeTheExpiry(t)
					r.afterTheExpiry(t)
				}
			}
		}
	}
}

// resetting is a reset of a hold, in one of several ways.
type resetting struct {
	*held
	limit         stint.Limit
	what          string
	reset, later  func()
	keep, noticed bool
}

// hold holds 5 of 10 for a minute.
func (r *resetting) hold(t *testing.T) (kept stint.HoldOp) {
	t.Helper()
	r.another()
	told, err := r.do(stint.VerbReserve, 5, stint.HoldOp{
		Hold: stint.Hold{ID: r.key, TTL: time.Minute, OnExpiry: stint.Expiry(r.keep)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return stint.HoldOp{Hold: told.Hold}
}

// notice resets what is to be reset later, and writes the state by another hold, which it takes back.
func (r *resetting) notice(t *testing.T) {
	t.Helper()
	r.later()
	if !r.noticed {
		return
	}
	another := stint.HoldOp{Hold: stint.Hold{ID: r.key + " another", TTL: time.Second}}
	for _, verb := range []stint.Verb{stint.VerbReserve, stint.VerbCancel} {
		if _, err := r.do(verb, 1, another); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *resetting) expect(t *testing.T, when string, want int64) {
	t.Helper()
	if got := r.remaining(r.key, r.policy); got != want {
		t.Errorf("%v, kept %t, noticed %t, %s is reset, %s: %d left of 10, want %d",
			r.limit, r.keep, r.noticed, r.what, when, got, want)
	}
}

func (r *resetting) beforeTheExpiry(t *testing.T) {
	for _, late := range []time.Duration{0, time.Minute} {
		kept := r.hold(t)
		r.reset()
		r.clock.Advance(late)
		r.notice(t)
		for _, actual := range []int64{7, 7} {
			told, err := r.do(stint.VerbCommit, actual, kept)
			if err != nil || !told.Reset || told.Late != (late > 0) {
				t.Errorf("%v, kept %t, noticed %t, %s is reset: committed after %v: %+v, %v",
					r.limit, r.keep, r.noticed, r.what, late, told, err)
			}
			r.expect(t, "committed", 10)
		}
		kept = r.hold(t)
		r.reset()
		r.clock.Advance(late)
		r.notice(t)
		if _, err := r.do(stint.VerbReserve, 5, kept); err != nil {
			t.Error(err)
		}
		r.expect(t, "reserved again", 5)
		if told, err := r.do(stint.VerbCommit, 3, kept); err != nil || told.Reset || told.Late {
			t.Errorf("%v: committed after it was reserved anew: %+v, %v", r.limit, told, err)
		}
		left := int64(7)
		if r.limit.Algorithm == stint.AlgorithmConcurrency {
			left = 10
		}
		r.expect(t, "reserved again and committed", left)
	}
	// It was taken anew, and has expired since: it is not reset any more.
	kept := r.hold(t)
	r.reset()
	if _, err := r.do(stint.VerbReserve, 5, kept); err != nil {
		t.Error(err)
	}
	r.clock.Advance(time.Minute)
	r.notice(t)
	if told, err := r.do(stint.VerbCommit, 5, kept); err != nil || told.Reset || !told.Late {
		t.Errorf("%v: reset, reserved anew, expired and committed: %+v, %v", r.limit, told, err)
	}
}

func (r *resetting) afterTheExpiry(t *testing.T) {
	kept := r.hold(t)
	r.clock.Advance(time.Minute)
	r.notice(t)
	r.reset()
	if told, err := r.do(stint.VerbCommit, 7, kept); err != nil || told.Reset || !told.Late {
		t.Errorf("%v, kept %t: expired, %s is reset, committed: %+v, %v", r.limit, r.keep, r.what, told, err)
	}
	left := int64(3)
	switch {
	case r.limit.Algorithm == stint.AlgorithmConcurrency:
		left = 10
	case r.keep:
		left = 8 // what the expiry has charged of 7 was reset
	}
	r.expect(t, "after the expiry, and committed", left)
}

// testResetBeforeADrop: of a hold of two policies one is reset, and then what it has of the other is dropped. Its end
// moves nothing of the first, and is late for the second.
func testResetBeforeADrop(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.FixedWindow(10, 24*time.Hour))
	other := policyOf(t, "other", stint.FixedWindow(10, 24*time.Hour))
	resets := []func(){func() { h.all([]stint.Op{operation(stint.VerbReset, h.key, h.policy, 1)}) }}
	if resetsAll(h.store) {
		resets = append(resets, func() {
			if err := h.store.ResetAll(h.ctx, stint.Scope{Policy: h.policy.Name()}); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, reset := range resets {
		h.another()
		do := func(verb stint.Verb, n int64) stint.HoldOp {
			op := operation(verb, h.key, h.policy, n)
			op.And = []stint.Claim{{Key: h.key, Policy: other, Permits: n}}
			op.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: h.key}}}
			if _, err := h.store.Decide(h.ctx, op); err != nil {
				t.Fatal(err)
			}
			return *op.Hold()
		}
		do(stint.VerbReserve, 5)
		h.clock.Advance(time.Second)
		reset()
		drop := operation(stint.VerbDrop, h.key, other, 1)
		drop.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: h.key}}}
		if _, err := h.store.Decide(h.ctx, drop); err != nil {
			t.Fatal(err)
		}
		if told := do(stint.VerbCommit, 3); !told.Reset || !told.Late {
			t.Errorf("%+v", told)
		}
		if first, second := h.remaining(h.key, h.policy), h.remaining(h.key, other); first != 10 || second != 7 {
			t.Errorf("%d and %d left of 10, want 10 and 7", first, second)
		}
	}
}
