package goredis_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// Under the race detector, a sequence of each algorithm stands for the whole suite, which TestConformanceOfOneServer runs.
func TestConformanceOfCluster(t *testing.T) {
	leakless(t)
	cluster := testredis.StartCluster(t, 3)
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
	// With one partition an operation may name any keys.
	newStore := func(t testing.TB, clock *storetest.Clock) stint.Store {
		return storeOn(t, newConn(t, client), redisstore.Options{Now: clock.Now, Partitions: 1})
	}
	if !testing.Short() {
		storetest.Run(t, newStore, storetest.Options{Operations: 500})
		return
	}
	clock := storetest.NewClock(1_767_225_600_000_000)
	store := newStore(t, clock)
	for _, algorithm := range notation.Algorithms() {
		if err := storetest.Replay(t.Context(), store, clock, storetest.Generate(uint64(algorithm), algorithm, 250)); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
}
