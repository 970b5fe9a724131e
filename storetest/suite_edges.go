package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// testBatches: the operations of a batch are decided "one after another in arrival
// order; one that does not fit is denied and does not block later ones; each gets
// its own Remaining and Delay" (DESIGN.md, coalescing).
func testBatches(t *testing.T, newStore NewStore) {
	for _, algorithm := range stint.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			b, policy := newBench(t, newStore), policyOf(t, plain(algorithm, 5))
			b.store.DecideAll(b.ctx, nil, nil)
			var ops []stint.Op
			for _, n := range []int64{3, 3, 2, 1} {
				ops = append(ops, operation(stint.Take, "k", policy, n), operation(stint.Take, "other", policy, 1))
			}
			results := make([]stint.Result, len(ops))
			b.store.DecideAll(b.ctx, ops, results)
			for i, want := range []struct {
				allowed bool
				left    int64
			}{{true, 2}, {true, 4}, {false, 2}, {true, 3}, {true, 0}, {true, 2}, {false, 0}, {true, 1}} {
				d, err := results[i].Decision, results[i].Err
				if err != nil || d.Allowed != want.allowed || d.Remaining != want.left || d.At != noon {
					t.Errorf("operation %d: %+v, error %v, expected allowed %t and %d left", i, d, err, want.allowed, want.left)
				}
			}
		})
	}
	t.Run("large", func(t *testing.T) {
		b, policy := newBench(t, newStore), policyOf(t, plain(stint.AlgorithmTokenBucket, 700))
		ops := make([]stint.Op, 1000)
		results := make([]stint.Result, len(ops))
		for i := range ops {
			ops[i] = operation(stint.Take, "k", policy, 1)
		}
		b.store.DecideAll(b.ctx, ops, results)
		for i, r := range results {
			if left := int64(max(0, 699-i)); r.Err != nil || r.Decision.Allowed != (i < 700) || r.Decision.Remaining != left {
				t.Fatalf("operation %d of %d: %+v, error %v, expected %d left", i, len(ops), r.Decision, r.Err, left)
			}
		}
	})
}

// testIdentity: "State belongs to (limit name, algorithm, key)" and the policy's
// name (ALGORITHMS.md, check 5), and distinct parts never collide (STYLE.md, 14).
func testIdentity(t *testing.T, newStore NewStore) {
	b := newBench(t, newStore)
	var seen []stateID
	var peeks []stint.Op
	for _, policyName := range policyNames {
		for _, limitName := range append([]string{"}", "0", strings.Repeat("n", stint.MaxNameBytes)}, limitNames[:]...) {
			for _, algorithm := range stint.Algorithms() {
				policy, err := stint.NewPolicy(policyName, plain(algorithm, 1).Named(limitName))
				if err != nil {
					t.Fatal(err)
				}
				var takes []stint.Op
				first := len(seen)
				for _, key := range append([]string{":x", "x", strings.Repeat("\xff", stint.MaxKeyBytes)}, suffixes[:]...) {
					if key == "" {
						continue
					}
					seen = append(seen, stateID{policyName, limitName, algorithm, key})
					takes = append(takes, operation(stint.Take, key, policy, 1))
					peeks = append(peeks, operation(stint.Peek, key, policy, 1))
				}
				for i, d := range b.all(takes) {
					if !d.Allowed {
						t.Fatalf("%+v shares its state with another", seen[first+i])
					}
				}
			}
		}
	}
	for i, d := range b.all(peeks) {
		if d.Allowed {
			t.Fatalf("%+v was forgotten", seen[i])
		}
	}
}

// testInvalid: an operation at fault is refused with an error that wraps ErrInvalid,
// "nothing was consumed" (stint.Store), and its neighbours in a batch are decided.
func testInvalid(t *testing.T, newStore NewStore) {
	window, leaky := policyOf(t, plain(stint.AlgorithmFixedWindow, 5)), policyOf(t, plain(stint.AlgorithmLeakyBucket, 5))
	with := func(op stint.Op, and ...stint.Claim) stint.Op { op.And = and; return op }
	short := operation(stint.Take, "k", window, 1)
	short.Each = make([]stint.Outcome, 0)
	for name, op := range map[string]stint.Op{
		"unknown verb":       operation(stint.Settle+1, "k", window, 1),
		"empty key":          operation(stint.Take, "", window, 1),
		"long key":           operation(stint.Take, strings.Repeat("k", stint.MaxKeyBytes+1), window, 1),
		"no policy":          operation(stint.Take, "k", nil, 1),
		"take of 0":          operation(stint.Take, "k", window, 0),
		"try of -1":          operation(stint.Try, "k", window, -1),
		"peek of 0":          operation(stint.Peek, "k", window, 0),
		"leaky refund":       operation(stint.Settle, "k", leaky, -1),
		"reset of no key":    operation(stint.Reset, "", window, 0),
		"claim without key":  with(operation(stint.Take, "k", window, 1), stint.Claim{Policy: window, Permits: 1}),
		"claim of 0":         with(operation(stint.Take, "k", window, 1), stint.Claim{Key: "l", Policy: window}),
		"one state twice":    with(operation(stint.Take, "k", window, 1), stint.Claim{Key: "k", Policy: window, Permits: 1}),
		"too short for Each": short,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newStore)
			if d, err := b.store.Decide(b.ctx, op); !errors.Is(err, stint.ErrInvalid) {
				t.Errorf("Decide: %+v, error %v, expected ErrInvalid", d, err)
			}
			ops := []stint.Op{operation(stint.Take, "k", window, 1), op, operation(stint.Take, "k", window, 2)}
			results := make([]stint.Result, len(ops))
			b.store.DecideAll(b.ctx, ops, results)
			if !errors.Is(results[1].Err, stint.ErrInvalid) {
				t.Errorf("DecideAll: %+v, expected ErrInvalid", results[1])
			}
			for i, left := range map[int]int64{0: 4, 2: 2} {
				if r := results[i]; r.Err != nil || !r.Decision.Allowed || r.Decision.Remaining != left {
					t.Errorf("its neighbour %d in the batch: %+v, error %v, expected %d left", i, r.Decision, r.Err, left)
				}
			}
			if left := b.remaining("k", leaky); left != 5 {
				t.Errorf("the leaky bucket has %d left, expected 5", left)
			}
		})
	}
}

// testCancelled: when the context has ended before, the error "is the context's"
// (stint.Store) and nothing is consumed.
func testCancelled(t *testing.T, newStore NewStore) {
	policy := policyOf(t, plain(stint.AlgorithmFixedWindow, 5))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, release := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer release()
	for name, row := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"cancelled": {cancelled, context.Canceled},
		"expired":   {expired, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newStore)
			op := operation(stint.Take, "k", policy, 1)
			if d, err := b.store.Decide(row.ctx, op); !errors.Is(err, row.want) {
				t.Errorf("Decide: %+v, error %v, expected %v", d, err, row.want)
			}
			results := make([]stint.Result, 2)
			b.store.DecideAll(row.ctx, []stint.Op{op, op}, results)
			for i, r := range results {
				if !errors.Is(r.Err, row.want) {
					t.Errorf("DecideAll: operation %d: %+v, error %v, expected %v", i, r.Decision, r.Err, row.want)
				}
			}
			if left := b.remaining("k", policy); left != 5 {
				t.Errorf("%d left, expected 5", left)
			}
		})
	}
}
