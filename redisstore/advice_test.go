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
	own := testredis.Start(t)
	store := open(t, own.URL(), redisstore.Options{})
	set := func(policy, memory, lazy string) {
		for name, value := range map[string]string{
			"maxmemory-policy": policy, "maxmemory": memory, "lazyfree-lazy-expire": lazy,
		} {
			must.Get(own.Do("CONFIG", "SET", name, value))(t)
		}
	}
	for _, c := range [...]struct{ policy, memory, lazy string }{
		{"noeviction", "100mb", "yes"},
		{"noeviction", "0", "no"},
		{"volatile-ttl", "100mb", "yes"},
		{"volatile-ttl", "0", "no"},
		{"allkeys-lru", "100mb", "yes"},
		{"volatile-lru", "100mb", "yes"},
		{"allkeys-random", "100mb", "no"},
	} {
		set(c.policy, c.memory, c.lazy)
		advice := store.Advise(t.Context())
		text := strings.Join(advice, "\n")
		evicts, blocks := c.policy != "noeviction", c.lazy == "no"
		if strings.Contains(text, "maxmemory-policy is "+c.policy) != evicts || strings.Contains(text, "lazyfree-lazy-expire") != blocks {
			t.Errorf("%+v: %q", c, advice)
		}
		if lazy, err := own.Do("CONFIG", "GET", "lazyfree-lazy-expire"); err != nil || fmt.Sprint(lazy) != fmt.Sprint([]any{"lazyfree-lazy-expire", c.lazy}) {
			t.Errorf("it is %v now: %v", lazy, err)
		}
	}
	set("noeviction", "0", "yes")
	must.Get(own.Do("CONFIG", "SET", "cluster-require-full-coverage", "yes"))(t)
	if advice := store.Advise(t.Context()); len(advice) != 0 {
		t.Errorf("a server that is in no cluster: %q", advice)
	}
}

// Each primary of a cluster is asked, also whether it decides without the others.
func advisesCluster(t *testing.T, cluster *testredis.Cluster) {
	store := open(t, cluster.URL(), redisstore.Options{})
	for i, setting := range [][3]string{
		{"lazyfree-lazy-expire", "no", "yes"}, {"cluster-require-full-coverage", "yes", "no"},
	} {
		name, value := setting[0], setting[1]
		must.Get(cluster.Nodes[1+i].Do("CONFIG", "SET", name, value))(t)
		advice := store.Advise(t.Context())
		if len(advice) != 1 || !strings.Contains(advice[0], name+" is "+value) {
			t.Errorf("%q, want that one is about %s", advice, name)
		}
		must.Get(cluster.Nodes[1+i].Do("CONFIG", "SET", name, setting[2]))(t)
	}
}
