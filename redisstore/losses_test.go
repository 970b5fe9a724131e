package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
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

// Each primary of a cluster is asked.
func TestAdviseCluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, testredis.Config("lazyfree-lazy-expire", "yes"))
	if _, err := cluster.Nodes[1].Do("CONFIG", "SET", "lazyfree-lazy-expire", "no"); err != nil {
		t.Fatal(err)
	}
	if advice := open(t, cluster.URL(), redisstore.Options{}).Advise(t.Context()); len(advice) != 1 {
		t.Errorf("%q, want the one", advice)
	}
}

// A hash that is gone while its states matter is noticed with the next reply, and once. What
// turns, dies, is swept, reset or forgotten is not.
func TestLosses(t *testing.T) {
	const cur, prev = ":cur", ":prev"
	limit := stint.FixedWindow(100, 10*time.Second) // states live for 11 s
	for name, c := range map[string]struct {
		turned bool          // whether there is a prev
		gone   []string      // what is deleted
		also   time.Duration // that pass then
		lost   uint64
	}{
		"nothing":                {true, nil, 0, 0},
		"cur":                    {false, []string{cur}, 0, 1},
		"cur, before it is dead": {false, []string{cur}, 15 * time.Second, 1},
		"cur, when it is dead":   {false, []string{cur}, 22 * time.Second, 0},
		"cur of two":             {true, []string{cur}, 0, 1},
		"prev":                   {true, []string{prev}, 0, 1},
		"prev, when it is dead":  {true, []string{prev}, 11 * time.Second, 0},
		"both":                   {true, []string{cur, prev}, 0, 1},
		"a turn":                 {true, nil, 12 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			store, prefix := storeOn(t, newConn(t), redisstore.Options{Now: clock.Now, Partitions: 1})
			policy := policyOf(t, "a:b", limit)
			pass := func(d time.Duration) {
				clock.Advance(d)
				take(t, store, "k", policy, 1)
			}
			take(t, store, "k", policy, 1)
			pass(time.Second)
			if c.turned {
				pass(11 * time.Second)
				pass(time.Second)
			}
			for _, key := range keysOf(t, prefix) {
				for _, gone := range c.gone {
					if strings.HasSuffix(key, gone) {
						redis(t, "DEL", key)
					}
				}
			}
			clock.Advance(c.also)
			for i := range 4 { // others, which are not found in cur
				clock.Advance(time.Microsecond)
				take(t, store, fmt.Sprint("other", i), policy, 1)
			}
			if got := store.Losses().Hashes; got != c.lost {
				t.Errorf("%d were lost, want %d", got, c.lost)
			}
		})
	}
}

// A policy that is reset, here or elsewhere, is not lost.
func TestResetIsNotLost(t *testing.T) {
	own, store, elsewhere := listening(t, redisstore.Options{})
	policy := policyOf(t, "p", stint.FixedWindow(100, time.Hour))
	for _, forgets := range []*redisstore.Store{store, elsewhere} {
		for range 2 {
			take(t, store, "k", policy, 1)
		}
		resetPolicy(t, forgets, "p")
		<-own.heard
		take(t, store, "k", policy, 1)
		if lost := store.Losses(); lost.Hashes != 0 {
			t.Errorf("%+v, want nothing lost", lost)
		}
	}
}

// Evictions are counted from when a process first asks, and their hashes are missed.
func TestEvictions(t *testing.T) {
	own := testredis.Start(t, testredis.Config("maxmemory-policy", "allkeys-random"))
	reports := make(chan redisstore.Loss, 10)
	store := open(t, own.URL(), redisstore.Options{Partitions: 16, OnLoss: func(l redisstore.Loss) { reports <- l }})
	policy := policyOf(t, "", stint.FixedWindow(100, time.Hour))
	fill := func() {
		for i := range 200 {
			take(t, store, fmt.Sprint("k", i), policy, 1)
		}
	}
	fill()
	fill()
	until(t, "evictions were asked for", func() bool { store.AskEvictions(t.Context()); return store.Stats().Lost == redisstore.Loss{} })
	for _, memory := range []string{"1", "0"} { // everything goes
		if _, err := own.Do("CONFIG", "SET", "maxmemory", memory); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	store.AskEvictions(t.Context())
	if lost := store.Losses(); lost.Hashes < 10 || lost.Evicted < 16 {
		t.Errorf("%+v, want 16 hashes and keys or about as many", lost)
	}
	if l := <-reports; l == (redisstore.Loss{}) { // it may come before all are missed
		t.Errorf("%+v is reported", l)
	}
}
