package goredis_test

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/goredis"
)

var prefixes atomic.Int64

// closing closes a client at the end of the test.
func closing[C redis.UniversalClient](t testing.TB, client C) C {
	t.Helper()
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// leakless fails the test if goroutines that started meanwhile are left at its end. It
// comes first in a test.
func leakless(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.None(t, before) })
}

// single is a client that New accepts.
func single(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return closing(t, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: -1}))
}

// clustered is a client of a cluster.
func clustered(t testing.TB, cluster *testredis.Cluster) *redis.ClusterClient {
	t.Helper()
	return closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
}

func newConn(t testing.TB, client redis.UniversalClient) redisconn.Conn {
	t.Helper()
	return must.Get(goredis.New(client))(t)
}

// storeOn makes a store on a connection of its own, closed at the end of the test.
func storeOn(t testing.TB, conn redisconn.Conn, options redisstore.Options) *redisstore.Store {
	t.Helper()
	if options.KeyPrefix == "" {
		options.KeyPrefix = "test" + strconv.FormatInt(prefixes.Add(1), 10)
	}
	store := must.Get(redisstore.New(conn, options))(t)
	t.Cleanup(store.Close)
	return store
}

// ten is a policy of ten permits that come back when the test is long over.
func ten(t testing.TB) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy("ten", stint.TokenBucket(10, stint.Per(1, 24*time.Hour))))(t)
}

func op(verb stint.Verb, policy *stint.Policy) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}}
}

// left takes or peeks a permit and returns how many remain.
func left(t testing.TB, store stint.Store, verb stint.Verb, policy *stint.Policy) int64 {
	t.Helper()
	d, err := store.Decide(t.Context(), op(verb, policy))
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	if !d.Allowed {
		t.Fatalf("%s was denied: %+v", verb, d)
	}
	return d.Remaining
}

// A proxy stands between clients and a server.
type proxy struct {
	listener net.Listener
	server   string
	group    sync.WaitGroup
	dropped  chan struct{} // gets one for each reply that was dropped

	mu      sync.Mutex
	clients []net.Conn
	cutting bool
	drop    bool
}

// startProxy starts a proxy that ends with the test.
func startProxy(t testing.TB, server string) *proxy {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) //nolint:noctx // it listens at once
	p := &proxy{listener: listener, server: server, dropped: make(chan struct{}, 100)}
	p.group.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		for _, client := range p.clients {
			_ = client.Close()
		}
		p.mu.Unlock()
		p.group.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// cutNext breaks the next reply off after its first byte, and its connection. The
// server has executed the command then.
func (p *proxy) cutNext() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutting = true
}

// cut reports whether that reply has come.
func (p *proxy) cut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.cutting
}

// dropAll lets no more reply through.
func (p *proxy) dropAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = true
}

// say tells all clients what the server has not said.
func (p *proxy) say(t testing.TB, text string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, client := range p.clients {
		if _, err := client.Write([]byte(text)); err != nil {
			t.Error(err)
		}
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server) //nolint:noctx // the server runs
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.clients = append(p.clients, client)
		p.mu.Unlock()
		p.group.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		})
		p.group.Go(func() { p.replies(client, server) })
	}
}

// replies passes on what the server says to a client.
func (p *proxy) replies(client, server net.Conn) {
	defer func() { _, _ = client.Close(), server.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		cut, drop := p.cutting, p.drop
		p.cutting = false
		p.mu.Unlock()
		switch {
		case drop:
			p.dropped <- struct{}{}
			continue
		case cut:
			_, _ = client.Write(buffer[:1])
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
