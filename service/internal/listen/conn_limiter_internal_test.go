package listen

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/kernel"
)

// A gate is a handler whose answers for the key held wait while it is shut.
type gate chan struct{}

func (g gate) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("key") == "held" {
		<-g
	}
}

// A crowd is a listener of which the test sees the idle tracker.
type crowd struct {
	t       *testing.T
	tracker *idleTracker
	gate    gate
	addr    string
	log     *bytes.Buffer
	mu      sync.Mutex
}

func (c *crowd) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (c *crowd) logged() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// openListeners makes listeners on this machine of which none is open.
func openListeners(t *testing.T, change func(*config.Config), log *slog.Logger) *Listeners {
	t.Helper()
	c := config.Default()
	c.Listen, c.AdminListen, c.Drain.KeepAlive = "127.0.0.1:0", "127.0.0.1:0", 0
	change(&c)
	clients := must.Get(clientip.New(clientip.Config(c.ClientIP)))(t)
	return must.Get(New(&c, clients, log, prometheus.NewRegistry()))(t)
}

// handled has a handler answer at any address.
func handled(h http.Handler) func(net.Addr) (http.Handler, error) {
	return func(net.Addr) (http.Handler, error) { return h, nil }
}

// newCrowd serves HTTP, or the admin listener with a handler for that.
func newCrowd(t *testing.T, change func(*config.Config), admin http.Handler) *crowd {
	t.Helper()
	c := &crowd{t: t, log: &bytes.Buffer{}, gate: make(gate)}
	l := openListeners(t, change, slog.New(slog.NewTextHandler(c, nil)))
	var addr net.Addr
	var err error
	if admin != nil {
		addr, err = l.Admin(t.Context(), handled(admin))
	} else {
		addr, err = l.HTTP(t.Context(), c.gate)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.tracker, c.addr = l.open[0].tracker, addr.String()
	l.Start()
	t.Cleanup(func() {
		if err := l.Stop(context.Background(), func(context.Context) {}); err != nil {
			t.Error(err)
		}
	})
	return c
}

// dial connects and asks for a key, unless it is "". The answer is not read.
func (c *crowd) dial(key string) (net.Conn, *bufio.Reader) {
	c.t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(c.t.Context(), "tcp", c.addr))(c.t)
	c.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	if key != "" {
		// A connection that is refused may be closed by now.
		_, _ = io.WriteString(conn, "GET /api/v1/rate-limit/check?key="+key+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	return conn, bufio.NewReader(conn)
}

// answered reads an answer with status 200.
func (c *crowd) answered(r *bufio.Reader) {
	c.t.Helper()
	c.answers(r, http.StatusOK)
}

// answers reads an answer of that status.
func (c *crowd) answers(r *bufio.Reader, status int) {
	c.t.Helper()
	response := must.Get(http.ReadResponse(r, nil))(c.t)
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != status {
		c.t.Errorf("%s, %v; want %d", response.Status, err, status)
	}
}

// refused expects that the connection ends without a byte.
func (c *crowd) refused(r *bufio.Reader) {
	c.t.Helper()
	if text, err := r.ReadString(0); errors.Is(err, os.ErrDeadlineExceeded) || text != "" {
		c.t.Errorf("%q, %v; want the connection closed", text, err)
	}
}

// states waits until the connections are in these states.
func (c *crowd) states(want map[http.ConnState]int) {
	c.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		got, total := map[http.ConnState]int{}, 0
		c.tracker.mu.Lock()
		for conn := range c.tracker.conns {
			got[http.ConnState(conn.since.Load()&3)]++
			total++
		}
		c.tracker.mu.Unlock()
		same := true
		for state, n := range want {
			same = same && got[state] == n
			total -= n
		}
		if same && total == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the connections are %v, want %v", got, want)
		}
	}
}

func (c *crowd) closed(why cause) float64 {
	return testutil.ToFloat64(c.tracker.limiter.metrics.early[why])
}

// trackedBy makes a tracker of connections to a listener, or of gRPC's, with these bounds.
func trackedBy(t *testing.T, listener string, bounds connLimiter) *idleTracker {
	t.Helper()
	bounds.metrics = must.Get(newConnMetrics(prometheus.NewRegistry()))(t)[listener]
	bounds.logger = slog.New(slog.DiscardHandler)
	head, idle, whole := time.Minute, time.Minute, time.Minute
	switch listener {
	case Admin:
		whole = 0
	case GRPC:
		head, idle, whole = 0, 0, 0
	}
	return newIdleTracker(head, idle, whole, bounds)
}

// enter admits a silent connection, for which there has to be room.
func enter(t *testing.T, w *idleTracker) *trackedConn {
	t.Helper()
	conn := &trackedConn{Conn: silence{}}
	if !w.admit(conn) {
		t.Fatal("there is no room")
	}
	return conn
}

