package storetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
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
		Extra: &stint.Extra{Groups: [][]stint.Way{{
			{{Key: "team", Policy: f.floor, Permits: n}, {Key: "org", Policy: f.parent, Permits: n}},
			{{Key: "org", Policy: f.parent, Permits: n, Keep: f.kept}},
		}}},
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
// and borrows the 2 that nobody is sure of. It is told what the way has left that is charged; what all ways have
// together is as many as are admitted from then on.
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
			available int64
			left      [2]int64
		}{
			{true, 0, 2, 4, [2]int64{2, 9}},
			{true, 0, 1, 3, [2]int64{1, 8}},
			{true, 0, 0, 2, [2]int64{0, 7}},
			{true, 1, 1, 1, [2]int64{0, 6}},
			{true, 1, 0, 0, [2]int64{0, 5}},
			{false, 0, 0, 0, [2]int64{0, 5}},
		} {
			for _, verb := range []stint.Verb{stint.VerbPeek, stint.VerbTake} {
				op := f.op(verb, 1)
				d, want := f.do(op), want
				if verb == stint.VerbPeek && want.allowed {
					want.remaining, want.available = want.remaining+1, want.available+1
				}
				if n, some := decide.Available(&op, op.Each); n != want.available || !some {
					t.Errorf("%s: %s %d: %d are available, %t; want %d", algorithm, verb, i, n, some, want.available)
				}
				if d.Allowed != want.allowed || d.Via != want.via || d.Remaining != want.remaining {
					t.Errorf("%s: %s %d: %+v, want %+v", algorithm, verb, i, d, want)
				}
			}
			if got := f.left(); got != want.left {
				t.Errorf("%s: take %d leaves %v, want %v", algorithm, i, got, want.left)
			}
		}
		// The floor is admitted again before the parent lends: it decides how long to wait.
		d := f.do(f.op(stint.VerbTake, 1))
		if first, second := max(f.each[0].RetryAfter, f.each[1].RetryAfter),
			f.each[2].RetryAfter; d.RetryAfter != min(first, second) {
			t.Errorf("%s: %+v waits, of %v and %v", algorithm, d, first, second)
		}
	}
}

