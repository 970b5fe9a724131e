package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// plain is a limit of the algorithm that does not grow within a minute of noon.
func plain(algorithm stint.Algorithm, capacity int64) stint.Limit {
	l := stint.Limit{Algorithm: algorithm, Capacity: capacity, Name: fmt.Sprint(capacity)}
	if l.IsBucket() {
		l.Rate = stint.PerDay(1)
	} else {
		l.Window = time.Hour
	}
	return l
}

// testPolicies is the word "policy" of ALGORITHMS.md: "several limits decided
// together: all of them admit, or none of them consumes anything", and which of
// them decides.
func testPolicies(t *testing.T, newStore NewStore) {
	for _, first := range stint.Algorithms() {
		for _, second := range stint.Algorithms() {
			t.Run(first.String()+"+"+second.String(), func(t *testing.T) { testPair(t, newStore, first, second) })
		}
	}
	t.Run("claims", func(t *testing.T) { testClaims(t, newStore) })
	t.Run("decider", func(t *testing.T) { testDecider(t, newStore) })
}

// testPair denies by the tight limit of a policy and looks at the wide one alone: a
// policy of one limit shares the state of the same limit in a policy of that name.
func testPair(t *testing.T, newStore NewStore, first, second stint.Algorithm) {
	b := newBench(t, newStore)
	wide, tight := plain(first, 9), plain(second, 2)
	for i, policy := range []*stint.Policy{policyOf(t, wide, tight), policyOf(t, tight, wide)} {
		key := fmt.Sprint(i)
		b.take(key, policy, 2)
		for _, verb := range []stint.Verb{stint.Take, stint.Try, stint.Peek} {
			each := make([]stint.Outcome, 2)
			op := operation(verb, key, policy, 1)
			op.Each = each
			d := b.decide(op)
			if d.Allowed || int(d.Index) != 1-i || d.Limit != 2 || d.Remaining != 0 || d.Delay != 0 {
				t.Errorf("%s: %+v, expected a denial by limit %d", describeOp(op), d, 1-i)
			}
			if w := each[i]; !w.Allowed || w.RetryAfter != 0 || w.Remaining != 7 || w.Limit != 9 {
				t.Errorf("%s: the limit that would admit reports %+v", describeOp(op), w)
			}
			if w := each[1-i]; w.Allowed || w.RetryAfter != d.RetryAfter || w.Remaining != 0 {
				t.Errorf("%s: the limit that denies reports %+v", describeOp(op), w)
			}
		}
		if left := b.remaining(key, policyOf(t, wide)); left != 7 {
			t.Errorf("the limit that would admit has %d left after denials, expected 7", left)
		}
		if d := b.take(key, policy, 10); d.Allowed || d.RetryAfter != stint.Never {
			t.Errorf("more than both limits: %+v, expected never", d)
		}
	}
}

// testClaims decides several keys together: all claims or none.
func testClaims(t *testing.T, newStore NewStore) {
	for _, algorithm := range stint.Algorithms() {
		b := newBench(t, newStore)
		wide, tight := policyOf(t, plain(algorithm, 9)), policyOf(t, plain(algorithm, 2))
		transfer := func(verb stint.Verb, permits int64) stint.Decision {
			op := operation(verb, "a", wide, permits)
			op.And = []stint.Claim{{Key: "b", Policy: wide, Permits: permits}, {Key: "c", Policy: tight, Permits: permits}}
			return b.decide(op)
		}
		left := func() []int64 {
			return []int64{b.remaining("a", wide), b.remaining("b", wide), b.remaining("c", tight)}
		}
		for _, step := range []struct {
			verb    stint.Verb
			permits int64
			allowed bool
			index   int32
			left    []int64
		}{
			{stint.Take, 2, true, 2, []int64{7, 7, 0}},
			{stint.Take, 1, false, 2, []int64{7, 7, 0}},
			{stint.Take, 3, false, 2, []int64{7, 7, 0}},
			{stint.Settle, 1, true, 2, []int64{6, 6, 0}},
			{stint.Reset, 0, true, 2, []int64{9, 9, 2}},
		} {
			d := transfer(step.verb, step.permits)
			if d.Allowed != step.allowed || d.Index != step.index {
				t.Errorf("%s: %s of three claims: %+v, expected allowed %t by limit %d", algorithm, step.verb, d, step.allowed, step.index)
			}
			if got := left(); !slices.Equal(got, step.left) {
				t.Errorf("%s: after a %s of three claims are left %v, expected %v", algorithm, step.verb, got, step.left)
			}
		}
	}
}

