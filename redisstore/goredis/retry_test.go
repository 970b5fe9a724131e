package goredis_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
)

// all says that one server has all slots.
func all(addr string) func(context.Context) ([]redis.ClusterSlot, error) {
	return func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
}

// refused reports whether a node has replied with such an error.
func refused(t *testing.T, node *testredis.Server, kind string) bool {
	t.Helper()
	return strings.HasPrefix(must.Get(node.Info("errorstats"))(t)["errorstat_"+kind], "count=")
}

// A node asks for patience while a slot moves: the command is sent until it is executed.
func waitsWhileSlotsMove(t *testing.T, nodes *testredis.Cluster) {
	conn := newConn(t, clustered(t, nodes))
	const one, other = "{b}1", "{b}2" // their slot is 3300, of the first node
	must.Get(conn.Do(t.Context(), "SET", one, "1"))(t)
	id := must.Get(nodes.Nodes[1].Do("CLUSTER", "MYID"))(t)
	must.Get(nodes.Nodes[0].Do("CLUSTER", "SETSLOT", 3300, "MIGRATING", id))(t)
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Eval(t.Context(), redisconn.NewScript("return redis.call('GET', KEYS[1])"), []string{one, other}, nil)
		answered <- err
	}()
	for !refused(t, nodes.Nodes[0], "TRYAGAIN") {
	}
	must.Get(nodes.Nodes[0].Do("CLUSTER", "SETSLOT", 3300, "STABLE"))(t)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// A reply that breaks off leaves open whether permits were taken: the caller hears of
// it, and they were taken once, however often the client sends other commands again.
func TestChargesOnce(t *testing.T) {
	for name, client := range map[string]func(addr string) redis.UniversalClient{
		"single": func(addr string) redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) },
		"single, no retry": func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		},
		"cluster": func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all(addr)})
		},
		"cluster that retries": func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all(addr), MaxRetries: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			way := startProxy(t, server.Addr())
			conn := newConn(t, closing(t, client(way.addr())))
			t.Cleanup(conn.Close)
			// Not by a store, which has other commands under way.
			script := redisconn.NewScript("return tostring(redis.call('INCR', KEYS[1]))")
			keys := []string{"charged" + strconv.FormatInt(prefixes.Add(1), 10)}
			if got, err := conn.Eval(t.Context(), script, keys, nil); err != nil || got != "1" {
				t.Fatalf("%q are taken (%v), want 1", got, err)
			}
			way.cutNext()
			got, err := conn.Eval(t.Context(), script, keys, nil)
			if !way.cut() {
				t.Fatal("no reply was cut")
			}
			if _, replied := redisconn.Reply(err); err == nil || replied {
				t.Errorf("%q are taken: got %v, want a failure", got, err)
			}
			if taken, err := conn.Do(t.Context(), "GET", keys[0]); err != nil || taken != "2" {
				t.Errorf("%q are taken (%v), want 2", taken, err)
			}
		})
	}
}

// When a key has moved, its command follows: it was not executed where it was sent
// first.
func followsMovedKeys(t *testing.T, nodes *testredis.Cluster) {
	for _, node := range nodes.Nodes {
		must.Get(node.Do("CONFIG", "RESETSTAT"))(t)
	}
	// The client takes the first node for the owner of everything.
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all(nodes.Nodes[0].Addr())}))
	conn := newConn(t, client)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if _, err := conn.Do(t.Context(), "SET", key, key); err != nil {
			t.Errorf("SET: %v", err)
		}
		got, err := conn.Eval(t.Context(), redisconn.NewScript("return redis.call('GET', KEYS[1])"), []string{key}, nil)
		if err != nil || got != key {
			t.Errorf("GET %s: %q (%v)", key, got, err)
		}
	}
	for i, node := range nodes.Nodes {
		if refused(t, node, "MOVED") != (i == 0) {
			t.Errorf("node %d: want that the first alone sends the client elsewhere", i)
		}
	}
}

// While a key's slot moves, its command follows too.
func followsMovingKeys(t *testing.T, nodes *testredis.Cluster) {
	from, to := nodes.Nodes[0], nodes.Nodes[1]
	const key = "{b}" // its slot is 3300, of the first node
	for _, c := range []struct {
		node  *testredis.Server
		state string
		other *testredis.Server
	}{{to, "IMPORTING", from}, {from, "MIGRATING", to}} {
		id := must.Get(c.other.Do("CLUSTER", "MYID"))(t)
		must.Get(c.node.Do("CLUSTER", "SETSLOT", 3300, c.state, id))(t)
		defer func() { must.Get(c.node.Do("CLUSTER", "SETSLOT", 3300, "STABLE"))(t) }()
	}
	conn := newConn(t, clustered(t, nodes))
	script := redisconn.NewScript("return tostring(redis.call('INCRBY', KEYS[1], ARGV[1]))")
	for _, want := range []string{"2", "4", "6"} {
		if got, err := conn.Eval(t.Context(), script, []string{key}, []string{"2"}); err != nil || got != want {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
	if !refused(t, from, "ASK") {
		t.Error("the first node sent the client nowhere")
	}
}

// After a failure of the network a cluster client asks which nodes have the slots now.
func TestReloadsCluster(t *testing.T) {
	leakless(t)
	way := startProxy(t, server.Addr())
	var loads atomic.Int64
	again := make(chan struct{}, 1)
	slots := all(way.addr())
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(ctx context.Context) ([]redis.ClusterSlot, error) {
			if loads.Add(1) > 1 {
				select {
				case again <- struct{}{}:
				default:
				}
			}
			return slots(ctx)
		},
	}))
	conn := newConn(t, client)
	must.Get(conn.Do(t.Context(), "GET", "nothing"))(t)
	if _, err := conn.Do(t.Context(), "SET", "nothing"); err == nil {
		t.Error("a wrong command: no error")
	}
	if n := loads.Load(); n != 1 {
		t.Errorf("the slots were loaded %d times before the failure", n)
	}
	way.cutNext()
	if _, err := conn.Do(t.Context(), "GET", "nothing"); err == nil {
		t.Error("a reply was cut and there is no error")
	}
	<-again
}
