package redis_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules/redis"
	"github.com/stint-go/stint/rules/registry"
	"github.com/stint-go/stint/rules/registry/registrytest"
)

// server is the one Redis that the package's tests share; each test has its own key prefix.
var server *testredis.Server

func TestMain(m *testing.M) { os.Exit(testredis.Run(m, &server)) }

var prefixes atomic.Int64

// prefix is one that no other test has.
func prefix() string { return "test" + strconv.FormatInt(prefixes.Add(1), 10) }

// open makes a backend with a connection of its own, closed at the end of the test.
func open(t testing.TB, c rueidis.Connection, prefix string) *redis.Backend {
	t.Helper()
	conn, err := rueidis.Dial(c)
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, conn, prefix)
}

func openOn(t testing.TB, conn redisstore.Conn, prefix string) *redis.Backend {
	t.Helper()
	b, err := redis.New(conn, redis.Options{KeyPrefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestConformance(t *testing.T) {
	registrytest.Run(t, registrytest.Full, func(t testing.TB) func() registry.Backend {
		prefix := prefix()
		return func() registry.Backend { return open(t, rueidis.Connection{URL: server.URL()}, prefix) }
	})
}

func TestConformanceOfACluster(t *testing.T) {
	cluster := testredis.StartCluster(t, 3)
	registrytest.Run(t, registrytest.Small, func(t testing.TB) func() registry.Backend {
		prefix := prefix()
		return func() registry.Backend { return open(t, rueidis.Connection{URL: cluster.URL()}, prefix) }
	})
}
