package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
)

// subscribed subscribes to the channel "c" and returns when that is so: with the
// messages to come, and the error that will end the subscription.
func subscribed(ctx context.Context, t testing.TB, conn redisconn.Conn) (messages chan string, ended chan error) {
	t.Helper()
	messages, ended = make(chan string), make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		ended <- conn.Subscribe(ctx, "c", func() { close(ready) }, func(m string) { messages <- m })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return messages, ended
}

// subscribers is how many the server has on the channel "c".
func subscribers(t testing.TB, server *testredis.Server) int64 {
	t.Helper()
	reply := must.Get(server.Do("PUBSUB", "NUMSUB", "c"))(t)
	return reply.([]any)[1].(int64)
}

func subscribes(t *testing.T, cluster *testredis.Cluster) {
	own := testredis.Start(t)
	for name, c := range map[string]struct {
		client redis.UniversalClient
		server *testredis.Server
	}{
		"RESP3":   {single(t, own.Addr()), own},
		"RESP2":   {closing(t, redis.NewClient(&redis.Options{Addr: own.Addr(), MaxRetries: -1, Protocol: 2})), own},
		"cluster": {clustered(t, cluster), cluster.Nodes[0]},
	} {
		t.Run(name, func(t *testing.T) {
			conn := newConn(t, c.client)
			ctx, cancel := context.WithCancel(t.Context())
			messages, ended := subscribed(ctx, t, conn)
			sent := []string{"one", "", "three\r\n", "four"}
			for _, m := range sent {
				must.Get(c.server.Do("PUBLISH", "c", m))(t)
			}
			var got []string
			for range sent {
				got = append(got, <-messages)
			}
			if !slices.Equal(got, sent) {
				t.Errorf("got %q, want %q", got, sent)
			}
			if _, err := conn.Do(t.Context(), "GET", "nothing"); err != nil {
				t.Errorf("a command meanwhile: %v", err)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
		})
	}
}

// A lost subscription is an error, and go-redis does not renew it meanwhile.
func TestSubscriptionIsLost(t *testing.T) {
	leakless(t)
	own := testredis.Start(t)
	var dials atomic.Int64
	client := closing(t, redis.NewClient(&redis.Options{
		Addr: own.Addr(), MaxRetries: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				dials.Add(1)
			}
			return conn, err
		},
	}))
	conn := newConn(t, client)
	_, ended := subscribed(t.Context(), t, conn)
	must.Get(own.Do("CLIENT", "KILL", "TYPE", "pubsub"))(t)
	if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the loss of the connection", err)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections were made, want the one that was lost", n)
	}
	if n := subscribers(t, own); n != 0 {
		t.Errorf("%d subscribers are left", n)
	}
	// It is the caller who renews.
	_, ended = subscribed(t.Context(), t, conn)
	if n := subscribers(t, own); n != 1 {
		t.Errorf("%d subscribers, want 1", n)
	}
	must.Do(t, own.Kill())
	if err := <-ended; err == nil {
		t.Error("the server is gone: no error")
	}
	if err := conn.Subscribe(t.Context(), "c", func() { t.Error("ready") }, nil); err == nil {
		t.Error("no server: no error")
	}
}

// A subscription ends with the connection.
func TestSubscriptionIsClosed(t *testing.T) {
	leakless(t)
	conn := newConn(t, single(t, server.Addr()))
	_, ended := subscribed(t.Context(), t, conn)
	conn.Close()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v", err)
	}
	if err := conn.Subscribe(t.Context(), "c", func() { t.Error("ready") }, nil); err == nil {
		t.Error("a closed connection: no error")
	}
}

// A confirmation after the first is that of a renewal, or of an end.
func TestSubscriptionIsRenewed(t *testing.T) {
	for _, kind := range []string{"subscribe", "unsubscribe"} {
		t.Run(kind, func(t *testing.T) {
			leakless(t)
			way := startProxy(t, server.Addr())
			client := redis.NewClient(&redis.Options{Addr: way.addr(), MaxRetries: -1, Protocol: 2})
			_, ended := subscribed(t.Context(), t, newConn(t, closing(t, client)))
			way.say(t, fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$1\r\nc\r\n:1\r\n", len(kind), kind))
			if err := <-ended; err == nil {
				t.Error("no error")
			}
			if n := client.PoolStats().PubSubStats.Active; n != 0 {
				t.Errorf("%d connections are left", n)
			}
		})
	}
}

// A context that ends while the server does not answer ends a subscription that has
// not begun.
func TestSubscribeWithoutAnswer(t *testing.T) {
	leakless(t)
	way := startProxy(t, server.Addr())
	way.dropAll()
	conn := newConn(t, single(t, way.addr()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- conn.Subscribe(ctx, "c", func() { t.Error("ready") }, nil) }()
	<-way.dropped
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// A connection that is made when nobody waits for it any more is closed.
func TestSubscribeTooLate(t *testing.T) {
	leakless(t)
	dialling, proceed, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	conn := newConn(t, closing(t, redis.NewClient(&redis.Options{
		MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			close(dialling)
			<-proceed
			conn, err := net.Dial("tcp", server.Addr()) //nolint:noctx // it heeds none
			return &watched{Conn: conn, closed: closed}, err
		},
	})))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- conn.Subscribe(ctx, "c", func() { t.Error("ready") }, nil) }()
	<-dialling
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	close(proceed)
	<-closed
}

// watched is a connection that tells when it is closed.
type watched struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
