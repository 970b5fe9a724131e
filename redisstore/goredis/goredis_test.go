package goredis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/goredis"
)

func TestCluster(t *testing.T) {
	cluster := testredis.StartCluster(t, 3, settings...)
	for name, test := range map[string]func(*testing.T, *testredis.Cluster){
		"conforms": clusterConforms, "advice": advises, "servers": serversTooLate, "nodes": decidesOnAllNodes,
		"commands": replies, "patience": waitsWhileSlotsMove, "moved": followsMovedKeys,
		"moving": followsMovingKeys, "subscriptions": subscribes,
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			test(t, cluster)
		})
	}
}

// A batch of many keys is decided by all nodes of a cluster.
func decidesOnAllNodes(t *testing.T, cluster *testredis.Cluster) {
	store := storeOn(t, newConn(t, clustered(t, cluster)), redisstore.Options{})
	policy := ten(t)
	ops := make([]stint.Op, 300)
	for i := range ops {
		ops[i] = op(stint.VerbTake, policy)
		ops[i].Key = strconv.Itoa(i % 100)
	}
	results := make([]stint.Result, len(ops))
	store.DecideAll(t.Context(), ops, results)
	for i, r := range results {
		if want := int64(9 - i/100); r.Err != nil || r.Decision.Remaining != want {
			t.Errorf("operation %d: %+v, want %d to remain", i, r, want)
		}
	}
	for _, node := range cluster.Nodes {
		stats := must.Get(node.Info("commandstats"))(t)
		if stats["cmdstat_eval"] == "" && stats["cmdstat_evalsha"] == "" {
			t.Errorf("%s decided nothing", node.Addr())
		}
	}
}

// A client of Sentinel's finds the primary.
func TestSentinel(t *testing.T) {
	leakless(t)
	sentinel := testredis.StartSentinel(t)
	var addrs []string
	for _, s := range sentinel.Sentinels {
		addrs = append(addrs, s.Addr())
	}
	client := closing(t, redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "stint", SentinelAddrs: addrs, MaxRetries: -1,
	}))
	store := storeOn(t, newConn(t, client), redisstore.Options{})
	policy := ten(t)
	if got := left(t, store, stint.VerbTake, policy); got != 9 {
		t.Errorf("%d remain, want 9", got)
	}
	if port, err := client.ConfigGet(t.Context(), "port").Result(); err != nil || !strings.HasSuffix(sentinel.Primary.Addr(), ":"+port["port"]) {
		t.Errorf("connected to port %s (%v), not to the primary at %s", port["port"], err, sentinel.Primary.Addr())
	}
}

