package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/testredis"
)

// A connection that leads nowhere is given up within 2 seconds after a call that timed
// out, and a server half a second away that runs a script for a second keeps its own.
func TestPatience(t *testing.T) {
	if longest := 100*time.Millisecond + replyTimeout; longest > 2*time.Second {
		t.Errorf("a connection that leads nowhere is kept for %v", longest)
	}
	if replyTimeout <= 1500*time.Millisecond || connectTimeout <= 500*time.Millisecond {
		t.Errorf("replies are awaited for %v, connections for %v", replyTimeout, connectTimeout)
	}
}

func newTestLink(t *testing.T, dial func(context.Context) (net.Conn, error)) *link {
	t.Helper()
	l, err := newLink(target{dial: dial}, rueidis.ClientOption{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

var ping = command{args: []string{"PING"}}

// Names that are never resolved hold nobody beyond its context, and one attempt is made
// at a time, which goes on when those who wait for it leave.
func TestDialHangs(t *testing.T) {
	var dialled, under atomic.Int32
	resolved := make(chan struct{})
	server := testredis.Start(t)
	l := newTestLink(t, func(ctx context.Context) (net.Conn, error) {
		dialled.Add(1)
		if under.Add(1) > 1 {
			t.Error("two attempts at once")
		}
		defer under.Add(-1)
		select {
		case <-resolved:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, "tcp", server.Addr())
	})
	if dialled.Load() > 0 {
		t.Error("it connects before it is used")
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if err := l.do(ctx, ping).Error(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
			}
		})
	}
	group.Wait()
	close(resolved)
	if err := l.do(t.Context(), ping).Error(); err != nil {
		t.Error(err)
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
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
	far, err := new(net.Dialer).DialContext(ctx, "tcp", r.server)
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
	r := &relay{server: testredis.Start(t).Addr()}
	l := newTestLink(t, r.dial)
	if err := l.do(t.Context(), ping).Error(); err != nil {
		t.Fatal(err)
	}
	r.sever()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := l.do(ctx, ping).Error(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	if !l.doubted.Load() {
		t.Error("the connection is not asked whether it lives")
	}
	// Without rueidis' own patience of 10 seconds: one silence is the end of it.
	start := time.Now()
	err := l.do(t.Context(), ping).Error()
	if err == nil {
		t.Error("an answer out of nowhere")
	}
	t.Logf("given up after %v: %v", time.Since(start), err)
	r.mend()
	deadline := time.Now().Add(20 * time.Second)
	for l.do(t.Context(), ping).Error() != nil {
		if time.Now().After(deadline) {
			t.Fatal("no other connection is made")
		}
	}
}

// A connection to a server that is not the right one is not used.
func TestGreeting(t *testing.T) {
	own, other := testredis.Start(t), testredis.Start(t)
	addr, err := net.ResolveTCPAddr("tcp", other.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Do("REPLICAOF", "127.0.0.1", addr.Port); err != nil {
		t.Fatal(err)
	}
	l, err := newLink(target{greet: isPrimary, dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", own.Addr())
	}}, rueidis.ClientOption{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if err := l.do(t.Context(), ping).Error(); !errors.Is(err, errReplica) {
		t.Errorf("a replica: got %v, want %v", err, errReplica)
	}
	if _, err := own.Do("REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	if err := l.do(t.Context(), ping).Error(); err != nil {
		t.Errorf("a primary: %v", err)
	}
	l.close()
	if err := l.do(t.Context(), ping).Error(); err == nil {
		t.Error("a closed link sends")
	}
}

func TestClusterViewHolder(t *testing.T) {
	v := &clusterView{ranges: []slotRange{{0, 99, "a"}, {100, 100, "b"}, {200, 16383, "c"}}}
	for slot, want := range map[int]string{0: "a", 99: "a", 100: "b", 101: "", 199: "", 200: "c", 9999: "c", 16383: "c"} {
		if got := v.holder(slot); got != want {
			t.Errorf("slot %d: %q, want %q", slot, got, want)
		}
	}
	if got := (&clusterView{}).holder(5); got != "" {
		t.Errorf("nobody's slot: %q", got)
	}
}

// A connection that is made just as its link is closed is closed too, and nobody waits
// for a greeting over it.
func TestCloseWhileConnecting(t *testing.T) {
	dialling, connected := make(chan struct{}), make(chan struct{})
	near, far := net.Pipe()
	l := newTestLink(t, func(context.Context) (net.Conn, error) {
		close(dialling)
		<-connected
		return near, nil
	})
	go func() { _ = l.do(t.Context(), ping).Error() }()
	<-dialling
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		l.close()
	}()
	<-l.life.Done()
	close(connected)
	if n, err := far.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes were sent over a connection of a closed link", n)
	}
	<-closed
}

// A server without HELLO needs a second connection for a subscription, and a link is one:
// there is no subscription, which is said, and all else goes on.
func TestSubscribeWithoutHello(t *testing.T) {
	server := startFake(t, true, func([]string) string { return "+OK\r\n" })
	l := newTestLink(t, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.address)
	})
	ended := make(chan error, 1)
	go func() { ended <- l.subscribe(t.Context(), "announce", func() {}, func(string) {}) }()
	select {
	case err := <-ended:
		if !errors.Is(err, errNoLink) {
			t.Errorf("got %v, want %v", err, errNoLink)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on trying without a rest")
	}
	if reply, err := l.do(t.Context(), command{args: []string{"GET", "k"}}).ToString(); reply != "OK" || err != nil {
		t.Errorf("a command: %q, %v", reply, err)
	}
}

// Commands that take a link to be up whose connection has just died spoil no attempt to
// connect.
func TestAttemptsAreNotSpoilt(t *testing.T) {
	server := testredis.Start(t)
	l := newTestLink(t, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Addr())
	})
	var group sync.WaitGroup
	var stop atomic.Bool
	var answered atomic.Int64
	for range 64 {
		group.Go(func() {
			for !stop.Load() {
				err := l.do(t.Context(), ping).Error()
				if errors.Is(err, errNoLink) {
					t.Errorf("an attempt was spoilt: %v", err)
					return
				}
				if err == nil {
					answered.Add(1)
				}
			}
		})
	}
	for range 100 {
		for before := answered.Load(); answered.Load() < before+500 && !t.Failed(); {
			runtime.Gosched()
		}
		l.hangUp()
	}
	stop.Store(true)
	group.Wait()
}

// What is under way on a connection that is given up says why.
func TestDropSaysWhy(t *testing.T) {
	asked := make(chan struct{})
	free := make(chan struct{})
	server := newFake(t, func(command []string) string {
		if command[0] == "HANG" {
			close(asked)
			<-free
		}
		return "+OK\r\n"
	})
	defer close(free)
	l := newTestLink(t, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.address)
	})
	failed := make(chan error, 1)
	go func() { failed <- l.do(t.Context(), command{args: []string{"HANG"}}).Error() }()
	<-asked
	l.drop(errDeposed)
	if err := <-failed; !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), errDeposed.Error()) || errors.Is(err, errDeposed) {
		t.Errorf("got %v, want a closed connection that tells why", err)
	}
}
