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

// A watch bounds what connections may use: their number, and how long each may take
// to send its first head, between requests, and over one request. For the times it
// does what net/http's own timeouts do, which move a timer several times per request
// and so cost a tenth of a check; the watch costs two stores. Its time is a count of
// ticks, so it is late by up to two of them.
type watch struct {
	tick   time.Duration
	limits [streaming + 1]int64 // of each state, in ticks; 0 is none
	room   room

	now   atomic.Int64
	mu    sync.Mutex
	conns map[*watchedConn]struct{}
	peers map[string]int // how many connections each has; only when they are bounded
	empty chan struct{}  // nil until somebody waits for it
}

// streaming is the state of an HTTP/2 connection with requests under way. They
// overlap, so there may be no end of it; net/http bounds each of them. It takes the
// number of a state that is never kept.
const streaming = http.StateHijacked

// A watchedConn knows its state and since when it has it: ticks x 4 + state.
type watchedConn struct {
	net.Conn
	since atomic.Int64
	peer  string // under which its peer's connections are counted; "" is not at all
	begun int64  // the tick at which it was admitted
	known atomic.Bool
}

// CloseWrite ends the sending half, if the connection has halves. net/http does so when it closes a
// connection of which it has not read all, so that the client reads the answer and not a reset.
func (c *watchedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return errors.ErrUnsupported
}

// newWatch makes a watch of the time until the first head has come, between
// requests, and for a request; 0 is no bound.
func newWatch(first, idle, request time.Duration, room room) *watch {
	const slowest = time.Second
	room.crowded = -1
	w := &watch{tick: slowest, room: room, conns: map[*watchedConn]struct{}{}, peers: map[string]int{}}
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
func (w *watch) run(done <-chan struct{}) {
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
func (w *watch) sweep(now int64) {
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
func (w *watch) emptied() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.empty == nil {
		w.empty = make(chan struct{})
		w.noteEmpty()
	}
	return w.empty
}

// noteEmpty closes empty, once, if somebody waits and there are no connections; mu is held.
func (w *watch) noteEmpty() {
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
func (w *watch) cut(conn *watchedConn, why cause) {
	w.forget(conn)
	w.room.metrics.closed(why)
	_ = conn.Close() // it is given up
}

// changed is the server's ConnState hook.
func (w *watch) changed(c net.Conn, state http.ConnState) {
	conn, ok := watchedOf(c, &state)
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

// watchedOf finds the watched connection, perhaps below TLS, and turns the state of
// one with overlapping requests into streaming.
func watchedOf(c net.Conn, state *http.ConnState) (*watchedConn, bool) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
		if *state == http.StateActive && secure.ConnectionState().NegotiatedProtocol == "h2" {
			*state = streaming
		}
	}
	conn, ok := c.(*watchedConn)
	return conn, ok
}

// connKey is where a request's context has its *watchedConn.
type connKey struct{}

// withConn is the server's ConnContext hook where a handler vouches for connections.
func withConn(ctx context.Context, c net.Conn) context.Context {
	state := http.StateNew
	if conn, ok := watchedOf(c, &state); ok {
		return context.WithValue(ctx, connKey{}, conn)
	}
	return ctx
}

// vouch notes that a request of the connection in ctx, if there is one, was authorised. In a private
// room it counts among its peer's no more, and goes only while it is idle.
func (w *watch) vouch(ctx context.Context) {
	conn, ok := ctx.Value(connKey{}).(*watchedConn)
	if !ok || conn.known.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, open := w.conns[conn]; open {
		w.leave(conn)
	}
}

// A watchedListener accepts connections for which there is room. It can be closed more than once: by us and
// by net/http.
type watchedListener struct {
	net.Listener
	watch *watch
	close func() error
}

func (w *watch) listener(ln net.Listener) net.Listener {
	return watchedListener{Listener: ln, watch: w, close: sync.OnceValue(ln.Close)}
}

func (l watchedListener) Close() error { return l.close() }

func (l watchedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		watched := &watchedConn{Conn: conn}
		if l.watch.admit(watched) {
			return watched, nil
		}
		_ = conn.Close() // there is no room for it
	}
}
