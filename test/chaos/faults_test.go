package chaos_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// servers are those of a site: one of them.
type servers struct {
	single   *testredis.Server
	shift    func(time.Duration) // of its clock
	sentinel *testredis.Sentinel
	cluster  *testredis.Cluster
}

// durable makes a server keep what it has confirmed.
var durable = []testredis.Option{testredis.Config("appendonly", "yes"), testredis.Config("appendfsync", "always")}

// single starts one server.
func single(opts ...testredis.Option) func(t testing.TB) *site {
	return func(t testing.TB) *site {
		server := testredis.Start(t, opts...)
		return &site{url: server.URL(), servers: &servers{single: server}}
	}
}

// shifted starts one server whose clock can be shifted.
func shifted(t testing.TB) *site {
	server, shift := shiftable(t)
	return &site{url: server.URL(), servers: &servers{single: server, shift: shift}}
}

// proxied starts one server behind a proxy.
func proxied(t testing.TB) *site {
	s := single()(t)
	s.TB = t
	s.proxy = startProxy(t, s.single.Addr())
	s.url = s.proxy.url()
	return s
}

// withUser starts a server that lets the store in by name.
func withUser(t testing.TB) *site {
	s := single()(t)
	s.TB = t
	s.do("ACL", "SETUSER", "limiter", "on", ">right", "~*", "&*", "+@all")
	s.url = "redis://limiter:right@" + s.single.Addr()
	return s
}

// sentinels starts a primary with two replicas and three sentinels.
func sentinels(t testing.TB) *site {
	s := testredis.StartSentinel(t, testredis.GoneAfter(time.Second))
	return &site{url: s.URL(), servers: &servers{sentinel: s}}
}

// cluster starts three primaries with so many replicas each.
func cluster(replicas int) func(t testing.TB) *site {
	return func(t testing.TB) *site {
		c := testredis.StartCluster(t, 3, testredis.Replicas(replicas), testredis.GoneAfter(2*time.Second))
		return &site{url: c.URL(), servers: &servers{cluster: c}}
	}
}

// once is a loss of all states.
func once(*site) int { return 1 }

// back is how soon the store is to decide again after it can.
const back = 2 * time.Second

// soon is how soon it is to do so after another server has taken over.
const soon = 2 * time.Second

// silence is how a server that says nothing is told of.
var silence = []string{"does not answer"}

