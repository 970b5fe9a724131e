package redisstore_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// holdVerb carries out an operation on a hold of the key k.
func holdVerb(t *testing.T, store stint.Store, verb stint.Verb, policy *stint.Policy, h stint.HoldOp, n int64) (stint.HoldOp, stint.Decision, error) {
	t.Helper()
	d, err := store.Decide(t.Context(), stint.Op{Verb: verb, Claim: stint.Claim{Key: "k", Policy: policy, Permits: n}, Extra: &stint.Extra{Hold: &h}})
	return h, d, err
}

func gateway(t *testing.T) *stint.Policy {
	return policyOf(t, "gateway", stint.Concurrency(2).WithCost(1), stint.FixedWindow(100, 24*time.Hour).FromFirst().Named("tokens"))
}

// A server that loses what it had last, as in a failover, loses a hold with it: its commit says when the hold was to expire,
// and is charged, once. A cancel has nothing to give back.
func TestHoldsThatTheServerLost(t *testing.T) {
	server := testredis.Start(t)
	store, _ := storeOn(t, dial(t, server.URL()), redisstore.Options{})
	policy := gateway(t)
	h, d, err := holdVerb(t, store, stint.VerbReserve, policy, stint.HoldOp{Hold: stint.Hold{ID: "a"}}, 30)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	must.Get(server.Do("FLUSHALL"))(t)
	for i := range 3 {
		got, d, err := holdVerb(t, store, stint.VerbCommit, policy, h, 12)
		if err != nil || !got.Late || got.Replayed != (i > 0) || d.Applied != 12 {
			t.Errorf("commit %d: %+v %+v %v", i, got, d, err)
		}
	}
	unknown := stint.HoldOp{Hold: stint.Hold{ID: "b"}}
	if _, _, err := holdVerb(t, store, stint.VerbCommit, policy, unknown, 12); !errors.Is(err, stint.ErrUnknownReservation) {
		t.Errorf("a commit that says no expiry: %v", err)
	}
	if _, _, err := holdVerb(t, store, stint.VerbCancel, policy, stint.HoldOp{Hold: stint.Hold{ID: "c", ExpiresAt: h.ExpiresAt}}, 0); !errors.Is(err, stint.ErrUnknownReservation) {
		t.Errorf("a cancel: %v", err)
	}
	each := make([]stint.Outcome, 2)
	if _, err := store.Decide(t.Context(), stint.Op{Verb: stint.VerbPeek, Each: each, Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}}); err != nil || each[0].Remaining != 2 || each[1].Remaining != 88 {
		t.Errorf("left: %+v %v", each, err)
	}
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
			var each sync.WaitGroup
			for range duplicates {
				for _, store := range stores {
					each.Go(func() {
						if _, d, err := holdVerb(t, store, stint.VerbReserve, policy, h, 3); err != nil || !d.Allowed {
							t.Errorf("%s: %+v %v", h.ID, d, err)
						}
					})
				}
			}
			each.Wait()
			var ended atomic.Int64
			for range duplicates {
				for _, store := range stores {
					each.Go(func() {
						verb, n, applied := stint.VerbCommit, actual, actual-3
						if cancels {
							verb, n, applied = stint.VerbCancel, 0, -3
						}
						got, d, err := holdVerb(t, store, verb, policy, h, n)
						if err != nil || d.Applied != applied || got.Late {
							t.Errorf("%s: %+v %+v %v", h.ID, got, d, err)
						}
						if !got.Replayed {
							ended.Add(1)
						}
					})
				}
			}
			each.Wait()
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
