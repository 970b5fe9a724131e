package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/redisstore"
)

// liveHolds lists what is held of a key.
func liveHolds(t *testing.T, store stint.Store, key string, policy *stint.Policy) (live []stint.Hold, err error) {
	t.Helper()
	_, err = store.Decide(t.Context(), stint.Op{Verb: stint.VerbList, Claim: stint.Claim{Key: key, Policy: policy}, Extra: &stint.Extra{Live: &live}})
	return live, err
}

// An earlier version wrote the id alone at the end of a hold's record: such a hold is renewed and ended by the same claims in
// the same order.
func TestHoldOfAnEarlierVersion(t *testing.T) {
	store, prefix := storeOn(t, newConn(t), redisstore.Options{Partitions: 1})
	policy := policyOf(t, "p", stint.FixedWindow(10, time.Hour).Named("b"), stint.FixedWindow(10, time.Hour).Named("a"))
	for _, renewed := range []bool{false, true} {
		id := fmt.Sprint("hold ", renewed)
		do := func(verb stint.Verb, n int64) (stint.HoldOp, stint.Decision) {
			o := op(verb, id, policy, n)
			o.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: id}}}
			d := decide(t, store, o)
			return *o.Hold(), d
		}
		do(stint.VerbReserve, 5)
		for at, pairs := 0, redis(t, "HGETALL", prefix+":holds:cur").([]any); at < len(pairs); at += 2 {
			bucket := pairs[at+1].(string)
			before, behind, found := strings.Cut(bucket, id)
			if !found {
				continue
			}
			// The bytes of what is live (4), the record's length (2), a byte of 0, an epoch (7) and a tag of each limit (5).
			record := []byte(before + id + behind[1+7+2*5:])
			record[3] -= 1 + 7 + 2*5
			record[5] -= 1 + 7 + 2*5
			redis(t, "HSET", prefix+":holds:cur", pairs[at], string(record))
		}
		if listed, err := liveHolds(t, store, id, policy); err != nil || len(listed) != 1 || listed[0].ID != id {
			t.Errorf("%+v are listed, %v", listed, err)
		}
		if renewed {
			if told, d := do(stint.VerbReserve, 7); !told.Replayed || d.Remaining != 3 {
				t.Errorf("reserved again: %+v, %+v", told, d)
			}
		}
		if told, d := do(stint.VerbCommit, 2); told.Late || told.Reset || d.Remaining != 8 {
			t.Errorf("committed: %+v, %+v", told, d)
		}
	}
}

// A reserve and its end in time are one script each, whatever the limit: the usual script leaves none of them.
func TestUsualHoldsAreOneScript(t *testing.T) {
	for name, limit := range map[string]stint.Limit{
		"bucket": stint.TokenBucket(100, stint.PerSecond(1)), "window": stint.FixedWindow(100, time.Hour),
		"counter": stint.SlidingWindowCounter(100, time.Hour), "places": stint.Concurrency(100),
	} {
		t.Run(name, func(t *testing.T) {
			conn := &counter{Conn: newConn(t)}
			store, _ := storeOn(t, conn, redisstore.Options{})
			policy := policyOf(t, "p", limit)
			for i, verb := range []stint.Verb{stint.VerbCommit, stint.VerbCancel} {
				h := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(i)}}
				o := op(stint.VerbReserve, "k", policy, 5)
				o.Extra = &stint.Extra{Hold: &h}
				decide(t, store, o)
				o.Verb, o.Permits = verb, 3
				decide(t, store, o)
			}
			if got := conn.short + conn.whole; got != 4 {
				t.Errorf("%d scripts, want 4", got)
			}
		})
	}
}

// What is put off to the next batch leaves a batch that may have holds, and has none.
func TestTakeBeforeAnOperationThatIsPutOff(t *testing.T) {
	store, _ := storeOn(t, newConn(t), redisstore.Options{})
	before, after := stint.FixedWindow(3, time.Hour).Named("a"), stint.FixedWindow(5, time.Hour).Named("a")
	ops := []stint.Op{
		op(stint.VerbTake, "k", policyOf(t, "p", before), 1),
		op(stint.VerbTake, "other", policyOf(t, "p", before), 1),
		op(stint.VerbReserve, "k", policyOf(t, "p", stint.Concurrency(5).Named("b"), after), 1),
	}
	ops[2].Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: "1"}}}
	results := make([]stint.Result, len(ops))
	store.DecideAll(t.Context(), ops, results)
	for i, r := range results {
		if r.Err != nil || !r.Decision.Allowed {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// A release in one process admits at once a request that waits in another: long before the wait that the denial told of,
// and before the request asks again by itself.
func TestReleasesWakeOtherProcesses(t *testing.T) {
	holder, prefix := storeOn(t, newConn(t), redisstore.Options{})
	waiter := another(t, newConn(t), redisstore.Options{KeyPrefix: prefix})
	until(t, "announcements are heard", func() bool { return waiter.Stats().Announcing })
	policy := policyOf(t, "places", stint.Concurrency(1))
	limiter := func(store stint.Store) *stint.Limiter {
		return must.Get(stint.NewLimiter(stint.Config{Store: store, Policy: policy}))(t)
	}
	held, waits := limiter(holder), limiter(waiter)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 5 {
		first, d, err := held.Reserve(ctx, "k", 1, stint.Hold{})
		if err != nil || !d.Allowed {
			t.Fatalf("%v %v", d, err)
		}
		woken := make(chan struct{}, 1)
		stop := waiter.Wake("k", policy, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		must.Get(first.Commit(ctx, 1))(t)
		select {
		case <-woken:
		case <-ctx.Done():
			t.Fatal("nobody told of the release")
		}
		stop()
		second, _ := must.Two(waits.ReserveWait(ctx, "k", 1, stint.Hold{}))(t)
		must.Get(second.Cancel(ctx))(t)
	}
}
