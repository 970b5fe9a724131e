package rueidis_test

import (
	"flag"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// prefixes numbers the key prefixes that tests share one server by.
var prefixes atomic.Int64

// encodings are the log's encodings.
var encodings = []redisstore.LogEncoding{redisstore.LogPacked, redisstore.LogZSet, redisstore.LogStream}

// server is the one Redis that the package's tests share.
var server *testredis.Server

func TestMain(m *testing.M) {
	// Most tests wait for servers to take over.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(testredis.Run(m, &server))
}

// open makes a store without failover that connects in the background, closed at the end of the test.
func open(t testing.TB, c rueidis.Config, options redisstore.Options) *redisstore.Store {
	t.Helper()
	conn := must.Get(rueidis.Dial(c))(t)
	store := must.Get(redisstore.New(conn, options))(t)
	t.Cleanup(store.Close)
	return store
}

// openURL is open, and waits for the connection.
func openURL(t testing.TB, url string, options redisstore.Options) *redisstore.Store {
	t.Helper()
	store := open(t, rueidis.Config{URL: url}, options)
	must.Do(t, testredis.Answered(t.Context(), store.Ping))
	return store
}

func policyOf(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy(name, limits...))(t)
}

func op(verb stint.Verb, key string, policy *stint.Policy, permits int64) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}}
}

func decide(t testing.TB, store stint.Store, o stint.Op) stint.Decision {
	t.Helper()
	d, err := store.Decide(t.Context(), o)
	if err != nil {
		t.Fatalf("%s %d of %q: %v", o.Verb, o.Permits, o.Key, err)
	}
	return d
}

func take(t testing.TB, store stint.Store, key string, policy *stint.Policy, permits int64) stint.Decision {
	t.Helper()
	return decide(t, store, op(stint.VerbTake, key, policy, permits))
}

// aLimit is a limit of each algorithm, slow enough for none to turn during a test.
func aLimit(algorithm stint.Algorithm, n int64) stint.Limit {
	l := stint.Limit{Algorithm: algorithm, Capacity: n}
	if l.IsBucket() {
		l.Rate = stint.Per(1, 24*time.Hour)
	} else {
		l.Window, l.FirstRequest = 300*24*time.Hour, algorithm == stint.AlgorithmFixedWindow
	}
	return l
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
