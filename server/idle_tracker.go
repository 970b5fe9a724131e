package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// An idleTracker bounds how long connections may take to send their first head, between requests, and for one
// request. It replaces net/http's own timeouts, which move a timer several times per request and
// cost a tenth of a check; the tracker costs two atomic stores. Its time is a count of ticks: it is
// late by up to two of them. It holds the connections that a connLimiter bounds.
type idleTracker struct {
	tick    time.Duration
	limits  [streaming + 1]int64 // of each state, in ticks; 0 is none
	limiter connLimiter

	now   atomic.Int64
	mu    sync.Mutex
	conns map[*trackedConn]struct{}
	peers map[string]int // how many connections each has; only when they are bounded
	empty chan struct{}  // nil until somebody waits for it
}

// streaming is the state of an HTTP/2 connection with requests under way. They
// overlap, so there may be no end of it; net/http bounds each of them. It takes the
// number of a state that is never kept.
const streaming = http.StateHijacked

// A trackedConn knows its state and since when it has it: ticks x 4 + state.
type trackedConn struct {
	net.Conn
	since atomic.Int64
	peer  string // under which its peer's connections are counted; "" is not at all
	begun int64  // the tick at which it was admitted
	known atomic.Bool
}

// CloseWrite ends the sending half, if the connection has halves. net/http does so when it closes a
// connection of which it has not read all, so that the client reads the answer and not a reset.
func (c *trackedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return errors.ErrUnsupported
}

// newIdleTracker makes a tracker with bounds of the time until the first head has come, between
// requests, and for a request; 0 is no bound.
func newIdleTracker(first, idle, request time.Duration, limiter connLimiter) *idleTracker {
	const slowest = time.Second
	limiter.crowded = -1
	w := &idleTracker{tick: slowest, limiter: limiter, conns: map[*trackedConn]struct{}{}, peers: map[string]int{}}
	bounds := map[http.ConnState]time.Duration{http.StateNew: first, http.StateIdle: idle, http.StateActive: request}
	for _, limit := range bounds {
		if limit > 0 {
			w.tick = max(min(w.tick, limit/4), time.Millisecond)
		}
	}
	for state, limit := range bounds {
		w.limits[state] = int64((limit + w.tick - 1) / w.tick)
	}
	return w
}

// run counts the ticks until done is closed.
func (w *idleTracker) run(done <-chan struct{}) {
	ticker := time.NewTicker(w.tick)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			w.sweep(w.now.Add(1))
		}
	}
}

// causes are the causes for which a connection is closed that was in a state for
// too long.
var causes = [streaming]cause{http.StateNew: slowHead, http.StateActive: slowRequest, http.StateIdle: idleTooLong}

// sweep closes what has been in its state for too long. net/http notices by the
// failing read or write.
func (w *idleTracker) sweep(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		since := conn.since.Load()
		if limit := w.limits[since&3]; limit > 0 && now-since>>2 > limit {
			w.cut(conn, causes[since&3])
		}
	}
}

// emptied is closed once there are no connections. It is for when no more are accepted.
func (w *idleTracker) emptied() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.empty == nil {
		w.empty = make(chan struct{})
		w.noteEmpty()
	}
	return w.empty
}

// noteEmpty closes empty, once, if somebody waits and there are no connections; mu is held.
func (w *idleTracker) noteEmpty() {
	if w.empty == nil || len(w.conns) > 0 {
		return
	}
	select {
	case <-w.empty:
	default:
		close(w.empty)
	}
}

// cut closes a connection that is known; mu is held.
func (w *idleTracker) cut(conn *trackedConn, why cause) {
	w.forget(conn)
	w.limiter.metrics.closed(why)
	_ = conn.Close() // it is given up
}

// changed is the server's ConnState hook.
func (w *idleTracker) changed(c net.Conn, state http.ConnState) {
	conn, ok := trackedOf(c, &state)
	if !ok {
		return
	}
	switch state {
	case http.StateNew: // it has its time from being admitted
	case http.StateActive, http.StateIdle, streaming:
		conn.since.Store(w.now.Load()<<2 | int64(state))
	case http.StateClosed:
		w.mu.Lock()
		w.forget(conn)
		w.mu.Unlock()
	}
}

// trackedOf finds the tracked connection, perhaps below TLS, and turns the state of
// one with overlapping requests into streaming.
func trackedOf(c net.Conn, state *http.ConnState) (*trackedConn, bool) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
		if *state == http.StateActive && secure.ConnectionState().NegotiatedProtocol == "h2" {
			*state = streaming
		}
	}
	conn, ok := c.(*trackedConn)
	return conn, ok
}

// connKey is where a request's context has its *trackedConn.
type connKey struct{}

// withConn is the server's ConnContext hook where a handler authorises connections.
func withConn(ctx context.Context, c net.Conn) context.Context {
	state := http.StateNew
	if conn, ok := trackedOf(c, &state); ok {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return ctx
}

// authorise notes that a request of the connection in ctx, if there is one, was authorised. In a private
// room it counts among its peer's no more, and goes only while it is idle.
func (w *idleTracker) authorise(ctx context.Context) {
	conn, ok := ctx.Value(connKey{}).(*trackedConn)
	if !ok || conn.known.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, open := w.conns[conn]; open {
		w.leave(conn)
	}
}

// A limitedListener accepts the connections that a connLimiter admits. It can be closed more than once: by us and
// by net/http.
type limitedListener struct {
	net.Listener
	tracker *idleTracker
	close   func() error
}

func (w *idleTracker) listener(ln net.Listener) net.Listener {
	return limitedListener{Listener: ln, tracker: w, close: sync.OnceValue(ln.Close)}
}

func (l limitedListener) Close() error { return l.close() }

func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tracked := &trackedConn{Conn: conn}
		if l.tracker.admit(tracked) {
			return tracked, nil
		}
		_ = conn.Close() // it was not admitted
	}
}
