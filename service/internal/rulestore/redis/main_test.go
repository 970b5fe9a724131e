package redis_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/redis"
	"github.com/stint-go/stint/service/internal/rulestore/storetest"
)

// server is the one Redis that the package's tests share; each test has its own key prefix.
var server *testredis.Server

func TestMain(m *testing.M) { os.Exit(testredis.Run(m, &server)) }

var prefixes atomic.Int64

// prefix is one that no other test has.
func prefix() string { return "test" + strconv.FormatInt(prefixes.Add(1), 10) }

// open makes a store with a connection of its own, closed at the end of the test.
func open(t testing.TB, c rueidis.Config, prefix string) *redis.Store {
	t.Helper()
	conn := must.Get(rueidis.Dial(c))(t)
	return openOn(t, conn, prefix)
}

func openOn(t testing.TB, conn redisconn.Conn, prefix string) *redis.Store {
	t.Helper()
	s := must.Get(redis.New(conn, redis.Options{KeyPrefix: prefix}))(t)
	t.Cleanup(s.Close)
	return s
}

func TestConformance(t *testing.T) {
	size := storetest.Full
	if testing.Short() {
		size = storetest.Small
	}
	storetest.Run(t, size, func(t testing.TB) storetest.Place {
		prefix := prefix()
		return storetest.Place{
			Open: func() rulestore.Store { return open(t, rueidis.Config{URL: server.URL()}, prefix) },
			Lose: func() { do(t, server, "DEL", prefix+":{rules}:revisions") },
		}
	})
}

func TestConformanceOfACluster(t *testing.T) {
	cluster := testredis.StartCluster(t, 3)
	storetest.Run(t, storetest.Small, func(t testing.TB) storetest.Place {
		prefix := prefix()
		return storetest.Place{Open: func() rulestore.Store { return open(t, rueidis.Config{URL: cluster.URL()}, prefix) }}
	})
}

// do sends a command to a server.
func do(t testing.TB, s *testredis.Server, args ...any) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}
