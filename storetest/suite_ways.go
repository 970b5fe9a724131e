package storetest

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// family is a child with a floor within a parent, as operations with ways ask them: the floor and the parent; else the
// parent alone, so that what others are sure of is kept.
type family struct {
	*fixture
	clock         *Clock
	floor, parent *stint.Policy
	kept          int64
	each          [3]stint.Outcome
}

// newFamily makes two policies of one algorithm: a floor of its own for a team, and the
// organisation's limit around it, of which others are guaranteed the kept part.
func newFamily(t testing.TB, newStore newStoreFunc, algorithm stint.Algorithm, floor, parent, kept int64) *family {
	t.Helper()
	clock := NewClock(noon)
	return &family{
		fixture: &fixture{t: t, ctx: t.Context(), store: newStore(t, clock)}, clock: clock,
		floor:  policyOf(t, "floor", simpleLimit(algorithm, floor)),
		parent: policyOf(t, "parent", simpleLimit(algorithm, parent)),
		kept:   kept,
	}
}

// op is a request of the team: either its floor, with the organisation's limit, or else the
// organisation's limit alone, less what is kept.
func (f *family) op(verb stint.Verb, n int64) stint.Op {
	return stint.Op{
		Verb: verb, Each: f.each[:],
		Claim: stint.Claim{Key: "team", Policy: f.floor, Permits: n, Way: stint.Either},
		And: []stint.Claim{
			{Key: "org", Policy: f.parent, Permits: n, Way: stint.With},
			{Key: "org", Policy: f.parent, Permits: n, Keep: f.kept, Way: stint.Else},
		},
	}
}

// do decides an operation, which must not fail.
func (f *family) do(op stint.Op) stint.Decision {
	f.t.Helper()
	d, err := f.store.Decide(f.ctx, op)
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// left are what the floor and the parent have left.
func (f *family) left() [2]int64 {
	f.t.Helper()
	return [2]int64{f.remaining("team", f.floor), f.remaining("org", f.parent)}
}

// testWays: of a floor of 3 within 10, of which 5 are kept for others, a lone child has its floor
// and borrows the 2 that nobody is sure of.
func testWays(t *testing.T, newStore newStoreFunc) {
	for _, algorithm := range stint.Algorithms() {
		if algorithm == stint.AlgorithmLeakyBucket {
			continue
		}
		f := newFamily(t, newStore, algorithm, 3, 10, 5)
		for i, want := range []struct {
			allowed   bool
			via       uint8
			remaining int64
			left      [2]int64
		}{
			{true, 0, 4, [2]int64{2, 9}},
			{true, 0, 3, [2]int64{1, 8}},
			{true, 0, 2, [2]int64{0, 7}},
			{true, 1, 1, [2]int64{0, 6}},
			{true, 1, 0, [2]int64{0, 5}},
			{false, 0, 0, [2]int64{0, 5}},
		} {
			for _, verb := range []stint.Verb{stint.Peek, stint.Take} {
				d, remaining := f.do(f.op(verb, 1)), want.remaining
				if verb == stint.Peek && want.allowed {
					remaining++
				}
				if d.Allowed != want.allowed || d.Via != want.via || d.Remaining != remaining {
					t.Errorf("%s: %s %d: %+v, want %+v", algorithm, verb, i, d, want)
				}
			}
			if got := f.left(); got != want.left {
				t.Errorf("%s: take %d leaves %v, want %v", algorithm, i, got, want.left)
			}
		}
		// The floor is admitted again before the parent lends: it decides how long to wait.
		d := f.do(f.op(stint.Take, 1))
		if first, second := max(f.each[0].RetryAfter, f.each[1].RetryAfter),
			f.each[2].RetryAfter; d.RetryAfter != min(first, second) {
			t.Errorf("%s: %+v waits, of %v and %v", algorithm, d, first, second)
		}
	}
}

// testHeldWays: a hold is on the way that admitted it, and what follows stays there.
func testHeldWays(t *testing.T, newStore newStoreFunc) {
	algorithms := append(stint.Algorithms(), stint.AlgorithmConcurrency)
	for _, algorithm := range algorithms {
		if algorithm == stint.AlgorithmLeakyBucket {
			continue
		}
		newLimit := func(capacity int64) stint.Limit {
			if algorithm == stint.AlgorithmConcurrency {
				return stint.Concurrency(capacity)
			}
			return simpleLimit(algorithm, capacity)
		}
		clock := NewClock(noon)
		f := &family{
			fixture: &fixture{t: t, ctx: t.Context(), store: newStore(t, clock)}, clock: clock,
			floor: policyOf(t, "floor", newLimit(3)), parent: policyOf(t, "parent", newLimit(20)), kept: 5,
		}
		do := func(verb stint.Verb, id string, n int64) stint.Decision {
			t.Helper()
			op, hold := f.op(verb, n), stint.HoldOp{Hold: stint.Hold{ID: id, TTL: time.Minute}}
			op.Hold = &hold
			return f.do(op)
		}
		check := func(what string, floor, parent int64) {
			t.Helper()
			for i, p := range []*stint.Policy{f.floor, f.parent} {
				op, hold := operation(stint.Commit, []string{"team", "org"}[i], p, 0), stint.HoldOp{}
				op.Hold = &hold
				hold.ID, op.Verb = "look", stint.Reserve
				op.Permits, hold.TTL = 1000, time.Minute // is denied, and says what is left
				if d := f.do(op); d.Remaining != []int64{floor, parent}[i] {
					t.Errorf("%s: %s: %d left of %s, want %d", algorithm, what, d.Remaining, p.Name(), []int64{floor, parent}[i])
				}
			}
		}
		d := do(stint.Reserve, "a", 2)
		if !d.Allowed || d.Via != 0 {
			t.Errorf("%s: a: %+v", algorithm, d)
		}
		check("2 on the floor", 1, 18)
		if d = do(stint.Reserve, "b", 2); !d.Allowed || d.Via != 1 {
			t.Errorf("%s: b: %+v", algorithm, d)
		}
		check("2 borrowed", 1, 16)
		// Growth stays on its way, where the floor has no room, and where it has.
		if d = do(stint.Reserve, "a", 4); d.Allowed {
			t.Errorf("%s: a grows beyond its floor: %+v", algorithm, d)
		}
		if d = do(stint.Reserve, "b", 3); !d.Allowed || d.Via != 1 {
			t.Errorf("%s: b grows: %+v", algorithm, d)
		}
		check("3 borrowed", 1, 15)
		if d = do(stint.Cancel, "b", 0); !d.Allowed {
			t.Errorf("%s: b is cancelled: %+v", algorithm, d)
		}
		check("given back", 1, 18)
		do(stint.Commit, "a", 1)
		places := algorithm == stint.AlgorithmConcurrency
		if places {
			check("ended", 3, 20)
		} else {
			check("1 charged on the floor", 2, 19)
		}
		// What expired is decided anew.
		floor, parent := int64(2), int64(19)
		if places {
			floor, parent = 3, 20
		}
		do(stint.Reserve, "full", floor)
		if d = do(stint.Reserve, "c", 1); d.Via != 1 {
			t.Errorf("%s: c: %+v", algorithm, d)
		}
		check("c borrows", 0, parent-floor-1)
		do(stint.Cancel, "full", 0)
		clock.Advance(time.Minute)
		if d = do(stint.Reserve, "c", 1); !d.Allowed || d.Via != 0 {
			t.Errorf("%s: c anew: %+v", algorithm, d)
		}
		check("c is on the floor", floor-1, parent-1)
		do(stint.Cancel, "c", 0)
		check("c is cancelled", floor, parent)
	}
}
