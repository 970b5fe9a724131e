package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// Processes count each other: new ones, those that leave and those that fell
// silent, also after the clock was set back. Without an answer the last
// count stands.
func TestInstances(t *testing.T) {
	own := testredis.Start(t)
	var now atomic.Int64
	now.Store(int64(dawn))
	options := redisstore.Options{CountInstances: true, Now: func() time.Time { return time.UnixMicro(now.Load()) }}
	var stores []*redisstore.Store
	for range 3 {
		stores = append(stores, open(t, own.URL(), options))
	}
	beat := func(want ...int) {
		t.Helper()
		for i, store := range stores {
			if want[i] == 0 {
				continue // a process that has died
			}
			must.Do(t, store.Beat(t.Context()))
			if got := store.Instances(); got != want[i] {
				t.Errorf("process %d counts %d, want %d", i, got, want[i])
			}
		}
	}
	const second = 1_000_000
	for i, store := range stores {
		if got := store.Instances(); got != 1 {
			t.Errorf("process %d counts %d before any answer, want 1", i, got)
		}
	}
	beat(1, 2, 3)
	now.Add(6 * second)
	beat(3, 3, 0)
	now.Add(5 * second)
	beat(2, 2, 0)
	now.Add(-3600 * second)
	beat(1, 2, 3)
	stores[2].Close()
	beat(2, 2, 0)
	if parts := stores[0].Watch(time.Second, func(int, error) {}); parts.Count != 1 || parts.Of("k") != 0 {
		t.Errorf("%d parts of a single server", parts.Count)
	}
	must.Do(t, own.Kill())
	if err := stores[0].Beat(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	if got := stores[0].Instances(); got != 2 {
		t.Errorf("%d are counted while the server is unreachable, want the last count, 2", got)
	}
}

// Heartbeats go by themselves, and only if asked for.
func instancesOfCluster(t *testing.T, cluster *testredis.Cluster) {
	silent := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "instances"})
	first := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "instances", CountInstances: true})
	second := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "instances", CountInstances: true})
	until(t, "both are counted", func() bool { return max(first.Instances(), second.Instances()) == 2 })
	if got := silent.Instances(); got != 1 {
		t.Errorf("a store that does not count says %d, want 1", got)
	}
	parts := silent.Watch(time.Second, func(int, error) {})
	if parts.Count != redisstore.DefaultClusterPartitions {
		t.Errorf("%d parts, want %d", parts.Count, redisstore.DefaultClusterPartitions)
	}
	for _, key := range []string{"a", "b", "{a}c", "user:1"} {
		if got, want := parts.Of(key), silent.Partition(key); got != want {
			t.Errorf("%s is in part %d, want %d", key, got, want)
		}
	}
}