// testDecider: "The deciding limit is, on denial, the one with the longest wait, on
// admission the one with the smallest Remaining; the first on a tie."
func testDecider(t *testing.T, newStore NewStore) {
	b := newBench(t, newStore)
	second, minute := stint.FixedWindow(3, time.Second).Named("s"), stint.FixedWindow(3, time.Minute).Named("m")
	loose := stint.FixedWindow(4, time.Hour).Named("h")
	policy := policyOf(t, loose, second, minute)
	if d := b.take("k", policy, 1); d.Index != 1 || d.Limit != 3 || d.Remaining != 2 {
		t.Errorf("admitted: %+v, expected limit 1, the first of two with 2 left", d)
	}
	if d := b.take("k", policy, 3); d.Index != 2 || d.RetryAfter != time.Minute {
		t.Errorf("denied: %+v, expected limit 2, which waits a minute", d)
	}
	b.take("k", policy, 2)
	if d := b.take("k", policy, 4); d.Index != 1 || d.RetryAfter != stint.Never {
		t.Errorf("denied: %+v, expected limit 1, the first of two that never admit", d)
	}
	if d := b.do(stint.Settle, "k", policy, -1); d.Index != 1 || d.Applied != -1 || d.Remaining != 1 {
		t.Errorf("refunded: %+v, expected limit 1, 1 left and -1 applied", d)
	}
	b.at(time.Second)
	if d := b.do(stint.Settle, "k", policy, -2); d.Index != 1 || d.Applied != 0 {
		t.Errorf("refunded: %+v, expected nothing applied, which is the least", d)
	}
}

// testCountDenied is `count_denied` of ALGORITHMS.md: "when the policy denies,
// whichever limit denied, each `count_denied` limit records the request and nothing
// else is consumed; a client that keeps hammering stays blocked until it pauses".
func testCountDenied(t *testing.T, newStore NewStore) {
	log := stint.SlidingWindowLog(2, 10*time.Second).CountingDenied()
	t.Run("hammering", func(t *testing.T) {
		b, policy := newBench(t, newStore), policyOf(t, log)
		b.take("k", policy, 2)
		for i := range 20 {
			b.at(time.Duration(i+1) * time.Second)
			// The newest two permits stay: the older is from a second ago, at first
			// from noon.
			expect(t, "hammering", b.take("k", policy, 1), false, 0, 9*time.Second)
		}
		b.at(29 * time.Second)
		expect(t, "after the pause", b.take("k", policy, 1), true, 0, 0)
	})
	t.Run("tries and peeks are not recorded", func(t *testing.T) {
		b, policy := newBench(t, newStore), policyOf(t, log)
		b.take("k", policy, 2)
		b.at(4 * time.Second)
		expect(t, "try", b.do(stint.Try, "k", policy, 1), false, 0, 6*time.Second)
		expect(t, "peek", b.do(stint.Peek, "k", policy, 1), false, 0, 6*time.Second)
		b.at(10 * time.Second)
		expect(t, "take", b.take("k", policy, 2), true, 0, 0)
	})
	t.Run("never", func(t *testing.T) {
		b, policy := newBench(t, newStore), policyOf(t, log)
		expect(t, "more than the limit", b.take("k", policy, 3), false, 0, stint.Never)
		expect(t, "it counts as the limit", b.take("k", policy, 1), false, 0, 10*time.Second)
	})
	t.Run("min_interval counts from the denial", func(t *testing.T) {
		b, policy := newBench(t, newStore), policyOf(t, stint.SlidingWindowLog(9, 10*time.Second).WithMinInterval(2*time.Second).CountingDenied())
		b.take("k", policy, 1)
		b.at(time.Second)
		expect(t, "too early", b.take("k", policy, 1), false, 7, 2*time.Second)
		b.at(3 * time.Second)
		expect(t, "two seconds later", b.take("k", policy, 1), true, 6, 0)
	})
	for _, algorithm := range stint.Algorithms() {
		t.Run("denied by "+algorithm.String(), func(t *testing.T) {
			b := newBench(t, newStore)
			tight, counting := plain(algorithm, 1), stint.SlidingWindowLog(5, time.Hour).CountingDenied().Named("counting")
			policy := policyOf(t, counting, tight)
			b.take("k", policy, 1)
			each := make([]stint.Outcome, 2)
			for i, want := range []stint.Outcome{
				{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: time.Hour, GrowsAfter: time.Hour},
				{Allowed: true, Limit: 5, Remaining: 2, ResetAfter: time.Hour, GrowsAfter: time.Hour},
				{Allowed: true, Limit: 5, Remaining: 1, ResetAfter: time.Hour, GrowsAfter: time.Hour},
				{Allowed: true, Limit: 5, Remaining: 0, ResetAfter: time.Hour, GrowsAfter: time.Hour, RetryAfter: time.Hour},
				{Allowed: false, Limit: 5, Remaining: 0, ResetAfter: time.Hour, GrowsAfter: time.Hour, RetryAfter: time.Hour},
			} {
				op := operation(stint.Take, "k", policy, 1)
				op.Each = each
				if d := b.decide(op); d.Allowed || each[0] != want {
					t.Fatalf("denial %d: %+v, recorded as %+v, expected %+v", i, d, each[0], want)
				}
			}
			if left := b.remaining("k", policyOf(t, plain(algorithm, 1))); left != 0 {
				t.Errorf("the other limit has %d left, expected 0", left)
			}
		})
	}
}