// testAvailable: what all ways have together is what requests of one permit are admitted, one after another, until one
// is denied.
func testAvailable(t *testing.T, newStore newStoreFunc) {
	policies := []*stint.Policy{
		policyOf(t, "a", stint.TokenBucket(5, stint.Per(5, time.Hour))), policyOf(t, "b", stint.FixedWindow(4, time.Hour)),
		policyOf(t, "c", stint.SlidingWindowLog(6, time.Hour)),
		policyOf(t, "d", stint.SlidingWindowCounter(9, time.Hour), stint.FixedWindow(7, time.Hour).Named("e")),
	}
	together := 0 // operations whose ways have more than the one that is charged
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 53)) // #nosec G404 -- of a test
		claim := func() stint.Claim {
			return stint.Claim{
				Key: []string{"k", "l"}[random.IntN(2)], Policy: policies[random.IntN(len(policies))], Permits: 1,
				Keep: int64(random.IntN(2) * random.IntN(4)),
			}
		}
		op := stint.Op{Verb: stint.VerbTake, Extra: new(stint.Extra)}
		if random.IntN(3) == 0 {
			op.Claim = claim()
		}
		for range 1 + random.IntN(4)/3 {
			group := []stint.Way{{claim(), claim()}, {claim()}, {claim()}}
			op.Extra.Groups = append(op.Extra.Groups, group[random.IntN(2):])
		}
		if op.Validate() != nil {
			continue
		}
		op.Each = make([]stint.Outcome, op.Limits())
		f := newFixture(t, newStore)
		do := func(op stint.Op) stint.Decision {
			d, err := f.store.Decide(f.ctx, op)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for range random.IntN(6) {
			do(op)
		}
		peek := op
		peek.Verb = stint.VerbPeek
		before := do(peek)
		available, some := decide.Available(&peek, peek.Each)
		admitted := int64(0)
		for do(op).Allowed {
			admitted++
		}
		if admitted != available || !some {
			t.Errorf("seed %d: %d were available, %t, and %d admitted", seed, available, some, admitted)
		}
		if before.Remaining < available {
			together++
		}
	}
	if together < 10 {
		t.Errorf("%d operations have more than one way left, want 10 or more", together)
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
			op.Extra.Hold = &hold
			return f.do(op)
		}
		check := func(what string, floor, parent int64) {
			t.Helper()
			for i, p := range []*stint.Policy{f.floor, f.parent} {
				op, hold := operation(stint.VerbCommit, []string{"team", "org"}[i], p, 0), stint.HoldOp{}
				op.Extra = &stint.Extra{Hold: &hold}
				hold.ID, op.Verb = "look", stint.VerbReserve
				op.Permits, hold.TTL = 1000, time.Minute // is denied, and says what is left
				if d := f.do(op); d.Remaining != []int64{floor, parent}[i] {
					t.Errorf("%s: %s: %d left of %s, want %d", algorithm, what, d.Remaining, p.Name(), []int64{floor, parent}[i])
				}
			}
		}
		d := do(stint.VerbReserve, "a", 2)
		if !d.Allowed || d.Via != 0 {
			t.Errorf("%s: a: %+v", algorithm, d)
		}
		check("2 on the floor", 1, 18)
		if d = do(stint.VerbReserve, "b", 2); !d.Allowed || d.Via != 1 {
			t.Errorf("%s: b: %+v", algorithm, d)
		}
		check("2 borrowed", 1, 16)
		// Growth stays on its way, where the floor has no room, and where it has.
		if d = do(stint.VerbReserve, "a", 4); d.Allowed {
			t.Errorf("%s: a grows beyond its floor: %+v", algorithm, d)
		}
		if d = do(stint.VerbReserve, "b", 3); !d.Allowed || d.Via != 1 {
			t.Errorf("%s: b grows: %+v", algorithm, d)
		}
		check("3 borrowed", 1, 15)
		if d = do(stint.VerbCancel, "b", 0); !d.Allowed {
			t.Errorf("%s: b is cancelled: %+v", algorithm, d)
		}
		check("given back", 1, 18)
		do(stint.VerbCommit, "a", 1)
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
		do(stint.VerbReserve, "full", floor)
		if d = do(stint.VerbReserve, "c", 1); d.Via != 1 {
			t.Errorf("%s: c: %+v", algorithm, d)
		}
		check("c borrows", 0, parent-floor-1)
		do(stint.VerbCancel, "full", 0)
		clock.Advance(time.Minute)
		if d = do(stint.VerbReserve, "c", 1); !d.Allowed || d.Via != 0 {
			t.Errorf("%s: c anew: %+v", algorithm, d)
		}
		check("c is on the floor", floor-1, parent-1)
		do(stint.VerbCancel, "c", 0)
		check("c is cancelled", floor, parent)
	}
}

// testEmptyWay: a group whose last way is empty is charged if it fits and all else admits, and never denies or decides.
func testEmptyWay(t *testing.T, newStore newStoreFunc) {
	f := newFixture(t, newStore)
	a, b := policyOf(t, "a", stint.FixedWindow(2, time.Hour)), policyOf(t, "b", stint.FixedWindow(3, time.Hour))
	alone := func(verb stint.Verb, n int64, each []stint.Outcome) stint.Op {
		return stint.Op{Verb: verb, Each: each, Extra: &stint.Extra{Groups: [][]stint.Way{
			{{{Key: "k", Policy: a, Permits: n}}, nil},
		}}}
	}
	beside := func(verb stint.Verb, n int64, each []stint.Outcome) stint.Op {
		op := alone(verb, n, each)
		op.Claim = stint.Claim{Key: "k", Policy: b, Permits: n}
		return op
	}
	for i, step := range []struct {
		op      func(verb stint.Verb, n int64, each []stint.Outcome) stint.Op
		n       int64
		allowed bool
		via     uint8
		told    int64 // what remains of the limit that decides
		left    [2]int64
	}{
		{alone, 3, true, 1, 2, [2]int64{2, 3}}, // it never fits
		{alone, 1, true, 0, 1, [2]int64{1, 3}},
		{beside, 2, true, 1, 1, [2]int64{1, 1}},  // a does not have 2
		{beside, 2, false, 0, 1, [2]int64{1, 1}}, // nor b
		{alone, 1, true, 0, 0, [2]int64{0, 1}},
		{alone, 1, true, 1, 0, [2]int64{0, 1}},
		{beside, 1, true, 1, 0, [2]int64{0, 0}},
		{beside, 1, false, 0, 0, [2]int64{0, 0}},
	} {
		for _, verb := range []stint.Verb{stint.VerbPeek, stint.VerbTake} {
			for _, each := range [][]stint.Outcome{make([]stint.Outcome, 2), nil} {
				if verb == stint.VerbTake && each != nil {
					continue // once
				}
				op := step.op(verb, step.n, each)
				d, err := f.store.Decide(f.ctx, op)
				told := step.told
				if verb == stint.VerbPeek && step.allowed && (op.Policy != nil || step.via == 0) {
					told += step.n
				}
				if err != nil || d.Allowed != step.allowed || d.Via != step.via || d.Index != 0 || d.Remaining != told {
					t.Errorf("step %d, %s: %+v, %v, want allowed %t via %d, %d left", i, verb, d, err, step.allowed, step.via, told)
				}
			}
		}
		if got := [2]int64{f.remaining("k", a), f.remaining("k", b)}; got != step.left {
			t.Errorf("step %d: %d left, want %d", i, got, step.left)
		}
	}
}

