package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
)

// holdVerb carries out an operation on a hold of the key k.
func holdVerb(t *testing.T, store stint.Store, verb stint.Verb, policy *stint.Policy, h stint.HoldOp, n int64) (stint.HoldOp, stint.Decision, error) {
	t.Helper()
	d, err := store.Decide(t.Context(), stint.Op{Verb: verb, Claim: stint.Claim{Key: "k", Policy: policy, Permits: n}, Extra: &stint.Extra{Hold: &h}})
	return h, d, err
}

// Many processes reserve, renew, grow, commit and cancel the same ids at once, each message several times: every id is
// charged once, what one end said every other one is told, and in the end all places are free.
func TestHoldsUnderDuplicates(t *testing.T) {
	first, prefix := storeOn(t, newConn(t), redisstore.Options{})
	stores := []stint.Store{first, another(t, newConn(t), redisstore.Options{KeyPrefix: prefix}), another(t, newConn(t), redisstore.Options{KeyPrefix: prefix})}
	policy := policyOf(t, "gateway", stint.Concurrency(64).WithCost(1), stint.FixedWindow(1_000_000, 24*time.Hour).FromFirst().Named("tokens"))
	const ids, duplicates = 200, 3
	var charged atomic.Int64
	var group sync.WaitGroup
	gate := make(chan struct{}, 48) // so many ids at once, so that all have places
	for i := range ids {
		gate <- struct{}{}
		group.Go(func() {
			defer func() { <-gate }()
			h := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint("id-", i), TTL: time.Minute}}
			cancels, actual := i%5 == 0, int64(i%7)
			everywhere := func(verb stint.Verb, n int64, check func(stint.HoldOp, stint.Decision, error)) {
				var each sync.WaitGroup
				for range duplicates {
					for _, store := range stores {
						each.Go(func() { check(holdVerb(t, store, verb, policy, h, n)) })
					}
				}
				each.Wait()
			}
			everywhere(stint.VerbReserve, 3, func(_ stint.HoldOp, d stint.Decision, err error) {
				if err != nil || !d.Allowed {
					t.Errorf("%s: %+v %v", h.ID, d, err)
				}
			})
			verb, n, applied := stint.VerbCommit, actual, actual-3
			if cancels {
				verb, n, applied = stint.VerbCancel, 0, -3
			}
			var ended atomic.Int64
			everywhere(verb, n, func(got stint.HoldOp, d stint.Decision, err error) {
				if err != nil || d.Applied != applied || got.Late {
					t.Errorf("%s: %+v %+v %v", h.ID, got, d, err)
				}
				if !got.Replayed {
					ended.Add(1)
				}
			})
			if n := ended.Load(); n != 1 {
				t.Errorf("%s ended %d times", h.ID, n)
			}
			if _, _, err := holdVerb(t, stores[0], stint.VerbReserve, policy, h, 3); !errors.Is(err, stint.ErrResolved) {
				t.Errorf("%s is reserved again: %v", h.ID, err)
			}
			if !cancels {
				charged.Add(actual)
			}
		})
	}
	group.Wait()
	each := make([]stint.Outcome, 2)
	if _, err := first.Decide(t.Context(), stint.Op{Verb: stint.VerbPeek, Each: each, Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}}); err != nil ||
		each[0].Remaining != 64 || each[1].Remaining != 1_000_000-charged.Load() {
		t.Errorf("left: %+v, charged %d, %v", each, charged.Load(), err)
	}
}
