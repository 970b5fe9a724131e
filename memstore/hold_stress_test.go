package memstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// Callers reserve, grow, commit, cancel, take and reset at once, under a memory cap that evicts, on policies of changing
// lengths. Nothing hangs, nothing beyond a place is had, and when all is over all places are free.
func TestHoldsUnderACrowdAndACap(t *testing.T) {
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	store := memstore.New(memstore.Config{
		MaxBytes: memstore.MinMaxBytes, MaxHolds: 50, Now: func() time.Time { return time.UnixMicro(now.Load()) },
	})
	var policies []*stint.Policy
	for _, window := range []time.Duration{time.Second, 2 * time.Second} {
		policy := must.Get(stint.NewPolicy("p", stint.Concurrency(20), stint.TokenBucket(1000, stint.PerSecond(100)),
			stint.SlidingWindowCounter(1000, window), stint.SlidingWindowLog(1000, window), stint.FixedWindow(1000, window)))(t)
		policies = append(policies, policy)
	}
	verbs := []stint.Verb{
		stint.VerbReserve, stint.VerbReserve, stint.VerbReserve, stint.VerbCommit, stint.VerbCommit, stint.VerbCancel, stint.VerbPeek, stint.VerbSettle, stint.VerbReset,
	}
	expected := []error{stint.ErrResolved, stint.ErrOtherClaims, stint.ErrUnknownReservation}
	var crowd sync.WaitGroup
	for caller := range 8 {
		crowd.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(caller), 7))
			each := make([]stint.Outcome, 10)
			for range 4000 {
				now.Add(rng.Int64N(3000))
				key := fmt.Sprint("key", rng.IntN(300))
				op := stint.Op{
					Verb:  verbs[rng.IntN(len(verbs))],
					Claim: stint.Claim{Key: key, Policy: policies[rng.IntN(2)], Permits: 1 + rng.Int64N(5)}, Each: each,
				}
				if rng.IntN(3) == 0 { // a hold of two clients, in whichever order
					op.And = []stint.Claim{{Key: fmt.Sprint("other", rng.IntN(300)), Policy: op.Policy, Permits: 2}}
				}
				if op.Verb > stint.VerbSettle {
					op.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(rng.IntN(2000)), TTL: time.Second, OnExpiry: stint.Expiry(rng.IntN(2) == 0)}}}
				}
				d, err := store.Decide(t.Context(), op)
				known := err == nil
				for _, one := range expected {
					known = known || errors.Is(err, one)
				}
				if !known {
					t.Errorf("%v: %v", op.Verb, err)
				}
				for i := range op.Limits() {
					if o := &each[i]; err == nil && op.Verb == stint.VerbReserve && d.Allowed && (o.Remaining < 0 || o.Remaining > o.Limit) {
						t.Errorf("limit %d has %d of %d left", i, o.Remaining, o.Limit)
					}
				}
				if rng.IntN(500) == 0 {
					if err := store.ResetAll(t.Context(), stint.Scope{All: true}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	crowd.Wait()
	now.Add(time.Minute.Microseconds())
	for i := range 300 {
		for _, key := range []string{fmt.Sprint("key", i), fmt.Sprint("other", i)} {
			each := make([]stint.Outcome, 5)
			op := stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: key, Policy: policies[0], Permits: 1}, Each: each}
			must.Get(store.Decide(t.Context(), op))(t)
			for i := range each {
				if each[i].Remaining != each[i].Limit {
					t.Errorf("%s: limit %d has %d of %d left when all is over", key, i, each[i].Remaining, each[i].Limit)
				}
			}
			if list, err := liveHolds(t, store, key, policies[0]); err != nil || len(list) > 0 {
				t.Errorf("%s: %v is held, %v", key, list, err)
			}
		}
	}
	if stats := store.Stats(); stats.Bytes > memstore.MinMaxBytes {
		t.Errorf("%d bytes are in use, at most %d may be", stats.Bytes, memstore.MinMaxBytes)
	}
}
