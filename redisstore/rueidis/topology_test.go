package rueidis_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// crowd takes from many keys all the time, each call with a deadline, until it is
// stopped.
type crowd struct {
	t        *testing.T
	store    *redisstore.Store
	policy   *stint.Policy
	keys     []string
	admitted []atomic.Int64 // by key
	errors   atomic.Int64
	longest  atomic.Int64 // call, in nanoseconds
	lastErr  atomic.Value
	patience time.Duration // of each call
	stop     func()
}

// The deadline of a call that may be in vain, and of one that must not be.
const (
	shortPatience = 100 * time.Millisecond
	longPatience  = 30 * time.Second
)

func newCrowd(t *testing.T, store *redisstore.Store, keys, callers int, limit int64, patience time.Duration) *crowd {
	t.Helper()
	c := &crowd{t: t, store: store, policy: policyOf(t, "crowd", aLimit(stint.AlgorithmFixedWindow, limit)), patience: patience}
	c.admitted = make([]atomic.Int64, keys)
	for i := range keys {
		c.keys = append(c.keys, fmt.Sprint("key", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for i := caller; ctx.Err() == nil; i++ {
				c.take(i % keys)
			}
		})
	}
	c.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

func (c *crowd) take(key int) {
	// Not of the crowd's own context: its end would leave permits nobody counts.
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	start := time.Now()
	d, err := c.store.Decide(ctx, op(stint.VerbTake, c.keys[key], c.policy, 1))
	if took := int64(time.Since(start)); took > c.longest.Load() {
		c.longest.Store(took)
	}
	switch {
	case err != nil:
		c.errors.Add(1)
		c.lastErr.Store(err.Error())
	case d.Allowed:
		c.admitted[key].Add(1)
	}
}

// well waits until every key is decided again.
func (c *crowd) well() {
	c.t.Helper()
	for _, key := range c.keys {
		until(c.t, key+" is decided again", func() bool {
			ctx, cancel := context.WithTimeout(c.t.Context(), shortPatience)
			defer cancel()
			_, err := c.store.Decide(ctx, op(stint.VerbPeek, key, c.policy, 1))
			return err == nil
		})
	}
}

// check stops and checks that nothing failed, and that each permit was counted once.
func (c *crowd) check(limit int64) {
	c.t.Helper()
	c.stop()
	if n := c.errors.Load(); n > 0 {
		c.t.Errorf("%d calls failed, such as: %v", n, c.lastErr.Load())
	}
	for i, key := range c.keys {
		spent := limit - decide(c.t, c.store, op(stint.VerbPeek, key, c.policy, 1)).Remaining
		if n := c.admitted[i].Load(); n != spent {
			c.t.Errorf("key %d: %d were admitted, and %d are counted", i, n, spent)
		}
	}
	c.t.Logf("the longest call took %v", time.Duration(c.longest.Load()))
}

var reshardAll = flag.Bool("reshard", false, "move every slot of a cluster, not some of one node")

// Slots that redis-cli moves back and forth under load: nothing fails, and nothing is counted
// twice or lost.
func TestReshard(t *testing.T) {
	t.Parallel()
	const limit = 1_000_000
	// A primary without slots stays one.
	cluster := testredis.StartCluster(t, 3, testredis.Config("cluster-allow-replica-migration", "no"))
	// Every 64th slot has keys.
	store := openURL(t, cluster.URL(), redisstore.Options{Partitions: 256, DenialCache: -1})
	nodes, slots, callers := cluster.Nodes[:1], 65, 8 // more callers leave redis-cli no processor
	if *reshardAll {
		nodes, slots, callers = cluster.Nodes, 5461, 64
	}
	c := newCrowd(t, store, 1024, callers, limit, longPatience)
	c.well()
	for i, from := range nodes {
		to := cluster.Nodes[(i+1)%len(cluster.Nodes)]
		reshard(t, cluster, from, to, slots)
		reshard(t, cluster, to, from, slots)
	}
	c.well()
	c.check(limit)
}

// reshard moves so many slots of one primary to another by redis-cli, with the keys in them, and
// waits until all nodes know the same holders of all slots: before, they can't be moved again.
func reshard(t *testing.T, cluster *testredis.Cluster, from, to *testredis.Server, slots int) {
	t.Helper()
	ask := func(node *testredis.Server, args ...any) any {
		return must.Get(node.Do(args...))(t)
	}
	cli := exec.CommandContext(t.Context(), "redis-cli", "--cluster", "reshard", cluster.Nodes[0].Addr(), "--cluster-yes", "--cluster-slots", strconv.Itoa(slots),
		"--cluster-from", fmt.Sprint(ask(from, "CLUSTER", "MYID")), "--cluster-to", fmt.Sprint(ask(to, "CLUSTER", "MYID")))
	if out, err := cli.CombinedOutput(); err != nil {
		t.Fatalf("redis-cli: %v\n%s", err, out[max(0, len(out)-1000):])
	}
	until(t, "all nodes agree", func() bool {
		views := map[string]bool{}
		for _, node := range cluster.Nodes {
			var view []string
			for _, entry := range ask(node, "CLUSTER", "SLOTS").([]any) {
				e := entry.([]any)
				view = append(view, fmt.Sprint(e[0], e[1], e[2].([]any)[1]))
			}
			slices.Sort(view)
			views[strings.Join(view, ",")] = true
		}
		return len(views) == 1
	})
}

// A primary of a cluster, or one with sentinels, that is killed or stops in its tracks: a replica decides
// when it has taken over.
func TestPrimaryGone(t *testing.T) {
	t.Parallel()
	clustered := func(t *testing.T) (url string, primary *testredis.Server, replicas []*testredis.Server) {
		cluster := testredis.StartCluster(t, 3, testredis.Replicas(1), testredis.GoneAfter(2*time.Second))
		return cluster.URL(), cluster.Nodes[0], cluster.Replicas[:1]
	}
	watched := func(t *testing.T) (url string, primary *testredis.Server, replicas []*testredis.Server) {
		watched := testredis.StartSentinel(t, testredis.GoneAfter(time.Second))
		return watched.URL(), watched.Primary, watched.Replicas
	}
	for name, c := range map[string]struct {
		start func(t *testing.T) (url string, primary *testredis.Server, replicas []*testredis.Server)
		end   func(*testredis.Server) error
	}{
		"cluster, killed": {clustered, (*testredis.Server).Kill}, "cluster, paused": {clustered, (*testredis.Server).Pause},
		"sentinels, killed": {watched, (*testredis.Server).Kill}, "sentinels, paused": {watched, (*testredis.Server).Pause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, primary, replicas := c.start(t)
			crowd := newCrowd(t, openURL(t, url, redisstore.Options{}), 64, 16, 1_000_000, shortPatience)
			crowd.well()
			must.Do(t, c.end(primary))
			until(t, "calls fail", func() bool { return crowd.errors.Load() > 0 })
			until(t, "a replica takes over", func() bool {
				return slices.ContainsFunc(replicas, func(replica *testredis.Server) bool {
					info, err := replica.Info("replication")
					return err == nil && info["role"] == "master"
				})
			})
			start := time.Now()
			crowd.well()
			t.Logf("exact again %v after a replica became the primary", time.Since(start))
		})
	}
}

