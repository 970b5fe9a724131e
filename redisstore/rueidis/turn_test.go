package rueidis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// beginMove begins to move the slot of a store with one partition between the two nodes of a cluster.
func beginMove(t *testing.T, cluster *testredis.Cluster) (slot int, from, to *testredis.Server) {
	t.Helper()
	n, _ := do(t, cluster.Nodes[0], "CLUSTER", "KEYSLOT", "rate_limiter:{1.0.0}:settings").(int64)
	slot = int(n)
	from = must.Get(cluster.Holder(slot))(t)
	if to = cluster.Nodes[0]; to == from {
		to = cluster.Nodes[1]
	}
	cluster.BeginMove(t, slot, from, to)
	return slot, from, to
}

// do sends a command to one node.
func do(t *testing.T, node *testredis.Server, args ...any) any {
	t.Helper()
	return must.Get(node.Do(args...))(t)
}

func TestSlotsMove(t *testing.T) {
	cluster := testredis.StartCluster(t, 2)
	t.Run("decided", func(t *testing.T) { decidedWhileSlotMoves(t, cluster) })
	t.Run("turn", func(t *testing.T) { turnWhileSlotMoves(t, cluster) })
}

// While a slot moves, and until its keys do, the node that has them decides; then the one that got them. Calls wait only
// while half of them have moved. No permit is taken twice or given back.
func decidedWhileSlotMoves(t *testing.T, cluster *testredis.Cluster) {
	store := openURL(t, cluster.URL(), redisstore.Options{Partitions: 1})
	policies := []*stint.Policy{
		policyOf(t, "bucket", stint.TokenBucket(100, stint.PerDay(1))),
		policyOf(t, "several", stint.FixedWindow(100, 24*time.Hour).FromFirst().Named("a"), stint.SlidingWindowCounter(100, 24*time.Hour).Named("b")),
	}
	left := int64(100)
	takeAll := func() {
		t.Helper()
		left--
		for _, policy := range policies {
			if d := take(t, store, "k", policy, 1); d.Remaining != left {
				t.Fatalf("%s: %d of 100 remain, want %d", policy.Name(), d.Remaining, left)
			}
		}
	}
	takeAll()
	slot, from, to := beginMove(t, cluster)
	_, port, _ := strings.Cut(to.Addr(), ":")
	for range 10 { // nothing has moved
		takeAll()
	}
	keys, _ := do(t, from, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
	if len(keys) < 3 {
		t.Fatalf("only %v are in the slot", keys)
	}
	waits := make(chan error, 1)
	for i, key := range keys {
		do(t, from, "MIGRATE", "127.0.0.1", port, key, 0, 5000)
		if i == 0 {
			go func() {
				d, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policies[0], 1))
				if err == nil && d.Remaining != left-1 {
					err = fmt.Errorf("%d of 100 remain, want %d", d.Remaining, left-1)
				}
				waits <- err
			}()
		}
	}
	if err := <-waits; err != nil {
		t.Errorf("what was asked while the keys moved: %v", err)
	}
	policies = policies[1:] // the other one has taken one more
	for range 10 {          // all has moved, and nobody has said that the slot did
		takeAll()
	}
	id := do(t, to, "CLUSTER", "MYID")
	do(t, to, "CLUSTER", "SETSLOT", slot, "NODE", id)
	do(t, from, "CLUSTER", "SETSLOT", slot, "NODE", id)
	takeAll()
}

// While a slot moves, a generation that is due can't turn, since a key of the turn is not there: the call
// waits for the move or fails, and loses no state either way.
func turnWhileSlotMoves(t *testing.T, cluster *testredis.Cluster) {
	clock := storetest.NewClock(1_767_225_600_000_000)
	store := openURL(t, cluster.URL(), redisstore.Options{Partitions: 1, Now: clock.Now})
	policy := policyOf(t, "p", stint.TokenBucket(10, stint.PerHour(10)).WithMaxDebt(stint.NoDebt))
	take := func(key string, permits int64) {
		t.Helper()
		if d := take(t, store, key, policy, permits); !d.Allowed {
			t.Fatalf("%q: %+v", key, d)
		}
	}
	const life = 66 * time.Minute // an hour, and a tenth
	take("first", 1)
	clock.Advance(life)
	take("second", 1) // there is a generation before
	clock.Advance(life - time.Second)
	take("k", 5)
	clock.Advance(2 * time.Second)

	// The slot begins to move, no key does, and then it stays.
	slot, from, to := beginMove(t, cluster)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	d, err := store.Decide(ctx, op(stint.VerbTake, "third", policy, 1))
	if err == nil && !d.Allowed || err != nil && !errors.Is(err, stint.ErrUnavailable) && ctx.Err() == nil {
		t.Errorf("while the slot moves: %+v, %v", d, err)
	}
	do(t, from, "CLUSTER", "SETSLOT", slot, "STABLE")
	do(t, to, "CLUSTER", "SETSLOT", slot, "STABLE")
	take("fourth", 1) // turns it
	if d := decide(t, store, op(stint.VerbPeek, "k", policy, 1)); d.Remaining != 5 {
		t.Errorf("%d of 10 remain, want 5", d.Remaining)
	}
}
