package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// On a cluster a hold takes of one partition, all of it or nothing; over several it is refused, and the error says how
// to have it.
func TestHoldsOnACluster(t *testing.T) {
	cluster := testredis.StartCluster(t, 3)
	store := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "holds"})
	places, tokens := policyOf(t, "places", stint.Concurrency(2).WithCost(1)), policyOf(t, "tokens", aLimit(stint.AlgorithmFixedWindow, 100))
	claims := func(verb stint.Verb, h *stint.HoldOp, n int64, keys ...string) stint.Op {
		return stint.Op{
			Verb: verb, Extra: &stint.Extra{Hold: h}, Each: make([]stint.Outcome, 2),
			Claim: stint.Claim{Key: keys[0], Policy: places, Permits: n},
			And:   []stint.Claim{{Key: keys[1], Policy: tokens, Permits: n}},
		}
	}
	for i, user := range []string{"{a}", "{b}", "{c}", "{d}"} {
		for j, wantAllowed := range []bool{true, true, false} {
			h := &stint.HoldOp{Hold: stint.Hold{ID: user + string(rune('0'+j))}}
			d, err := store.Decide(t.Context(), claims(stint.VerbReserve, h, 30, user+"user", user+"team"))
			if err != nil || d.Allowed != wantAllowed {
				t.Fatalf("%d, %d: %v %v", i, j, d, err)
			}
		}
		h := &stint.HoldOp{Hold: stint.Hold{ID: user + "0"}}
		op := claims(stint.VerbCommit, h, 10, user+"user", user+"team")
		if d, err := store.Decide(t.Context(), op); err != nil || d.Applied != -20 || op.Each[0].Remaining != 1 || op.Each[1].Remaining != 60 {
			t.Errorf("%v %v %+v", d, err, op.Each)
		}
	}
	h := &stint.HoldOp{Hold: stint.Hold{ID: "apart"}}
	_, err := store.Decide(t.Context(), claims(stint.VerbReserve, h, 1, "user", "team:of:another:partition"))
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "hash tag") {
		t.Errorf("over two partitions: %v", err)
	}
}

// A release in one process admits who waits in another, at once: long before the wait that the denial told of, and before
// who waits asks again by itself.
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
	for range 20 {
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