// A primary that is replaced while it lives, first by sentinels and then by hand: the
// store goes to the new one.
func TestPrimaryDemoted(t *testing.T) {
	t.Parallel()
	watched := testredis.StartSentinel(t)
	store := openURL(t, watched.URL(), redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 1_000_000))
	take(t, store, "k", policy, 1)
	watched.Failover(t)
	moved := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), shortPatience)
		defer cancel()
		before := must.Get(watched.Primary.Info("commandstats"))(t)
		if _, err := store.Decide(ctx, op(stint.VerbTake, "k", policy, 1)); err != nil {
			return false
		}
		after := must.Get(watched.Primary.Info("commandstats"))(t)
		return before["cmdstat_evalsha"] != after["cmdstat_evalsha"]
	}
	until(t, "it decides on the new primary", moved)
}

// A single server that becomes a replica refuses writes; made a primary again, it
// decides.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	own, other := testredis.Start(t), testredis.Start(t)
	store := openURL(t, own.URL(), redisstore.Options{DenialCache: -1})
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 1_000_000))
	take(t, store, "k", policy, 1)
	host, port := must.Two(net.SplitHostPort(other.Addr()))(t)
	for _, command := range [][]any{{"REPLICAOF", host, port}, {"REPLICAOF", "NO", "ONE"}} {
		must.Get(own.Do(command...))(t)
		refused := command[1] == host
		until(t, fmt.Sprint(command...), func() bool {
			_, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
			if err != nil && !errors.Is(err, stint.ErrUnavailable) {
				t.Fatal(err)
			}
			return (err != nil) == refused
		})
	}
}
