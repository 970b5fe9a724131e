package goredis_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// plain is what a connection would be without this package's care.
type plain struct {
	redis.UniversalClient
}

func newPlain(_ testing.TB, client redis.UniversalClient) redisstore.Conn { return plain{client} }

func (p plain) Eval(ctx context.Context, script *redisstore.Script, keys, args []string) (string, error) {
	list := make([]any, len(args))
	for i, arg := range args {
		list[i] = arg
	}
	return redis.NewScript(script.Source).Run(ctx, p.UniversalClient, keys, list...).Text()
}

func (p plain) Do(ctx context.Context, args ...string) (string, error) {
	list := make([]any, len(args))
	for i, arg := range args {
		list[i] = arg
	}
	text, err := p.UniversalClient.Do(ctx, list...).Text()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return text, err
}

func (plain) Subscribe(context.Context, string, func(), func(string)) error { return nil }
func (plain) Cluster() bool                                                 { return true }
func (plain) Close()                                                        {}

// all says that one server has all slots.
func all(addr string) func(context.Context) ([]redis.ClusterSlot, error) {
	return func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
}

// A reply that breaks off leaves open whether permits were taken: the caller hears of
// it, and they were taken once. A client with its default retries takes them twice and
// says nothing.
func TestChargesOnce(t *testing.T) {
	standalone := func(retries int) func(addr string) redis.UniversalClient {
		return func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: retries})
		}
	}
	cluster := func(addr string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all(addr)})
	}
	for name, c := range map[string]struct {
		client func(addr string) redis.UniversalClient
		conn   func(testing.TB, redis.UniversalClient) redisstore.Conn
		fails  bool
		left   int64 // of 10, after a take before the cut and one that is cut
	}{
		"single":                            {standalone(-1), newConn, true, 8},
		"cluster":                           {cluster, newConn, true, 8},
		"go-redis alone, single":            {standalone(0), newPlain, false, 7},
		"go-redis alone, cluster":           {cluster, newPlain, false, 7},
		"go-redis alone, single, no retry":  {standalone(-1), newPlain, true, 8},
		"go-redis alone, single, one retry": {standalone(1), newPlain, false, 7},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			way := startProxy(t, server.Addr())
			// Without a denial cache no subscription's reply is in the way.
			store := storeOn(t, c.conn(t, closing(t, c.client(way.addr()))), redisstore.Options{DenialCache: -1})
			policy := ten(t)
			if got := left(t, store, stint.Take, policy); got != 9 {
				t.Fatalf("%d remain, want 9", got)
			}
			way.cutNext()
			d, err := store.Decide(t.Context(), op(stint.Take, policy))
			if !way.cut() {
				t.Fatal("no reply was cut")
			}
			if c.fails {
				if !errors.Is(err, stint.ErrUnavailable) || d != (stint.Decision{}) {
					t.Errorf("got %+v and %v, want %v and no decision", d, err, stint.ErrUnavailable)
				}
			} else if err != nil {
				t.Error(err)
			}
			if got := left(t, store, stint.Peek, policy); got != c.left {
				t.Errorf("%d remain, want %d", got, c.left)
			}
		})
	}
}

// When a key has moved, its command follows: it was not executed where it was sent
// first.
func TestFollowsMovedKeys(t *testing.T) {
	leakless(t)
	nodes := testredis.StartCluster(t, 3)
	// The client takes the first node for the owner of everything.
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all(nodes.Nodes[0].Addr())}))
	conn := newConn(t, client)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if _, err := conn.Do(t.Context(), "SET", key, key); err != nil {
			t.Errorf("SET: %v", err)
		}
		if got, err := conn.Do(t.Context(), "GET", key); err != nil || got != key {
			t.Errorf("GET %s: %q (%v)", key, got, err)
		}
	}
	store := storeOn(t, conn, redisstore.Options{})
	policy := ten(t)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		o := op(stint.Take, policy)
		o.Key = key
		if d, err := store.Decide(t.Context(), o); err != nil || d.Remaining != 9 {
			t.Errorf("%s: %+v (%v), want 9 to remain", key, d, err)
		}
	}
	errs := 0
	for _, node := range nodes.Nodes {
		info, err := node.Info("errorstats")
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info["errorstat_MOVED"], "count=") {
			errs++
		}
	}
	if errs != 1 {
		t.Errorf("%d nodes sent the client elsewhere, want the first alone", errs)
	}
}

// While a key's slot moves, its command follows too.
func TestFollowsMovingKeys(t *testing.T) {
	leakless(t)
	nodes := testredis.StartCluster(t, 2)
	from, to := nodes.Nodes[0], nodes.Nodes[1]
	const key = "{b}" // its slot is 3300, of the first node
	for _, c := range []struct {
		node  *testredis.Server
		state string
		other *testredis.Server
	}{{to, "IMPORTING", from}, {from, "MIGRATING", to}} {
		id, err := c.other.Do("CLUSTER", "MYID")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.node.Do("CLUSTER", "SETSLOT", 3300, c.state, id); err != nil {
			t.Fatal(err)
		}
	}
	conn := newConn(t, closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()})))
	const source = "return tostring(redis.call('INCRBY', KEYS[1], ARGV[1]))"
	script := &redisstore.Script{Source: source, Digest: redis.NewScript(source).Hash()}
	for _, want := range []string{"2", "4", "6"} {
		if got, err := conn.Eval(t.Context(), script, []string{key}, []string{"2"}); err != nil || got != want {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
	info, err := from.Info("errorstats")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(info["errorstat_ASK"], "count=") {
		t.Error("the first node sent the client nowhere")
	}
}

// After a failure of the network a cluster client looks who has the slots now.
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
	if _, err := conn.Do(t.Context(), "GET", "nothing"); err != nil {
		t.Fatal(err)
	}
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