func faults() []fault {
	hold := map[string]any{"timeout": 0}
	does := func(command ...any) func(s *site) { return func(s *site) { s.do(command...) } }
	kill := func(s *site) { must.Do(s, s.single.Kill()) }
	restart := func(s *site) { s.single.Restart(s) }
	slow := func(ms int) func(s *site) {
		return func(s *site) { s.proxy.add("latency", fromServer, map[string]any{"latency": ms}) }
	}
	mend := func(s *site) { s.proxy.heal() }
	const while = time.Second
	return []fault{
		{
			name: "connection refused", start: proxied, lasts: while, degrades: meanwhile, causes: []string{"refused", "EOF", "reset", "broken pipe"}, returns: back,
			strike: func(s *site) { s.proxy.proxy.Stop() }, heal: func(s *site) { must.Do(s, s.proxy.proxy.Start()) },
		},
		{
			name: "accepted but silent", start: proxied, lasts: while, degrades: meanwhile, causes: silence, returns: back,
			strike: func(s *site) {
				s.proxy.add("timeout", fromServer, hold)
				s.proxy.add("timeout", toServer, hold)
			},
			heal: mend,
		},
		{
			name: "server stopped in its tracks", start: single(), lasts: while, degrades: meanwhile, causes: silence, returns: back,
			strike: func(s *site) { must.Do(s, s.single.Pause()) }, heal: func(s *site) { must.Do(s, s.single.Resume()) },
		},
		{
			name: "half-open after a power cut", lasts: 0, degrades: perhaps, causes: silence, returns: back + time.Second,
			start: func(t testing.TB) *site {
				s := proxied(t)
				s.proxy.t = t
				s.proxy.add("forgetful", fromServer, struct{}{})
				s.proxy.add("forgetful", toServer, struct{}{})
				return s
			},
			strike: func(*site) { powerCuts.Add(1) },
		},
		{name: "slow by 50 ms", start: proxied, lasts: while, degrades: perhaps, overloads: true, returns: back, strike: slow(50), heal: mend},
		{name: "slow by 500 ms", start: proxied, lasts: while, degrades: meanwhile, causes: silence, returns: back, strike: slow(500), heal: mend},
		{
			name: "cut in mid-reply", start: proxied, lasts: while, degrades: perhaps, returns: back,
			strike: func(s *site) { s.proxy.add("limit_data", fromServer, map[string]any{"bytes": 5000}) }, heal: mend,
		},
		{
			name: "every tenth packet lost", start: proxied, lasts: while, degrades: perhaps, causes: silence, returns: back,
			strike: func(s *site) {
				s.proxy.add("lossy", fromServer, lossy{200})
				s.proxy.add("lossy", toServer, lossy{200})
			},
			heal: mend,
		},
		{
			name: "killed and restarted, nothing kept", start: single(), lasts: while, degrades: meanwhile, returns: back, losses: once,
			strike: kill, heal: restart,
		},
		{
			name: "killed under 512 callers", start: single(), lasts: while, degrades: meanwhile, returns: back, losses: once,
			callers: manyCallers, strike: kill, heal: restart,
		},
		{
			name: "killed and restarted with its append-only file", lasts: while, degrades: meanwhile, returns: back,
			start: single(durable...), strike: kill, heal: restart,
		},
		{
			name: "READONLY", start: single(), lasts: while, degrades: meanwhile, causes: []string{"READONLY"}, returns: back,
			strike: does("REPLICAOF", "127.0.0.1", "1"), heal: does("REPLICAOF", "NO", "ONE"),
		},
		{
			name: "LOADING", lasts: 0, degrades: perhaps, causes: []string{"LOADING", "refused", "EOF", "reset", "does not answer"}, returns: back,
			start: single(testredis.Config("key-load-delay", "5000"), testredis.Config("loading-process-events-interval-bytes", "1024")),
			strike: func(s *site) {
				for i := range 200 {
					s.do("SET", "ballast:"+strconv.Itoa(i), fmt.Sprintf("%02000d", i))
				}
				s.do("SAVE")
				kill(s)
				restart(s)
			},
			// What was admitted after the dump is not in it.
			losses: once,
		},
		{
			name: "BUSY with a script", start: single(testredis.Config("lua-time-limit", "10")), lasts: while, degrades: meanwhile, returns: back,
			strike: func(s *site) {
				s.undo = append(s.undo, s.background(func(context.Context) {
					_, _ = s.single.Do("EVAL", "while true do end", 0) // it is killed
				}))
				until(s, "the script runs", func() bool {
					_, err := s.single.Do("PING")
					return err != nil
				})
			},
			heal: does("SCRIPT", "KILL"),
		},
		{
			name: "OOM", start: single(testredis.Config("maxmemory-policy", "noeviction")), lasts: while, degrades: meanwhile, causes: []string{"OOM"}, returns: back,
			strike: does("CONFIG", "SET", "maxmemory", "1"), heal: does("CONFIG", "SET", "maxmemory", "0"),
		},
		{
			name: "evicted under allkeys-lru", lasts: while, degrades: never, returns: back,
			// With a sample of one any key goes, not only those that nobody asked for lately.
			start: single(testredis.Config("maxmemory-policy", "allkeys-lru"), testredis.Config("maxmemory-samples", "1")),
			strike: func(s *site) {
				s.do("CONFIG", "SET", "maxmemory", s.info("memory", "used_memory")+1<<20)
				s.undo = append(s.undo, s.background(func(ctx context.Context) {
					for i := 0; ctx.Err() == nil; i++ {
						s.do("SET", "ballast:"+strconv.Itoa(i%100), fmt.Sprintf("%020000d", i))
					}
				}))
			},
			heal:   does("CONFIG", "SET", "maxmemory", "0"),
			losses: func(s *site) int { return s.info("stats", "evicted_keys") },
		},
		{
			name: "wrong password", start: withUser, lasts: while, degrades: meanwhile, causes: []string{"WRONGPASS", "EOF", "reset"}, returns: back,
			strike: func(s *site) {
				s.do("ACL", "SETUSER", "limiter", "resetpass", ">wrong")
				s.do("CLIENT", "KILL", "USER", "limiter")
			},
			heal: does("ACL", "SETUSER", "limiter", ">right"),
		},
		{
			name: "NOPERM", start: withUser, lasts: while, degrades: meanwhile, causes: []string{"NOPERM"}, returns: back,
			strike: does("ACL", "SETUSER", "limiter", "-eval", "-evalsha"), heal: does("ACL", "SETUSER", "limiter", "+eval", "+evalsha"),
		},
		{
			name: "SCRIPT FLUSH", start: single(), lasts: 0, degrades: never, returns: back,
			strike: func(s *site) {
				for range 50 {
					s.do("SCRIPT", "FLUSH")
				}
			},
		},
		{name: "FLUSHALL", start: single(), lasts: 0, degrades: never, returns: back, losses: once, strike: does("FLUSHALL")},
		{
			name: "CLIENT KILL", start: single(), lasts: 0, degrades: perhaps, returns: back,
			strike: func(s *site) {
				for range 10 {
					killClients(s)
				}
			},
		},
		{
			name: "the clock an hour ahead", lasts: 0, degrades: never, returns: back, losses: once,
			start: shifted, strike: func(s *site) { s.shift(time.Hour) },
		},
		{
			name: "the clock an hour behind", lasts: 0, degrades: never, returns: back,
			start: func(t testing.TB) *site {
				s := shifted(t)
				s.options.DenialCache = -1 // a denial for an hour would be remembered, and the server not asked again
				return s
			},
			strike: func(s *site) { s.shift(-time.Hour) },
		},
		{
			name: "primary killed, with Sentinel", start: sentinels, lasts: 0, degrades: meanwhile, returns: soon, losses: once,
			strike: func(s *site) { must.Do(s, s.sentinel.Primary.Kill()) }, heal: func(s *site) { s.sentinel.Follow(s) },
		},
		{
			name: "failover by hand, with Sentinel", start: sentinels, lasts: 0, degrades: perhaps, returns: soon, losses: once,
			strike: func(s *site) { s.sentinel.Failover(s) },
		},
		{
			name: "primary killed, in a cluster", start: cluster(1), lasts: 0, degrades: perhaps, returns: soon, losses: once,
			strike: func(s *site) { must.Do(s, s.cluster.Nodes[0].Kill()) },
			heal: func(s *site) {
				until(s, "a replica has taken over", func() bool {
					_, err := s.cluster.Holder(0)
					return err == nil
				})
			},
		},
		{
			name: "slots moving", start: cluster(0), lasts: 0, degrades: perhaps, returns: back,
			strike: func(s *site) {
				for i, node := range s.cluster.Nodes {
					keys, _ := must.Get(node.Do("KEYS", "*"))(s).([]any)
					for _, key := range keys {
						slot := must.Get(node.Do("CLUSTER", "KEYSLOT", key))(s)
						s.cluster.MoveSlot(s, int(slot.(int64)), s.cluster.Nodes[(i+1)%len(s.cluster.Nodes)])
					}
				}
			},
		},
		{
			name: "CLUSTERDOWN", start: cluster(0), lasts: 3 * while, degrades: perhaps, returns: back, losses: once,
			strike: func(s *site) { must.Do(s, s.cluster.Nodes[0].Kill()) },
			heal: func(s *site) {
				s.cluster.Nodes[0].Restart(s)
				until(s, "the cluster is complete", func() bool {
					for _, node := range s.cluster.Nodes {
						if reply, err := node.Do("CLUSTER", "INFO"); err != nil || !strings.Contains(fmt.Sprint(reply), "cluster_state:ok") {
							return false
						}
					}
					return true
				})
			},
		},
		{
			name: "DNS stops answering", start: named, lasts: while, degrades: meanwhile, returns: back,
			strike: func(s *site) {
				silentDNS.Store(true)
				killClients(s)
			},
			heal: func(*site) { silentDNS.Store(false) },
		},
	}
}

