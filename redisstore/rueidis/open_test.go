package rueidis_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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

func TestOpenWithPassword(t *testing.T) {
	own := testredis.Start(t, testredis.Password("s3cret/?@:%"))
	exercise(t, openURL(t, own.URL(), redisstore.Options{}), "")
	for _, c := range []struct{ name, user, password string }{
		{"wrong password", "", "hunter2"}, {"wrong user", "hunter2", "s3cret/?@:%"}, {"no password", "", ""},
	} {
		u := url.URL{Scheme: "redis", Host: own.Addr(), User: url.UserPassword(c.user, c.password)}
		err := open(t, rueidis.Config{URL: u.String()}, redisstore.Options{}).Ping(t.Context())
		if !errors.Is(err, stint.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want %v and no password", c.name, err, stint.ErrUnavailable)
		}
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

func TestCluster(t *testing.T) {
	t.Parallel()
	store := openURL(t, testredis.StartCluster(t, 3, testredis.Password("pw")).URL(), redisstore.Options{})
	exercise(t, store, "")
	policy, other := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5)), policyOf(t, "other", aLimit(stint.AlgorithmFixedWindow, 3))

	// Several policies on one key are in one slot, and decided together.
	together := op(stint.VerbTake, "k", policy, 2)
	together.And = []stint.Claim{{Key: "k", Policy: other, Permits: 2}}
	if d := decide(t, store, together); !d.Allowed || d.Index != 1 || d.Remaining != 1 {
		t.Errorf("%+v, want 1 of the second limit left", d)
	}
	if d := decide(t, store, together); d.Allowed || d.Index != 1 {
		t.Errorf("%+v, want a denial by the second limit", d)
	}

	// Keys with one hash tag are, too.
	tagged := op(stint.VerbTake, "{k}1", policy, 2)
	tagged.And = []stint.Claim{{Key: "2{k}", Policy: other, Permits: 2}, {Key: "3{k}3", Policy: policy, Permits: 1}}
	if d := decide(t, store, tagged); !d.Allowed || d.Index != 1 || d.Remaining != 1 {
		t.Errorf("%+v, want 1 of the second limit left", d)
	}

	// Keys in different partitions are decided one after another in a batch.
	apart := op(stint.VerbTake, "k", policy, 1)
	apart.And = []stint.Claim{{Key: "l", Policy: policy, Permits: 1}}
	results := make([]stint.Result, 3)
	store.DecideAll(t.Context(), []stint.Op{op(stint.VerbTake, "k", policy, 1), apart, op(stint.VerbTake, "k", policy, 1)}, results)
	for i, left := range []int64{2, 1, 0} {
		if r := results[i]; r.Err != nil || !r.Decision.Allowed || r.Decision.Remaining != left {
			t.Errorf("operation %d: %+v, want %d remaining", i, r, left)
		}
	}
	if d := decide(t, store, op(stint.VerbPeek, "l", policy, 1)); d.Remaining != 4 {
		t.Errorf("%d are left of the other key's 5, want 4", d.Remaining)
	}
}
