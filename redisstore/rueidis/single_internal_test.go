package rueidis

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// A connection that leads nowhere is given up within 2 seconds, and a server half a second
// away that runs a script for a second keeps its own.
func TestPatience(t *testing.T) {
	if longest := 2*pingGap + replyTimeout; longest > 2*time.Second {
		t.Errorf("a connection that leads nowhere is kept for %v", longest)
	}
	if replyTimeout <= 1500*time.Millisecond || connectTimeout <= 500*time.Millisecond {
		t.Errorf("replies are awaited for %v, connections for %v", replyTimeout, connectTimeout)
	}
}

func newTestLink(t *testing.T, dial func(context.Context) (net.Conn, error)) *singleConn {
	t.Helper()
	c := &singleConn{dial: func(ctx context.Context) (*socket, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return newSocket(conn, "test"), nil
	}}
	return startLink(t, c)
}

func startLink(t *testing.T, c *singleConn) *singleConn {
	t.Helper()
	must.Do(t, c.start(new(dialConfig).clientOptions(credentials{})))
	t.Cleanup(c.Close)
	return c
}

func to(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
}

func ping(ctx context.Context, c *singleConn) error {
	_, err := connOf(c).Do(ctx, "PING")
	return err
}

// Names that are never resolved hold nobody beyond its context, and one attempt is made
// at a time, which goes on when those who wait for it leave.
func TestDialHangs(t *testing.T) {
	var dialled, under atomic.Int32
	resolved := make(chan struct{})
	server := testredis.Start(t)
	c := newTestLink(t, func(ctx context.Context) (net.Conn, error) {
		dialled.Add(1)
		if under.Add(1) > 1 {
			t.Error("two attempts at once")
		}
		defer under.Add(-1)
		<-resolved // whatever ctx says, so that a stall makes no second attempt
		return to(server.Addr())(ctx)
	})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if err := ping(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
			}
		})
	}
	group.Wait()
	if n := dialled.Load(); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
	close(resolved)
	eventually(t, "it is connected", func() bool { return c.Ready(t.Context()) == nil && ping(t.Context(), c) == nil })
}

// relay passes on what goes to and from a server, until it is told to swallow it, as a
// network that was cut does. A new connection gets through when it is not swallowing.
type relay struct {
	server    string
	mu        sync.Mutex
	swallowed []*atomic.Bool
	cut       bool
}

// dial connects through the relay.
func (r *relay) dial(ctx context.Context) (net.Conn, error) {
	r.mu.Lock()
	cut := r.cut
	hole := new(atomic.Bool)
	r.swallowed = append(r.swallowed, hole)
	r.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	far, err := to(r.server)(ctx)
	if err != nil {
		return nil, err
	}
	near, ours := net.Pipe()
	pass := func(to io.WriteCloser, from io.Reader) {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				_ = to.Close()
				return
			}
			if !hole.Load() {
				_, _ = to.Write(buffer[:n])
			}
		}
	}
	go pass(far, ours)
	go pass(ours, far)
	return near, nil
}

// sever swallows everything on the connections that there are, for good, and lets none
// be made until mended.
func (r *relay) sever() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for _, hole := range r.swallowed {
		hole.Store(true)
	}
}

func (r *relay) mend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
}

// A connection that leads nowhere any more, without a word, is given up; once the
// server can be reached, another one is made.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	r := &relay{server: testredis.Start(t).Addr()}
	c := newTestLink(t, r.dial)
	must.Do(t, ping(t.Context(), c))
	r.sever()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := ping(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	// Without rueidis' own patience of 10 seconds: one silence is the end of it.
	start := time.Now()
	if ping(t.Context(), c) == nil {
		t.Error("an answer out of nowhere")
	}
	t.Logf("given up after %v", time.Since(start))
	r.mend()
	eventually(t, "another connection is made", func() bool { return ping(t.Context(), c) == nil })
}

// A connection to a server that is not the right one is not used.
func TestRole(t *testing.T) {
	t.Parallel()
	own, other := testredis.Start(t), testredis.Start(t)
	addr := must.Get(net.ResolveTCPAddr("tcp", other.Addr()))(t)
	must.Get(own.Do("REPLICAOF", "127.0.0.1", addr.Port))(t)
	c := startLink(t, &singleConn{primary: true, dial: func(ctx context.Context) (*socket, error) {
		conn, err := to(own.Addr())(ctx)
		return newSocket(conn, own.Addr()), err
	}})
	if err := ping(t.Context(), c); !errors.Is(err, errReplica) {
		t.Errorf("a replica: got %v, want %v", err, errReplica)
	}
	must.Get(own.Do("REPLICAOF", "NO", "ONE"))(t)
	eventually(t, "a primary is used", func() bool { return ping(t.Context(), c) == nil })
	c.Close()
	if err := ping(t.Context(), c); err == nil {
		t.Error("a closed link sends")
	}
}

