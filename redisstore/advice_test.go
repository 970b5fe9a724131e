package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// What a server is warned about: every policy by which it may evict, with a memory limit or
// yet without, and large keys that hold it up when they expire. No setting is changed.
func TestAdvise(t *testing.T) {
	for _, c := range [...]struct{ policy, memory, lazy string }{
		{"noeviction", "100mb", "yes"},
		{"noeviction", "0", "no"},
		{"volatile-ttl", "100mb", "yes"},
		{"volatile-ttl", "0", "no"},
		{"allkeys-lru", "100mb", "yes"},
		{"volatile-lru", "100mb", "yes"},
		{"allkeys-random", "100mb", "no"},
	} {
		own := testredis.Start(t, testredis.Config("maxmemory", c.memory), testredis.Config("maxmemory-policy", c.policy),
			testredis.Config("lazyfree-lazy-expire", c.lazy))
		advice := open(t, own.URL(), redisstore.Options{}).Advise(t.Context())
		text := strings.Join(advice, "\n")
		evicts, blocks := c.policy != "noeviction", c.lazy == "no"
		if strings.Contains(text, "maxmemory-policy is "+c.policy) != evicts || strings.Contains(text, "lazyfree-lazy-expire") != blocks {
			t.Errorf("%+v: %q", c, advice)
		}
		if lazy, err := own.Do("CONFIG", "GET", "lazyfree-lazy-expire"); err != nil || fmt.Sprint(lazy) != fmt.Sprint([]any{"lazyfree-lazy-expire", c.lazy}) {
			t.Errorf("it is %v now: %v", lazy, err)
		}
	}
}

// Each primary of a cluster is asked, also whether it decides without the others.
func TestAdviseCluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, testredis.Config("lazyfree-lazy-expire", "yes"),
		testredis.Config("cluster-require-full-coverage", "no"))
	store := open(t, cluster.URL(), redisstore.Options{})
	for i, setting := range []string{"lazyfree-lazy-expire no", "cluster-require-full-coverage yes"} {
		name, value, _ := strings.Cut(setting, " ")
		must.Get(cluster.Nodes[1+i].Do("CONFIG", "SET", name, value))(t)
		advice := store.Advise(t.Context())
		if len(advice) != 1+i || !strings.Contains(strings.Join(advice, "\n"), name+" is "+value) {
			t.Errorf("%q, want %d of which one is about %s", advice, 1+i, name)
		}
	}
	alone := testredis.Start(t, testredis.Config("lazyfree-lazy-expire", "yes"), testredis.Config("cluster-require-full-coverage", "yes"))
	if advice := open(t, alone.URL(), redisstore.Options{}).Advise(t.Context()); len(advice) != 0 {
		t.Errorf("a server that is in no cluster: %q", advice)
	}
}
