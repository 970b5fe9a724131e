package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// testOrderOfLimits: the order of a policy's limits, and of claims that all have to admit, is no part of a hold's
// claims. Other claims are refused, also of an id that has ended.
func testOrderOfLimits(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.Concurrency(5).WithCost(1))
	limits := []stint.Limit{
		stint.Concurrency(5).WithCost(1),
		stint.FixedWindow(100, time.Hour).Named("a"), stint.FixedWindow(100, time.Hour).Named("b"),
	}
	before := policyOf(t, "held", limits...)
	after := policyOf(t, "held", limits[2], limits[0], limits[1]) // as a reload may order them
	other := policyOf(t, "other", stint.FixedWindow(100, time.Hour))
	fewer := policyOf(t, "held", limits[:2]...)
	do := func(verb stint.Verb, policy *stint.Policy, n, others int64, swapped bool) (
		stint.HoldOp, stint.Decision, error,
	) {
		op := stint.Op{
			Verb: verb, Extra: &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: h.key, TTL: time.Minute}}},
			Claim: stint.Claim{Key: h.key, Policy: policy, Permits: n},
			And:   []stint.Claim{{Key: h.key, Policy: other, Permits: others}},
		}
		if swapped {
			op.Claim, op.And = op.And[0], []stint.Claim{op.Claim}
		}
		d, err := h.store.Decide(h.ctx, op)
		return *op.Hold(), d, err
	}
	for _, swapped := range []bool{false, true} {
		h.another()
		if _, _, err := do(stint.VerbReserve, before, 10, 20, false); err != nil {
			t.Fatal(err)
		}
		if _, _, err := do(stint.VerbReserve, fewer, 10, 20, false); !errors.Is(err, stint.ErrOtherClaims) {
			t.Errorf("reserved again without a limit: %v", err)
		}
		if told, d, err := do(stint.VerbReserve, after, 12, 20, swapped); err != nil || !told.Replayed || !d.Allowed {
			t.Errorf("reserved again in another order: %+v, %+v, %v", told, d, err)
		}
		if told, d, err := do(stint.VerbCommit, after, 5, 1, swapped); err != nil || told.Replayed || told.Reset ||
			d.Applied != -7 {
			t.Errorf("committed in another order: %+v, %+v, %v", told, d, err)
		}
		for _, policy := range []*stint.Policy{before, after} {
			if told, d, err := do(stint.VerbCommit, policy, 5, 1, !swapped); err != nil || !told.Replayed || d.Applied != -7 {
				t.Errorf("committed again: %+v, %+v, %v", told, d, err)
			}
		}
		if _, _, err := do(stint.VerbCommit, after, 1, 5, swapped); !errors.Is(err, stint.ErrResolved) {
			t.Errorf("committed otherwise: %v", err)
		}
		for _, verb := range []stint.Verb{stint.VerbReserve, stint.VerbCommit} {
			if _, _, err := do(verb, fewer, 5, 1, false); !errors.Is(err, stint.ErrResolved) {
				t.Errorf("%s under other claims after the commit: %v", verb, err)
			}
		}
		for _, policy := range []*stint.Policy{policyOf(t, "held", limits[1]), policyOf(t, "held", limits[2])} {
			if got := h.remaining(h.key, policy); got != 95 {
				t.Errorf("%d left of 100, of which 5 were used", got)
			}
		}
		if got := h.remaining(h.key, other); got != 99 {
			t.Errorf("%d left of 100, of which 1 was used", got)
		}
	}
	h.another()
	if _, _, err := do(stint.VerbReserve, before, 10, 20, false); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(time.Minute)
	for _, verb := range []stint.Verb{stint.VerbReserve, stint.VerbCommit} {
		if _, _, err := do(verb, fewer, 5, 1, false); !errors.Is(err, stint.ErrOtherClaims) {
			t.Errorf("%s under other claims after the expiry: %v", verb, err)
		}
	}
}

// testOrderWithinWays: the order of the limits of one way does not matter; to which way a limit belongs does.
func testOrderWithinWays(t *testing.T, newStore newStoreFunc) {
	f := newFamily(t, newStore, stint.AlgorithmFixedWindow, 3, 10, 5)
	reserve := func(ways ...stint.Way) (stint.HoldOp, stint.Decision, error) {
		op := stint.Op{Verb: stint.VerbReserve, Extra: &stint.Extra{
			Groups: [][]stint.Way{ways}, Hold: &stint.HoldOp{Hold: stint.Hold{ID: "h", TTL: time.Minute}},
		}}
		d, err := f.store.Decide(f.ctx, op)
		return *op.Hold(), d, err
	}
	floor := stint.Claim{Key: "team", Policy: f.floor, Permits: 2}
	parent := stint.Claim{Key: "org", Policy: f.parent, Permits: 2}
	if _, _, err := reserve(stint.Way{floor, parent}, stint.Way{parent}); err != nil {
		t.Fatal(err)
	}
	told, d, err := reserve(stint.Way{parent, floor}, stint.Way{parent})
	if err != nil || !told.Replayed || d.Via != 0 {
		t.Errorf("reserved again with the limits of a way in another order: %+v, %+v, %v", told, d, err)
	}
	if _, _, err := reserve(stint.Way{parent}, stint.Way{parent, floor}); !errors.Is(err, stint.ErrOtherClaims) {
		t.Errorf("reserved again with a limit of another way: %v", err)
	}
	if _, _, err := reserve(stint.Way{floor, parent}, stint.Way{parent}, nil); !errors.Is(err, stint.ErrOtherClaims) {
		t.Errorf("reserved again with an empty way more: %v", err)
	}
}
