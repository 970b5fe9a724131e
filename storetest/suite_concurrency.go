package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stint-go/stint"
)

const (
	workers  = 16
	requests = 40 // of each worker
	quota    = 250
)

// testConcurrency is check 3 of ALGORITHMS.md, in one process: many goroutines on
// one key, time standing still. Exactly the limit is admitted, and every admission
// leaves another Remaining, as if they came one after another.
func testConcurrency(t *testing.T, newStore NewStore) {
	var all []stint.Limit
	for _, algorithm := range stint.Algorithms() {
		limit := plain(algorithm, quota)
		all = append(all, limit)
		t.Run(algorithm.String(), func(t *testing.T) {
			policy := policyOf(t, limit)
			contend(t, newStore, policy, func(int, int) stint.Op { return operation(stint.Take, "k", policy, 1) })
		})
	}
	policy := policyOf(t, all...)
	t.Run("policy", func(t *testing.T) {
		contend(t, newStore, policy, func(int, int) stint.Op { return operation(stint.Take, "k", policy, 1) })
	})
	t.Run("claims in any order", func(t *testing.T) {
		keys := []string{"k", "l", "m"}
		contend(t, newStore, policy, func(worker, request int) stint.Op {
			first := worker + request
			op := operation(stint.Take, keys[first%3], policy, 1)
			for i := 1; i < 3; i++ {
				op.And = append(op.And, stint.Claim{Key: keys[(first+i)%3], Policy: policy, Permits: 1})
			}
			return op
		})
	})
	t.Run("keys apart", func(t *testing.T) { testKeysApart(t, newStore, policy) })
}

// contend lets workers make the operations, each of which takes one permit, half of
// them in batches.
func contend(t *testing.T, newStore NewStore, policy *stint.Policy, op func(worker, request int) stint.Op) {
	b := newBench(t, newStore)
	answers := make([][]stint.Result, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			results := make([]stint.Result, requests)
			ops := make([]stint.Op, requests)
			for i := range ops {
				ops[i] = op(worker, i)
			}
			for i := 0; i < requests; {
				if (worker+i)%8 < 4 {
					results[i].Decision, results[i].Err = b.store.Decide(b.ctx, ops[i])
					i++
					continue
				}
				end := min(i+5, requests)
				b.store.DecideAll(b.ctx, ops[i:end], results[i:end])
				i = end
			}
			answers[worker] = results
		})
	}
	group.Wait()
	left := map[int64]int{}
	admitted := 0
	for _, results := range answers {
		for _, r := range results {
			switch {
			case r.Err != nil:
				t.Fatal(r.Err)
			case r.Decision.Allowed:
				admitted++
				left[r.Decision.Remaining]++
			case r.Decision.RetryAfter <= 0:
				t.Fatalf("denied with RetryAfter %s", formatWait(r.Decision.RetryAfter))
			}
		}
	}
	if admitted != quota {
		t.Errorf("%d of %d requests were admitted, expected %d", admitted, workers*requests, quota)
	}
	for n := range int64(quota) {
		if left[n] != 1 {
			t.Errorf("%d admissions left %d, expected one", left[n], n)
		}
	}
	if n := b.remaining("k", policy); n != 0 {
		t.Errorf("%d left at the end, expected 0", n)
	}
}

// testKeysApart: requests of many keys at once each find their own state.
func testKeysApart(t *testing.T, newStore NewStore, policy *stint.Policy) {
	b := newBench(t, newStore)
	faults := make([]string, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := range requests {
				key := fmt.Sprintf("%d:%d", worker, i%5)
				d, err := b.store.Decide(b.ctx, operation(stint.Take, key, policy, 1))
				if want := int64(quota - 1 - i/5); err != nil || !d.Allowed || d.Remaining != want {
					faults[worker] = fmt.Sprintf("key %s: %+v, error %v, expected %d left", key, d, err, want)
					return
				}
			}
		})
	}
	group.Wait()
	for _, fault := range faults {
		if fault != "" {
			t.Error(fault)
		}
	}
}