// stays reports whether a connection is not closed.
func (w *idleTracker) stays(conn *trackedConn) bool {
	_, found := w.conns[conn]
	return found
}

// A full room is made by the connection that waits for its next request the longest;
// those about a request stay.
func TestRoomIsMadeByTheIdle(t *testing.T) {
	c := newCrowd(t, func(c *config.Config) { c.HTTP.MaxConnections = 3 }, nil)
	_, busy := c.dial("held")
	c.states(map[http.ConnState]int{http.StateActive: 1})
	_, older := c.dial("a")
	c.answered(older)
	c.states(map[http.ConnState]int{http.StateActive: 1, http.StateIdle: 1})
	c.tracker.now.Add(1)
	_, newer := c.dial("b")
	c.answered(newer)
	c.states(map[http.ConnState]int{http.StateActive: 1, http.StateIdle: 2})
	_, latest := c.dial("c")
	c.answered(latest)
	c.refused(older)
	close(c.gate)
	c.answered(busy)
	if n := c.closed(madeRoom); n != 1 || c.closed(refusedFull) != 0 {
		t.Errorf("%v connections made room", n)
	}
	if n := testutil.ToFloat64(c.tracker.limiter.metrics.open); n != 3 {
		t.Errorf("%v connections are said to be open", n)
	}
}

// When all connections are about a request, further ones are refused; the log has one
// line in a minute, whatever comes.
func TestRoomIsFull(t *testing.T) {
	c := newCrowd(t, func(c *config.Config) { c.HTTP.MaxConnections = 2 }, nil)
	_, first := c.dial("held")
	_, second := c.dial("held")
	c.states(map[http.ConnState]int{http.StateActive: 2})
	for range 3 {
		_, late := c.dial("a")
		c.refused(late)
	}
	close(c.gate)
	c.answered(first)
	c.answered(second)
	if n := c.closed(refusedFull); n != 3 {
		t.Errorf("%v connections were refused, want 3", n)
	}
	c.states(map[http.ConnState]int{http.StateIdle: 2})
	c.tracker.now.Add(1) // within a tick it does not look again
	_, next := c.dial("a")
	c.answered(next)
	const line = "msg=\"connections are closed or refused: the listener has as many as it may (http.max_connections, http.max_connections_per_peer)\" cause="
	if got := c.logged(); strings.Count(got, line) != 1 || !strings.Contains(got, line+"refused_full connections=2 affected=1\n") {
		t.Errorf("the log:\n%s", got)
	}
	c.tracker.now.Add(int64(logInterval / c.tracker.tick))
	c.states(map[http.ConnState]int{http.StateIdle: 2})
	_, last := c.dial("a")
	c.answered(last)
	if got := c.logged(); !strings.Contains(got, line+"made_room connections=2 affected=4\n") {
		t.Errorf("the log:\n%s", got)
	}
}

// A connection whose first head has not come is closed for another, but gets its time
// first.
func TestRoomIsMadeByTheSilent(t *testing.T) {
	c := newCrowd(t, func(c *config.Config) { c.HTTP.MaxConnections = 2 }, nil)
	_, silent := c.dial("")
	c.states(map[http.ConnState]int{http.StateNew: 1})
	c.tracker.now.Add(1)
	_, young := c.dial("")
	c.states(map[http.ConnState]int{http.StateNew: 2})
	_, refused := c.dial("a")
	c.refused(refused)
	c.tracker.now.Add(1)
	_, late := c.dial("a")
	c.answered(late)
	c.refused(silent)
	if n := c.closed(madeRoom); n != 1 {
		t.Errorf("%v connections made room", n)
	}
	c.tracker.sweep(c.tracker.now.Load() + 100)
	c.refused(young)
	if c.closed(slowHead) != 1 {
		t.Error("a connection without a head is not counted as one")
	}
}

