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

// Of another connection only the way of commands and replies differs, so few random operations will do: each kind of them
// is among the first hundreds.
func TestConformanceOfOneServer(t *testing.T) {
	leakless(t)
	conform(t, single(t, server.Addr()), redisstore.Options{}, 1000)
}

func clusterConforms(t *testing.T, cluster *testredis.Cluster) {
	// With one partition an operation may name any keys.
	conform(t, clustered(t, cluster), redisstore.Options{Partitions: 1}, 500)
}

// conform runs the suite on a server, with so many operations. In a short run a sequence of each algorithm stands for it.
func conform(t *testing.T, client redis.UniversalClient, options redisstore.Options, operations int) {
	t.Helper()
	newStore := func(t testing.TB, clock *storetest.Clock) stint.Store {
		at := options
		at.Now = clock.Now
		return storeOn(t, newConn(t, client), at)
	}
	if !testing.Short() {
		storetest.Run(t, newStore, storetest.Options{Operations: operations})
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