func TestRefusal(t *testing.T) {
	leakless(t)
	const allowed = "; allowed: *redis.Client or *redis.ClusterClient of go-redis v9; " +
		"a ring would spread the keys of one script over several servers"
	addr := server.Addr()
	at := []string{addr}
	pipeline := must.Get(single(t, addr).AutoPipeline())(t)
	for name, c := range map[string]struct {
		client redis.UniversalClient
		want   string // "" if it is accepted
	}{
		"default retries":        {redis.NewClient(&redis.Options{Addr: addr}), ""},
		"sentinel":               {redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "stint", SentinelAddrs: at}), ""},
		"cluster, three retries": {redis.NewClusterClient(&redis.ClusterOptions{Addrs: at, MaxRetries: 3}), ""},
		"cluster, replicas": {
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: at, RouteByLatency: true}),
			"ReadOnly is true; allowed: false, and neither RouteByLatency nor RouteRandomly, as replicas lag",
		},

		"ring":         {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}, MaxRetries: -1}), `client is "*redis.Ring"` + allowed},
		"autopipeline": {pipeline, `client is "*redis.AutoPipeliner"` + allowed},
		"none":         {nil, `client is "<nil>"` + allowed},
		"no single":    {(*redis.Client)(nil), `client is "nil"` + allowed},
		"no cluster":   {(*redis.ClusterClient)(nil), `client is "nil"` + allowed},
	} {
		t.Run(name, func(t *testing.T) {
			switch c.client {
			case nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), redis.UniversalClient(pipeline):
			default:
				closing(t, c.client)
			}
			conn, err := goredis.New(c.client)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_, cluster := c.client.(*redis.ClusterClient)
				if conn.Cluster() != cluster {
					t.Errorf("cluster: %t", conn.Cluster())
				}
				conn.Close()
				return
			}
			if !errors.Is(err, stint.ErrInvalid) || err.Error() != "stint: "+c.want || conn != nil {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// Do replies with strings, and with "" for nil.
func replies(t *testing.T, cluster *testredis.Cluster) {
	// One that sends commands to as many nodes as the server recommends.
	routed := clustered(t, cluster)
	routed.SetCommandInfoResolver(routed.NewDynamicResolver())
	for name, client := range map[string]redis.UniversalClient{
		"single":          single(t, server.Addr()),
		"cluster":         clustered(t, cluster),
		"routing cluster": routed,
	} {
		conn, key := newConn(t, client), "do"+strconv.FormatInt(prefixes.Add(1), 10)
		for _, c := range []struct {
			want string
			args []string
		}{
			{"PONG", []string{"PING"}},
			{"", []string{"GET", key}},
			{"OK", []string{"SET", key, "a\r\nb", "NX"}},
			{"", []string{"SET", key, "c", "NX"}},
			{"a\r\nb", []string{"GET", key}},
			{"4", []string{"STRLEN", key}},
		} {
			if got, err := conn.Do(t.Context(), c.args...); err != nil || got != c.want {
				t.Errorf("%s: %q: got %q (%v), want %q", name, c.args, got, err, c.want)
			}
		}
		got, err := conn.Do(t.Context(), "HGET", key, "field")
		if reply, ok := redisconn.Reply(err); !ok || !strings.HasPrefix(reply, "WRONGTYPE ") { // redisstore knows it, too
			t.Errorf("%s: a wrong type: got %q, %v", name, got, err)
		}
	}
}

// When the server has forgotten the script, it is sent once more, as its source, and counted as loaded.
func TestScriptFlush(t *testing.T) {
	leakless(t)
	own := testredis.Start(t)
	store := storeOn(t, newConn(t, single(t, own.Addr())), redisstore.Options{})
	must.Do(t, store.Ready(t.Context()))
	loads := store.Stats().ScriptLoads
	must.Get(own.Do("CONFIG", "RESETSTAT"))(t)
	policy := ten(t)
	for want := int64(9); want >= 5; want-- {
		must.Get(own.Do("SCRIPT", "FLUSH"))(t)
		if got := left(t, store, stint.VerbTake, policy); got != want {
			t.Errorf("%d remain, want %d", got, want)
		}
	}
	if got := left(t, store, stint.VerbPeek, policy); got != 5 {
		t.Errorf("%d remain, want 5", got)
	}
	if n := store.Stats().ScriptLoads - loads; n != 6 {
		t.Errorf("%d scripts are counted as sent whole, want 6", n)
	}
	stats := must.Get(own.Info("commandstats"))(t)
	for command, want := range map[string]string{"cmdstat_evalsha": "calls=6,", "cmdstat_eval": "calls=6,"} {
		if !strings.HasPrefix(stats[command], want) {
			t.Errorf("%s: %s, want %s…", command, stats[command], want)
		}
	}
}

// A call returns when its context ends, although go-redis would read on.
func TestContext(t *testing.T) {
	leakless(t)
	way := startProxy(t, server.Addr())
	conn := newConn(t, single(t, way.addr()))
	must.Get(conn.Do(t.Context(), "PING"))(t)
	way.dropAll()
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error)
	go func() {
		_, err := conn.Eval(ctx, &redisconn.Script{}, []string{"k"}, nil)
		answer <- err
	}()
	<-way.dropped
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// Closing a store ends what it has under way and leaves the client open.
func TestClose(t *testing.T) {
	leakless(t)
	way := startProxy(t, server.Addr())
	client := single(t, way.addr())
	conn := newConn(t, client)
	store := storeOn(t, conn, redisstore.Options{})
	other := storeOn(t, newConn(t, client), redisstore.Options{})
	policy := ten(t)
	left(t, store, stint.VerbTake, policy)
	store.Close()
	if _, err := store.Decide(t.Context(), op(stint.VerbTake, policy)); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, stint.ErrUnavailable)
	}
	const key = "closed"
	for range 100 {
		if _, err := conn.Do(t.Context(), "INCR", key); err == nil {
			t.Error("a closed connection answers")
		}
	}
	if err := client.Get(t.Context(), key).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a closed connection has sent something (%v)", err)
	}
	conn.Close() // once more is no fault
	left(t, other, stint.VerbTake, policy)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client: %v", err)
	}

	conn = newConn(t, client)
	way.dropAll()
	answer := make(chan error)
	go func() {
		_, err := conn.Do(t.Context(), "PING")
		answer <- err
	}()
	<-way.dropped
	conn.Close()
	if err := <-answer; err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("under way: got %v", err)
	}
}
