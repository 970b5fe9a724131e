package goredis_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// plain is what a connection would be without this package's care.
type plain struct {
	redis.UniversalClient
}

func newPlain(_ testing.TB, client redis.UniversalClient) redisconn.Conn { return plain{client} }

func (p plain) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
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

func (plain) Ready(context.Context) error                                   { return nil }
func (plain) Subscribe(context.Context, string, func(), func(string)) error { return nil }
func (plain) Cluster() bool                                                 { return true }
func (plain) Servers(context.Context) ([]redisconn.Server, error)           { return nil, nil }
func (plain) Reads() uint64                                                 { return 0 }
func (plain) Behind() bool                                                  { return false }
func (plain) ScriptLoads() uint64                                           { return 0 }
func (plain) Close()                                                        {}

// all says that one server has all slots.
func all(addr string) func(context.Context) ([]redis.ClusterSlot, error) {
	return func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
}

// hangUp is a server that greets, and hangs up on every script that it has received, without
// a reply: the client can't know whether that was executed. It returns its address, and how many scripts
// were received.
func hangUp(t testing.TB) (addr string, scripts *atomic.Int64) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) //nolint:noctx // it listens at once
	scripts = &atomic.Int64{}
	var serving sync.WaitGroup
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		in := bufio.NewReader(conn)
		for {
			sent, err := testredis.ReadReply(in)
			if err != nil || len(sent.Items) == 0 {
				return
			}
			reply := "+OK\r\n"
			switch strings.ToLower(sent.Items[0].Text) {
			case "evalsha", "eval":
				scripts.Add(1)
				return
			case "command":
				reply = "*0\r\n"
			case "hello":
				reply = "-ERR unknown command 'HELLO'\r\n"
			case "get": // the number of partitions
				reply = "$2\r\n16\r\n"
			}
			if _, err := io.WriteString(conn, reply); err != nil {
				return
			}
		}
	}
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String(), scripts
}

// A server that hangs up after it has received a take has received it once, however often the client
// sends other commands again.
func TestTakeArrivesOnce(t *testing.T) {
	for name, client := range map[string]func(addr string) redis.UniversalClient{
		"single": func(addr string) redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) },
		"cluster": func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all(addr)})
		},
		"cluster that retries": func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: all(addr), MaxRetries: 3})
		},
	} {
		for how, conn := range map[string]struct {
			conn  func(testing.TB, redis.UniversalClient) redisconn.Conn
			again bool
		}{"by New": {newConn, false}, "by go-redis alone": {newPlain, true}} {
			t.Run(name+" "+how, func(t *testing.T) {
				leakless(t)
				addr, scripts := hangUp(t)
				c := conn.conn(t, closing(t, client(addr)))
				t.Cleanup(c.Close)
				_, err := c.Eval(t.Context(), &redisconn.Script{Source: "return 1", Digest: "abc"}, []string{"k"}, nil)
				if err == nil {
					t.Error("a decision out of nowhere")
				}
				if n := scripts.Load(); (n > 1) != conn.again || n == 0 {
					t.Errorf("it arrived %d times", n)
				}
			})
		}
	}
}

// A node asks for patience while a slot moves: the command is sent until it is executed.
func TestPatienceWhileSlotsMove(t *testing.T) {
	leakless(t)
	nodes := testredis.StartCluster(t, 2)
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()}))
	conn := newConn(t, client)
	const one, other = "{b}1", "{b}2" // their slot is 3300, of the first node
	must.Get(conn.Do(t.Context(), "SET", one, "1"))(t)
	id := must.Get(nodes.Nodes[1].Do("CLUSTER", "MYID"))(t)
	must.Get(nodes.Nodes[0].Do("CLUSTER", "SETSLOT", 3300, "MIGRATING", id))(t)
	answered := make(chan error, 1)
	go func() {
		const source = "return redis.call('GET', KEYS[1])"
		_, err := conn.Eval(t.Context(), &redisconn.Script{Source: source, Digest: redis.NewScript(source).Hash()}, []string{one, other}, nil)
		answered <- err
	}()
	for {
		info := must.Get(nodes.Nodes[0].Info("errorstats"))(t)
		if strings.HasPrefix(info["errorstat_TRYAGAIN"], "count=") {
			break
		}
	}
	must.Get(nodes.Nodes[0].Do("CLUSTER", "SETSLOT", 3300, "STABLE"))(t)
	if err := <-answered; err != nil {
		t.Error(err)
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
		conn   func(testing.TB, redis.UniversalClient) redisconn.Conn
		fails  bool
		taken  string // by a take before the cut and one that is cut
	}{
		"single":                            {standalone(0), newConn, true, "2"},
		"single, no retry":                  {standalone(-1), newConn, true, "2"},
		"cluster":                           {cluster, newConn, true, "2"},
		"go-redis alone, single":            {standalone(0), newPlain, false, "3"},
		"go-redis alone, cluster":           {cluster, newPlain, false, "3"},
		"go-redis alone, single, no retry":  {standalone(-1), newPlain, true, "2"},
		"go-redis alone, single, one retry": {standalone(1), newPlain, false, "3"},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			way := startProxy(t, server.Addr())
			conn := c.conn(t, closing(t, c.client(way.addr())))
			t.Cleanup(conn.Close)
			// Not by a store, which has other commands under way.
			const source = "return tostring(redis.call('INCR', KEYS[1]))"
			keys := []string{"charged" + strconv.FormatInt(prefixes.Add(1), 10)}
			take := func() (string, error) {
				return conn.Eval(t.Context(), &redisconn.Script{Source: source, Digest: redis.NewScript(source).Hash()}, keys, nil)
			}
			if got, err := take(); err != nil || got != "1" {
				t.Fatalf("%q are taken (%v), want 1", got, err)
			}
			way.cutNext()
			got, err := take()
			if !way.cut() {
				t.Fatal("no reply was cut")
			}
			if _, replied := redisconn.Reply(err); (err != nil) != c.fails || replied {
				t.Errorf("%q are taken: got %v, want a failure: %t", got, err, c.fails)
			}
			if taken, err := conn.Do(t.Context(), "GET", keys[0]); err != nil || taken != c.taken {
				t.Errorf("%q are taken (%v), want %s", taken, err, c.taken)
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
		o := op(stint.VerbTake, policy)
		o.Key = key
		if d, err := store.Decide(t.Context(), o); err != nil || d.Remaining != 9 {
			t.Errorf("%s: %+v (%v), want 9 to remain", key, d, err)
		}
	}
	errs := 0
	for _, node := range nodes.Nodes {
		info := must.Get(node.Info("errorstats"))(t)
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
		id := must.Get(c.other.Do("CLUSTER", "MYID"))(t)
		must.Get(c.node.Do("CLUSTER", "SETSLOT", 3300, c.state, id))(t)
	}
	conn := newConn(t, closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes.Addrs()})))
	const source = "return tostring(redis.call('INCRBY', KEYS[1], ARGV[1]))"
	script := &redisconn.Script{Source: source, Digest: redis.NewScript(source).Hash()}
	for _, want := range []string{"2", "4", "6"} {
		if got, err := conn.Eval(t.Context(), script, []string{key}, []string{"2"}); err != nil || got != want {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
	info := must.Get(from.Info("errorstats"))(t)
	if !strings.HasPrefix(info["errorstat_ASK"], "count=") {
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
