package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// dialler counts the connections that a client has open, and lets every one after the
// first wait until the client is closed.
type dialler struct {
	dials, open atomic.Int32
	closed      chan struct{}
}

func (d *dialler) dial(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if d.dials.Add(1) > 1 {
		<-d.closed
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	return &dialled{Conn: conn, dialler: d}, nil
}

// A closer is a client that lets the dialler go on when it was closed. To ask the client whether it is would
// wait for the dialler, if it asked over the connection that is being made.
type closer struct {
	rueidis.Client
	dialler *dialler
	once    sync.Once
}

func (c *closer) Close() {
	c.Client.Close()
	c.once.Do(func() { close(c.dialler.closed) })
}

type dialled struct {
	net.Conn
	dialler *dialler
	once    sync.Once
}

func (c *dialled) Close() error {
	c.once.Do(func() { c.dialler.open.Add(-1) })
	return c.Conn.Close()
}

// A client that dials while its store is closed leaves no connection behind, and a
// connection that was closed says so.
func TestCloseWhileClientDials(t *testing.T) {
	d := &dialler{closed: make(chan struct{})}
	server := testredis.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, DisableCache: true, DisableRetry: true, ForceSingleClient: true, DialCtxFn: d.dial,
		PipelineMultiplex: 2, // 4 connections; on one processor it has one unless it is told
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	made := &clusterConn{attempts: newAttempts()}
	closing := rueidis.Client(&closer{Client: client, dialler: d})
	made.client.Store(&closing)
	conn := connOf(made)
	store := must.Get(redisstore.New(conn, redisstore.Options{DenialCache: -1}))(t)
	var callers sync.WaitGroup
	eventually(t, "a call dials", func() bool {
		callers.Go(func() { _, _ = conn.Do(t.Context(), "EXISTS", "k") }) // over a wire by chance
		return d.dials.Load() > 1
	})
	store.Close()
	callers.Wait()
	if n := d.open.Load(); n != 0 {
		t.Errorf("%d connections of %d are open", n, d.dials.Load())
	}
	if _, err := conn.Do(t.Context(), "PING"); !errors.Is(err, rueidis.ErrClosing) {
		t.Errorf("a command after Close: %v", err)
	}
	if err := conn.Subscribe(t.Context(), "c", func() {}, func(string) {}); !errors.Is(err, rueidis.ErrClosing) {
		t.Errorf("a subscription after Close: %v", err)
	}
	limiter := must.Get(stint.New(store, "api", stint.TokenBucket(100, stint.PerSecond(1))))(t)
	if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("a decision after Close: %v", err)
	}
}
