package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// testManyExpiries: a wait is exact however many holds have to expire before.
func testManyExpiries(t *testing.T, newStore newStoreFunc) {
	const holds, needed = 250, 180
	for _, limit := range []stint.Limit{
		stint.Concurrency(holds), stint.TokenBucket(holds, stint.Per(1, 24*time.Hour)),
		stint.FixedWindow(holds, 24*time.Hour), stint.SlidingWindowLog(holds, 24*time.Hour),
	} {
		h := newHeld(t, newStore, limit)
		h.another()
		for i := range holds {
			ttl := time.Minute + time.Duration(i)*time.Second
			if _, err := h.do(stint.VerbReserve, 1, stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(i), TTL: ttl}}); err != nil {
				t.Fatal(err)
			}
		}
		op := operation(stint.VerbReserve, h.key, h.policy, needed)
		op.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: "asks"}}}
		d, err := h.store.Decide(h.ctx, op)
		if want := time.Minute + (needed-1)*time.Second; err != nil || d.Allowed || d.RetryAfter != want {
			t.Errorf("%v: %d of %d held: %+v, %v, want to wait %v", limit, needed, holds, d, err, want)
		}
	}
}

// testSettledOfFixedCosts: a Settle applies nothing to a limit with a cost of its own, which is no bound on what it
// applies to others.
func testSettledOfFixedCosts(t *testing.T, newStore newStoreFunc) {
	f := newFixture(t, newStore)
	bytes, requests := stint.FixedWindow(100, time.Hour), stint.FixedWindow(100, time.Hour).Named("requests").WithCost(1)
	for _, test := range []struct {
		limits []stint.Limit
		want   []int64
		all    int64
	}{
		{[]stint.Limit{requests, bytes}, []int64{0, 7}, 7},
		{[]stint.Limit{bytes, requests}, []int64{7, 0}, 7},
		{[]stint.Limit{requests}, []int64{0}, 0},
		{[]stint.Limit{requests, requests.Named("too")}, []int64{0, 0}, 0},
	} {
		for _, sign := range []int64{1, -1} {
			op := operation(stint.VerbSettle, fmt.Sprint(test.limits), policyOf(t, "p", test.limits...), 7*sign)
			op.Each = make([]stint.Outcome, len(test.limits))
			d, err := f.store.Decide(f.ctx, op)
			if err != nil || d.Applied != test.all*sign {
				t.Errorf("%v: %+v, %v, want %d applied", test.limits, d, err, test.all*sign)
			}
			for i, want := range test.want {
				if op.Each[i].Applied != want*sign {
					t.Errorf("%v: %d applied to limit %d, want %d", test.limits, op.Each[i].Applied, i, want*sign)
				}
			}
		}
	}
}

// testOwnWay: a hold, its renewals and its end tell of the way that it is on, and a lost one is charged on the way that
// its Commit names.
func testOwnWay(t *testing.T, newStore newStoreFunc) {
	f := newFamily(t, newStore, stint.AlgorithmFixedWindow, 3, 20, 5)
	do := func(verb stint.Verb, n int64, hold stint.HoldOp) (stint.HoldOp, stint.Decision) {
		t.Helper()
		op := f.op(verb, n)
		op.Extra.Hold = &hold
		hold.TTL = time.Minute
		return hold, f.do(op)
	}
	for _, step := range []struct {
		verb    stint.Verb
		id      string
		n, left int64
		via     uint8
	}{
		{stint.VerbReserve, "floor", 2, 1, 0},
		{stint.VerbReserve, "floor", 2, 1, 0},
		{stint.VerbReserve, "floor", 3, 0, 0},
		{stint.VerbReserve, "loan", 2, 10, 1},
		{stint.VerbReserve, "loan", 3, 9, 1},
		{stint.VerbCommit, "floor", 2, 1, 0},
		{stint.VerbCommit, "floor", 2, 1, 0},
		{stint.VerbCancel, "loan", 0, 13, 1},
		{stint.VerbCancel, "loan", 0, 13, 1},
	} {
		_, d := do(step.verb, step.n, stint.HoldOp{Hold: stint.Hold{ID: step.id}})
		if !d.Allowed || d.Via != step.via || d.Remaining != step.left {
			t.Errorf("%s %d as %s: %+v, want way %d with %d left", step.verb, step.n, step.id, d, step.via, step.left)
		}
	}
	lost := stint.HoldOp{Hold: stint.Hold{ID: "lost", ExpiresAt: noon}, Via: 1}
	for range 2 {
		if told, d := do(stint.VerbCommit, 2, lost); !told.Late || d.Via != 1 || d.Applied != 2 {
			t.Errorf("a lost hold is committed on way 1: %+v, %+v", told, d)
		}
		if got := f.left(); got != [2]int64{1, 16} {
			t.Errorf("a lost hold is committed on way 1: %v left, want [1 16]", got)
		}
	}
	lost.ID, lost.Via = "lost as well", 0
	do(stint.VerbCommit, 1, lost)
	if got := f.left(); got != [2]int64{0, 15} {
		t.Errorf("a lost hold is committed on way 0: %v left, want [0 15]", got)
	}
}