// killClients ends the connections of all clients. One with a subscription is of another type.
func killClients(s *site) {
	s.do("CLIENT", "KILL", "TYPE", "normal")
	s.do("CLIENT", "KILL", "TYPE", "pubsub")
}

// info is a number of what the server says of itself.
func (s *site) info(section, field string) int {
	s.Helper()
	return must.Get(strconv.Atoi(must.Get(s.single.Info(section))(s)[field]))(s)
}

var silentDNS atomic.Bool

// nameServer is the address of the server that answers for names, a string.
var nameServer atomic.Value

// TestMain has names asked of the tests' own server, from the first connection on: who connects in
// the background must not meet a resolver that is being replaced.
func TestMain(m *testing.M) {
	if config := os.Getenv(holderVariable); config != "" {
		if err := hold(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		address, _ := nameServer.Load().(string)
		return new(net.Dialer).DialContext(ctx, "udp", address)
	}}
	os.Exit(m.Run())
}

// named starts one server that the store knows by a name, which a resolver of the
// test's own answers for.
func named(t testing.TB) *site {
	s := single()(t)
	s.TB = t
	server := must.Get(new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0"))(t)
	s.undo = append(s.undo, s.background(func(context.Context) { answerNames(server) }))
	s.undo = append([]func(){func() { _ = server.Close() }}, s.undo...)
	nameServer.Store(server.LocalAddr().String())
	_, port := must.Two(net.SplitHostPort(s.single.Addr()))(t)
	s.url = "redis://redis.test:" + port
	s.options = redisstore.Options{}
	return s
}

// answerNames answers every question with 127.0.0.1, unless it is to be silent (RFC
// 1035, section 4.1).
func answerNames(server net.PacketConn) {
	buffer := make([]byte, 512)
	for {
		n, from, err := server.ReadFrom(buffer)
		if err != nil {
			return
		}
		if silentDNS.Load() || n < 12 {
			continue
		}
		// The question ends with a name's empty label, a type and a class.
		end := 12
		for end < n && buffer[end] != 0 {
			end += 1 + int(buffer[end])
		}
		end += 5
		if end > n {
			continue
		}
		answer := append([]byte{}, buffer[:end]...)
		answer[2], answer[3] = 0x81, 0x80
		copy(answer[4:12], []byte{0, 1, 0, 0, 0, 0, 0, 0})
		if kind := answer[end-3]; kind == 1 { // A
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
		}
		_, _ = server.WriteTo(answer, from)
	}
}