// One address has only so many connections; a trusted proxy, which speaks for many
// clients, has as many as there are.
func TestRoomOfOnePeer(t *testing.T) {
	bounded := func(c *config.Config) { c.HTTP.MaxConnectionsPerPeer = 2 }
	c := newCrowd(t, bounded, nil)
	conn, first := c.dial("a")
	c.answered(first)
	_, second := c.dial("a")
	c.answered(second)
	_, third := c.dial("a")
	c.refused(third)
	if n := c.closed(refusedPeer); n != 1 {
		t.Errorf("%v connections were refused", n)
	}
	_ = conn.Close()
	c.states(map[http.ConnState]int{http.StateIdle: 1})
	_, fourth := c.dial("a")
	c.answered(fourth)

	c = newCrowd(t, func(c *config.Config) {
		bounded(c)
		c.ClientIP = config.ClientIP{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	}, nil)
	for range 4 {
		_, r := c.dial("a")
		c.answered(r)
	}
}

// What looking costs is shared by the connections that it makes room for.
func TestRoomIsMadeManyAtATime(t *testing.T) {
	const most = 640
	w := trackedBy(t, HTTP, connLimiter{most: most})
	add := func() *trackedConn {
		t.Helper()
		conn := enter(t, w)
		w.now.Add(1)
		w.changed(conn, http.StateIdle)
		return conn
	}
	var oldest []*trackedConn
	for range most {
		oldest = append(oldest, add())
	}
	add()
	if n := len(w.conns); n != most-most/evictShare {
		t.Errorf("%d connections stay of %d", n, most)
	}
	for i, conn := range oldest {
		if w.stays(conn) != (i > most/evictShare) {
			t.Errorf("connection %d stays: %v; the longest idle go first", i, w.stays(conn))
		}
	}
}

// A connection that has shown how it behaves goes before one whose first head is late,
// however late.
func TestRoomIsMadeByTheIdleFirst(t *testing.T) {
	w := trackedBy(t, HTTP, connLimiter{most: 2})
	silent := enter(t, w)
	w.now.Add(10)
	w.changed(enter(t, w), http.StateIdle)
	if enter(t, w); !w.stays(silent) {
		t.Error("the silent connection went first")
	}
}

// Where all others are busy, a few clients that ask again and again keep their connections, and a new one is refused. One
// that was answered for the last time makes room before them, and they do once there are many.
func TestRoomIsNotMadeByFewWhoAskAgain(t *testing.T) {
	const most = 640
	w := trackedBy(t, HTTP, connLimiter{most: most})
	var all []*trackedConn
	add := func(state http.ConnState) bool {
		conn := &trackedConn{Conn: silence{}}
		if !w.admit(conn) {
			return false
		}
		w.changed(conn, state)
		all = append(all, conn)
		return true
	}
	ask := func(n int) { // after a while
		w.now.Add(10)
		for _, conn := range all[:n] {
			w.changed(conn, http.StateActive)
			w.changed(conn, http.StateIdle)
		}
	}
	for range most {
		add(http.StateActive)
	}
	ask(most / evictShare)
	if add(http.StateActive) {
		t.Error("a new connection is let in")
	}
	for i, conn := range all[:most/evictShare] {
		if !w.stays(conn) {
			t.Errorf("connection %d, which asks again and again, is closed", i)
		}
	}
	last := all[most-1]
	if err := last.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	ask(most / evictShare)
	if !add(http.StateActive) {
		t.Error("no room is made by a connection that was answered for the last time")
	}
	if w.stays(last) || len(w.conns) != most {
		t.Errorf("%d connections stay, that one: %t", len(w.conns), w.stays(last))
	}
	ask(most/evictShare + 1)
	if !add(http.StateActive) {
		t.Error("no room is made by many")
	}
}

// Of the connections of gRPC the one that has been silent longest makes room for another.
func TestRoomIsMadeForGRPC(t *testing.T) {
	ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	w := trackedBy(t, GRPC, connLimiter{most: 2})
	listener := grpcListener{w.listener(ln)}
	t.Cleanup(func() { _ = listener.Close() })
	connect := func() (client, server net.Conn) {
		t.Helper()
		client = must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String()))(t)
		t.Cleanup(func() { _ = client.Close() })
		server = must.Get(listener.Accept())(t)
		return client, server
	}
	first, heard := connect()
	second, _ := connect()
	w.now.Add(5)
	must.Get(first.Write([]byte{1}))(t)
	must.Get(heard.Read(make([]byte, 1)))(t)
	connect()
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the silent connection: %v", err)
	}
	if n := len(w.conns); n != 2 || !w.stays(heard.(grpcConn).trackedConn) {
		t.Errorf("%d connections stay, or the one that was heard of went", n)
	}
}

// silence is a connection that does nothing.
type silence struct{ net.Conn }

func (silence) Close() error { return nil }

func TestFitting(t *testing.T) {
	files, known := kernel.MaxOpenFiles()
	if !known || files < 100 {
		t.Fatalf("%d files, known: %v", files, known)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if got := fitting(1, 1, logger); got != 1 || log.Len() > 0 {
		t.Errorf("1 connection becomes %d:\n%s", got, &log)
	}
	for listeners := range 2 {
		got := fitting(1<<40, listeners+1, logger)
		if all := int64(got) * int64(listeners+1); got < 1 || all > files-spareFiles || all < files-spareFiles-1 || !strings.Contains(log.String(), "http.max_connections") {
			t.Errorf("of %d files there are %d connections for each of %d listeners:\n%s", files, got, listeners+1, &log)
		}
	}
}