// A connection that is made just as its link is closed is closed too, and nobody waits
// for a greeting over it.
func TestCloseWhileConnecting(t *testing.T) {
	dialling, connected := make(chan struct{}), make(chan struct{})
	near, far := net.Pipe()
	var once sync.Once
	c := newTestLink(t, func(context.Context) (net.Conn, error) {
		once.Do(func() { close(dialling) })
		<-connected
		return near, nil
	})
	<-dialling
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	<-c.life.Done()
	close(connected)
	if n, err := far.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes were sent over a connection of a closed link", n)
	}
	<-closed
}

// Connections that are over are not kept in memory, however many there have been.
func TestOldConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	c := newTestLink(t, to(server.Addr()))
	const several = 5
	var old []weak.Pointer[socket]
	for range several {
		eventually(t, "a connection is made", func() bool { return ping(t.Context(), c) == nil && c.up.Load().open() })
		old = append(old, weak.Make(c.up.Load()))
		c.up.Load().giveUp(errors.New("the test has had enough of it"))
	}
	eventually(t, "another connection is made", func() bool { return ping(t.Context(), c) == nil && c.up.Load().open() })
	eventually(t, "the old ones are collected", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(old, func(p weak.Pointer[socket]) bool { return p.Value() != nil })
	})
}

// A server without HELLO needs a second connection for a subscription, and a link is one:
// there is no subscription, which is said, and all else goes on.
func TestSubscribeWithoutHello(t *testing.T) {
	server := newFake(t, func(*fake, []string) string { return "+OK\r\n" })
	server.mute.Store(true)
	c := newTestLink(t, to(server.address))
	if err := c.Subscribe(t.Context(), "announce", func() {}, func(string) {}); !errors.Is(err, errNotSent) {
		t.Errorf("got %v, want %v", err, errNotSent)
	}
	if reply, err := connOf(c).Do(t.Context(), "GET", "k"); reply != "OK" || err != nil {
		t.Errorf("a command: %q, %v", reply, err)
	}
}

// Commands that take a link to be up whose connection has just died spoil no attempt to
// connect.
func TestAttemptsAreNotSpoilt(t *testing.T) {
	server := testredis.Start(t)
	c := newTestLink(t, to(server.Addr()))
	must.Do(t, c.Ready(t.Context()))
	var group sync.WaitGroup
	var stop atomic.Bool
	var answered atomic.Int64
	for range 64 {
		group.Go(func() {
			for !stop.Load() {
				err := ping(t.Context(), c)
				if errors.Is(err, errNotSent) {
					t.Errorf("an attempt was spoilt: %v", err)
					return
				}
				if err == nil {
					answered.Add(1)
				}
			}
		})
	}
	for range 50 {
		before := answered.Load()
		eventually(t, "commands are answered", func() bool { return answered.Load() >= before+200 || t.Failed() })
		_ = c.dialled.Load().Close()
	}
	stop.Store(true)
	group.Wait()
}

// What is under way on a connection that is given up says why.
func TestGivenUpSaysWhy(t *testing.T) {
	asked := make(chan struct{})
	free := make(chan struct{})
	server := newFake(t, func(_ *fake, command []string) string {
		if command[0] == "HANG" {
			close(asked)
			<-free
		}
		return "+OK\r\n"
	})
	defer close(free)
	c := newTestLink(t, to(server.address))
	failed := make(chan error, 1)
	go func() {
		_, err := connOf(c).Do(t.Context(), "HANG")
		failed <- err
	}()
	<-asked
	c.up.Load().giveUp(errReplaced)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), errReplaced.Error()) || errors.Is(err, errReplaced) {
		t.Errorf("got %v, want a closed connection that tells why", err)
	}
}

// Closing ends a dial under way, and a greeting that is awaited, and leaves nothing behind.
func TestCloseEndsDials(t *testing.T) {
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	greeted := make(chan struct{}, 100)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = c.Read(make([]byte, 1)) // and never a word
				greeted <- struct{}{}
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	before := goleak.IgnoreCurrent()
	for name, kind := range map[string]topology{"single": topologySingle, "Sentinel": topologySentinel, "cluster": topologyCluster} {
		c := must.Get(dialTo(kind, listener.Addr().String()).connect())(t)
		failed := make(chan error, 1)
		go func() { failed <- c.Ready(context.Background()) }()
		<-greeted
		c.Close()
		if err := <-failed; err == nil {
			t.Errorf("%s: it is ready", name)
		}
		if _, err := c.Do(t.Context(), "PING"); err == nil {
			t.Errorf("%s: it answers", name)
		}
	}
	leaks.None(t, before, goleak.IgnoreAnyFunction("github.com/stint-go/stint/redisstore/rueidis.TestCloseEndsDials.func2.1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1")) // asks for the slots after a sleep
}