// testDeniedBesideEmptyWay: a claim that denies charges nothing of a group that would fit.
func testDeniedBesideEmptyWay(t *testing.T, newStore newStoreFunc) {
	f := newFixture(t, newStore)
	a, b := policyOf(t, "a", stint.FixedWindow(2, time.Hour)), policyOf(t, "b", stint.FixedWindow(1, time.Hour))
	for _, verb := range []stint.Verb{stint.VerbTake, stint.VerbTry, stint.VerbReserve} {
		op := operation(verb, "k", b, 2)
		op.Extra = &stint.Extra{Groups: [][]stint.Way{{{{Key: "k", Policy: a, Permits: 1}}, nil}}}
		if verb == stint.VerbReserve {
			op.Extra.Hold = &stint.HoldOp{Hold: stint.Hold{ID: "h", TTL: time.Minute}}
		}
		d, err := f.store.Decide(f.ctx, op)
		if err != nil || d.Allowed || d.Index != 0 || d.RetryAfter != stint.Never {
			t.Errorf("%s: %+v, %v", verb, d, err)
		}
		if got := f.remaining("k", a); got != 2 {
			t.Errorf("%s: %d left of 2, of which none were taken", verb, got)
		}
	}
}

// testHeldEmptyWay: a hold on an empty way holds nothing, and charges nothing when it ends. When it is reserved again
// it takes what fits then, and stays on it.
func testHeldEmptyWay(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.FixedWindow(3, 24*time.Hour))
	h.another()
	a := policyOf(t, "a", stint.FixedWindow(3, 24*time.Hour))
	expires := map[string]stint.Instant{}
	do := func(verb stint.Verb, id string, n int64, told uint8) (stint.HoldOp, stint.Decision) {
		t.Helper()
		hold := stint.HoldOp{Hold: stint.Hold{ID: id, TTL: time.Minute}, Via: told}
		if verb != stint.VerbReserve {
			hold.ExpiresAt = expires[id]
		}
		op := stint.Op{Verb: verb, Extra: &stint.Extra{
			Hold: &hold, Groups: [][]stint.Way{{{{Key: "k", Policy: a, Permits: n}}, nil}},
		}}
		d, err := h.store.Decide(h.ctx, op)
		if err != nil {
			t.Fatal(err)
		}
		if verb == stint.VerbReserve && d.Allowed {
			expires[id] = hold.ExpiresAt
		}
		return hold, d
	}
	check := func(what string, d stint.Decision, allowed bool, via uint8, left int64) {
		t.Helper()
		if d.Allowed != allowed || d.Via != via {
			t.Errorf("%s: %+v, want allowed %t via %d", what, d, allowed, via)
		}
		if got := h.remaining("k", a); got != left {
			t.Errorf("%s: %d left, want %d", what, got, left)
		}
	}
	_, d := do(stint.VerbReserve, "first", 2, 0)
	check("2 of 3", d, true, 0, 1)
	_, d = do(stint.VerbReserve, "second", 2, 0)
	check("2 of 1", d, true, 1, 1)
	told, d := do(stint.VerbReserve, "second", 2, 0)
	check("2 of 1 again", d, true, 1, 1)
	if !told.Replayed || told.Reset {
		t.Errorf("reserved again, on the empty way: %+v", told)
	}
	_, d = do(stint.VerbCommit, "second", 2, 1)
	check("committed on the empty way", d, true, 1, 1)
	told, d = do(stint.VerbCommit, "second", 2, 1)
	check("committed again", d, true, 1, 1)
	if !told.Replayed || d.Applied != 0 {
		t.Errorf("committed again, on the empty way: %+v, %+v", told, d)
	}
	_, d = do(stint.VerbReserve, "third", 2, 0)
	check("2 of 1", d, true, 1, 1)
	_, d = do(stint.VerbReserve, "third", 1, 0)
	check("which shrinks to what fits", d, true, 0, 0)
	_, d = do(stint.VerbReserve, "third", 2, 0)
	check("grows on its way", d, false, 0, 0)
	_, d = do(stint.VerbCancel, "third", 0, 0)
	check("cancelled", d, true, 0, 1)
	_, d = do(stint.VerbCommit, "first", 1, 0)
	check("committed", d, true, 0, 2)
	_, d = do(stint.VerbReserve, "late", 9, 0)
	check("9 of 2", d, true, 1, 2)
	_, d = do(stint.VerbReserve, "cancelled", 9, 0)
	check("9 of 2", d, true, 1, 2)
	_, d = do(stint.VerbCancel, "cancelled", 0, 1)
	check("cancelled on the empty way", d, true, 1, 2)
	h.clock.Advance(2 * time.Minute)
	told, d = do(stint.VerbCommit, "late", 1, 1)
	check("committed late, on the empty way", d, true, 1, 2)
	if !told.Late {
		t.Errorf("committed late, on the empty way: %+v", told)
	}
	for via, left := range []int64{1, 1} {
		id := []string{"lost", "lost as well"}[via]
		expires[id] = h.clock.Instant()
		told, d = do(stint.VerbCommit, id, 1, uint8(via)) // #nosec G115 -- 0 or 1
		check(id, d, true, uint8(via), left)              // #nosec G115 -- 0 or 1
		if !told.Late || d.Applied != 1-int64(via) {
			t.Errorf("%s: %+v, %+v", id, told, d)
		}
	}
}

