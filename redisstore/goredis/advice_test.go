package goredis_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

var settings = []testredis.Option{
	testredis.Config("lazyfree-lazy-expire", "yes"), testredis.Config("maxmemory-policy", "volatile-ttl"),
}

// The settings of a server are read through a client of either protocol, and of each
// primary of a cluster: one of three differs. Clusters have a setting of their own.
func advises(t *testing.T, cluster *testredis.Cluster) {
	own := testredis.Start(t, settings...)
	must.Get(cluster.Nodes[1].Do("CONFIG", "SET", "lazyfree-lazy-expire", "no"))(t)
	for name, c := range map[string]struct {
		client redis.UniversalClient
		advice int
	}{
		"RESP2":   {closing(t, redis.NewClient(&redis.Options{Addr: own.Addr(), MaxRetries: -1, Protocol: 2})), 1},
		"RESP3":   {closing(t, redis.NewClient(&redis.Options{Addr: own.Addr(), MaxRetries: -1, Protocol: 3})), 1},
		"cluster": {clustered(t, cluster), 3},
	} {
		if advice := storeOn(t, newConn(t, c.client), redisstore.Options{}).Advise(t.Context()); len(advice) != c.advice {
			t.Errorf("%s: %q, want %d", name, advice, c.advice)
		}
	}
}

// A caller that leaves while the primaries are still being listed gets an error, and no list that
// changes afterwards.
func serversTooLate(t *testing.T, cluster *testredis.Cluster) {
	conn := newConn(t, clustered(t, cluster))
	if servers, err := conn.Servers(t.Context()); err != nil || len(servers) != 3 {
		t.Fatalf("%d servers, %v; want 3", len(servers), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		servers, err := conn.Servers(ctx)
		if err == nil && len(servers) != 3 || err != nil && (servers != nil || !errors.Is(err, context.Canceled)) {
			t.Fatalf("%d servers, %v; want 3, or %v", len(servers), err, context.Canceled)
		}
	}
}
