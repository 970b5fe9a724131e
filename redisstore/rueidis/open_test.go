package rueidis_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// exercise decides with a store of every limit at once, singly and in a batch over
// many keys.
func exercise(t *testing.T, store *redisstore.Store, name string) {
	t.Helper()
	var limits []stint.Limit
	for _, algorithm := range notation.Algorithms() {
		limits = append(limits, aLimit(algorithm, 2))
	}
	policy := policyOf(t, name, limits...)
	const keys, each = 100, 3
	var ops []stint.Op
	for range each {
		for k := range keys {
			ops = append(ops, op(stint.VerbTake, fmt.Sprint("client", k), policy, 1))
		}
	}
	results := make([]stint.Result, len(ops))
	store.DecideAll(t.Context(), ops, results)
	for i, r := range results {
		round := i / keys
		if r.Err != nil || r.Decision.Allowed != (round < 2) || r.Decision.Remaining != max(0, int64(1-round)) {
			t.Fatalf("take %d of %s: %+v", round+1, ops[i].Key, r)
		}
	}
	decide(t, store, op(stint.VerbReset, "client7", policy, 0))
	if d := take(t, store, "client7", policy, 2); !d.Allowed {
		t.Errorf("after a reset: %+v", d)
	}
}

func TestOpenDatabase(t *testing.T) {
	own := testredis.Start(t)
	store := openURL(t, own.URL()+"/3", redisstore.Options{})
	take(t, store, "k", policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5)), 1)
	keyspace := must.Get(own.Info("keyspace"))(t)
	if len(keyspace) != 1 || !strings.HasPrefix(keyspace["db3"], "keys=2,") {
		t.Errorf("the keyspace is %v, want a hash and the number of partitions in db3", keyspace)
	}
	if err := open(t, rueidis.Config{URL: own.URL() + "/99"}, redisstore.Options{}).Ping(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("database 99 of 16: got %v, want %v", err, stint.ErrUnavailable)
	}
}

// A server that is not there is unavailable, whichever way it is addressed.
func TestOpenNobody(t *testing.T) {
	own := testredis.Start(t)
	must.Do(t, own.Stop())
	for _, address := range []string{
		"redis://x:hunter2@" + own.Addr(), "rediss://x:hunter2@" + own.Addr(), "redis-cluster://x:hunter2@" + own.Addr(),
		"redis-sentinel://x:hunter2@" + own.Addr() + "/main", "unix://" + filepath.Join(t.TempDir(), "none"),
	} {
		err := open(t, rueidis.Config{URL: address}, redisstore.Options{}).Ping(t.Context())
		if !errors.Is(err, stint.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %v and no password", address, err, stint.ErrUnavailable)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := open(t, rueidis.Config{URL: server.URL()}, redisstore.Options{}).Ping(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: got %v, want %v", err, context.Canceled)
	}
}
