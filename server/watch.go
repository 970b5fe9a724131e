package server

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A watch closes connections that take too long: to send their first head, between
// requests, or over one request. It does what net/http's own timeouts do, which
// move a timer several times per request and so cost a tenth of a check; the watch
// costs two stores. Its time is a count of ticks, so it is late by up to two of
// them.
type watch struct {
	tick   time.Duration
	limits [http.StateIdle + 1]int64 // of each state, in ticks; 0 is none

	now   atomic.Int64
	mu    sync.Mutex
	conns map[*watchedConn]struct{}
}

// A watchedConn knows its state and since when it has it: ticks x 4 + state.
type watchedConn struct {
	net.Conn
	since atomic.Int64
}

func newWatch(first, idle, request time.Duration) *watch {
	const slowest = time.Second
	w := &watch{tick: max(min(first, idle, request, 4*slowest)/4, time.Millisecond), conns: map[*watchedConn]struct{}{}}
	for state, limit := range map[http.ConnState]time.Duration{
		http.StateNew: first, http.StateIdle: idle, http.StateActive: request,
	} {
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

// sweep closes what has been in its state for too long. net/http notices by the
// failing read or write.
func (w *watch) sweep(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.conns {
		since := conn.since.Load()
		if now-since>>2 > w.limits[since&3] {
			delete(w.conns, conn)
			_ = conn.Close() // it is given up
		}
	}
}

// changed is the server's ConnState hook.
func (w *watch) changed(c net.Conn, state http.ConnState) {
	conn, ok := c.(*watchedConn)
	if !ok {
		return
	}
	if state <= http.StateIdle {
		conn.since.Store(w.now.Load()<<2 | int64(state))
	}
	switch state {
	case http.StateNew:
		w.mu.Lock()
		w.conns[conn] = struct{}{}
		w.mu.Unlock()
	case http.StateHijacked, http.StateClosed:
		w.mu.Lock()
		delete(w.conns, conn)
		w.mu.Unlock()
	case http.StateActive, http.StateIdle:
	}
}

// A watchedListener accepts watched connections.
type watchedListener struct{ net.Listener }

func (l watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn}, nil
}
