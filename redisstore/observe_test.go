package redisstore_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// TestOnCall: each script call is observed once, with its operations and those that shared a state.
func TestOnCall(t *testing.T) {
	var mu sync.Mutex
	calls, operations, coalesced, failed := 0, 0, 0, 0
	store := newStore(t, redisstore.Options{OnCall: func(elapsed time.Duration, n, together int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if elapsed <= 0 {
			t.Errorf("a call took %s", elapsed)
		}
		calls++
		operations += n
		coalesced += together
		if err != nil {
			failed++
		}
	}})
	policy := policyOf(t, "observed", stint.TokenBucket(100, stint.PerSecond(1)))
	take := func(key string) stint.Op { return op(stint.VerbTake, key, policy, 1) }
	results := make([]stint.Result, 5)
	store.DecideAll(t.Context(), []stint.Op{take("a"), take("a"), take("b"), take("a"), take("c")}, results)
	mu.Lock()
	defer mu.Unlock()
	stats := store.Stats()
	if uint64(calls) != stats.Batches || operations != 5 || coalesced != 2 || failed != 0 {
		t.Errorf("%d calls with %d operations, %d coalesced, %d failed; want %d with 5, 2 and 0", calls, operations, coalesced, failed, stats.Batches)
	}
	if stats.Queued != 0 {
		t.Errorf("%d operations are queued, want none", stats.Queued)
	}
}

// serversHaveNames: each server of a store is told from the others, and can be asked.
func serversHaveNames(t *testing.T, cluster *testredis.Cluster) {
	for _, server := range newStore(t, redisstore.Options{}).Servers(t.Context()) {
		if info, err := server.Ask(t.Context(), "INFO", "all"); server.Name != "primary" || err != nil || len(info) != 1 {
			t.Errorf("server %q says %d strings, %v", server.Name, len(info), err)
		}
	}
	var names []string
	for _, server := range open(t, cluster.URL(), redisstore.Options{}).Servers(t.Context()) {
		names = append(names, server.Name)
	}
	if want := slices.Sorted(slices.Values(cluster.Addrs())); !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("the servers are called %q, want %q", names, want)
	}
}