// testLeftByAnEmptyWay: a hold that has expired, and is reserved again on the empty way of a changed limit, leaves the
// state to the version that wrote it.
func testLeftByAnEmptyWay(t *testing.T, newStore newStoreFunc) {
	h := newHeld(t, newStore, stint.TokenBucket(6, stint.PerMinute(2)))
	lower := policyOf(t, h.policy.Name(), stint.TokenBucket(5, stint.PerMinute(2)))
	for via, policy := range []*stint.Policy{h.policy, lower} {
		ways := []stint.Way{{{Key: "k", Policy: policy, Permits: int64(3 + 3*via)}}, nil}
		op := stint.Op{Verb: stint.VerbReserve, Extra: &stint.Extra{
			Hold: &stint.HoldOp{Hold: stint.Hold{ID: "h", TTL: time.Second}}, Groups: [][]stint.Way{ways},
		}}
		if d, err := h.store.Decide(h.ctx, op); err != nil || !d.Allowed || int(d.Via) != via {
			t.Fatalf("%+v, %v; want way %d", d, err, via)
		}
		h.clock.Advance(2 * time.Minute)
	}
	h.clock.Advance(-2*time.Minute + time.Microsecond)
	if left := h.remaining("k", h.policy); left != 6 {
		t.Errorf("%d of 6 left", left)
	}
}

// testOtherWays: what is denied together is not denied as alternatives.
func testOtherWays(t *testing.T, newStore newStoreFunc) {
	f := newFixture(t, newStore)
	a, b := policyOf(t, "a", stint.FixedWindow(5, time.Hour)), policyOf(t, "b", stint.FixedWindow(5, time.Hour))
	f.take("k", b, 5)
	claims := []stint.Claim{{Key: "k", Policy: a, Permits: 1}, {Key: "k", Policy: b, Permits: 1}}
	for range 2 { // the second time it may be known already
		if d, err := f.store.Decide(f.ctx, stint.Op{Claim: claims[0], And: claims[1:]}); err != nil || d.Allowed {
			t.Errorf("a and b: %+v, %v", d, err)
		}
	}
	for name, test := range map[string]struct {
		op  stint.Op
		via uint8
	}{
		"a, else b":          {stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{claims[:1], claims[1:]}}}}, 0},
		"b, else a":          {stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{claims[1:], claims[:1]}}}}, 1},
		"a and b, else none": {stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{claims, nil}}}}, 1},
		"a, and b if it fits": {stint.Op{
			Claim: claims[0], Extra: &stint.Extra{Groups: [][]stint.Way{{claims[1:], nil}}},
		}, 1},
	} {
		if d, err := f.store.Decide(f.ctx, test.op); err != nil || !d.Allowed || d.Via != test.via {
			t.Errorf("%s: %+v, %v, want via %d", name, d, err, test.via)
		}
	}
}
