package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/kernel"
	"github.com/stint-go/stint/service/internal/logsampler"
)

// An idleTracker bounds how long connections may take to send their first head, between requests, and for one
// request. It replaces net/http's own timeouts, which move a timer several times per request and
// cost a tenth of a check; the tracker costs two atomic stores. Its time is a count of ticks: it is
// late by up to two of them. It holds the connections that a connLimiter bounds.
type idleTracker struct {
	tick    time.Duration
	limits  [streaming + 1]int64 // of each state, in ticks; 0 is none
	limiter connLimiter

	stopping atomic.Bool // the kernel was told to make no more connections for the listener

	now   atomic.Int64
	mu    sync.Mutex
	conns map[*trackedConn]struct{}
	begun int64          // how many were admitted
	peers map[string]int // how many connections each has; only when they are bounded
}

// streaming is the state of an HTTP/2 connection with requests under way. They
// overlap, so there may be no end of it; net/http bounds each of them. It takes the
// number of a state that is never kept.
const streaming = http.StateHijacked

// yieldEvery is how many requests that a client has sent ahead are answered before other goroutines
// run. If a client's next requests are there already, and are answered without the store, each of
// its connections would otherwise keep a processor for the scheduler's 10 ms at a time.
const yieldEvery = 8

// A trackedConn knows its state and since when it has it: ticks x 4 + state.
type trackedConn struct {
	net.Conn
	tracker *idleTracker // that admitted it
	since   atomic.Int64
	ended   atomic.Bool // whether all was sent, and only its client's end of it is waited for
	peer    string      // under which its peer's connections are counted; "" is not at all
	begun   int64       // how many were admitted before it
	known   atomic.Bool
	ahead   atomic.Uint32 // requests taken since a Read found all that the client had sent
	// streams are those of a connection of gRPC; nil on others, and until the handshake has ended. The tracker's lock
	// guards it.
	streams *rpcStreams
}

// Read implements [net.Conn]. What does not fill the buffer is all that has come.
func (c *trackedConn) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if n < len(to) && c.ahead.Load() != 0 {
		c.ahead.Store(0)
	}
	return n, err
}

// took notes that one more request was taken from what has been read, and lets others go first at times. A client that
// sends a request when it has the answer to the one before pays nothing for it.
func (c *trackedConn) took() {
	if c.ahead.Add(1)%yieldEvery == 0 {
		runtime.Gosched()
	}
}

// CloseWrite ends the sending half, if the connection has halves. net/http does so when it closes a
// connection of which it has not read all, so that the client reads the answer and not a reset. For
// half a second it then waits.
func (c *trackedConn) CloseWrite() error {
	c.ended.Store(true)
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return errors.ErrUnsupported
}

// newIdleTracker makes a tracker with bounds of the time until the first head has come, between
// requests, and for a request; 0 is no bound.
func newIdleTracker(first, idle, request time.Duration, limiter connLimiter) *idleTracker {
	const slowest = time.Second
	w := &idleTracker{tick: slowest, limiter: limiter, conns: map[*trackedConn]struct{}{}, peers: map[string]int{}}
	w.limiter.crowded = -1
	w.limiter.lines = logsampler.New(
		1, logInterval, func() stint.Instant { return stint.Instant(w.now.Load() * w.tick.Microseconds()) },
	)
	bounds := map[http.ConnState]time.Duration{http.StateNew: first, http.StateIdle: idle, http.StateActive: request}
	for _, limit := range bounds {
		if limit > 0 {
			w.tick = max(min(w.tick, limit/4), time.Millisecond)
		}
	}
	for state, limit := range bounds {
		w.limits[state] = w.ticks(limit)
	}
	return w
}

// ticks is how many ticks a time has, rounded up.
func (w *idleTracker) ticks(d time.Duration) int64 { return int64((d + w.tick - 1) / w.tick) }

// run counts the ticks until the context ends.
func (w *idleTracker) run(ctx context.Context) {
	sleep.Every(ctx, w.tick, func() { w.sweep(w.now.Add(1)) })
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
		} else if conn.streams != nil {
			if why, late := conn.streams.late(now); late {
				w.cut(conn, why)
			}
		}
	}
}

// open is how many connections there are.
func (w *idleTracker) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// cut closes a connection that is known; mu is held.
func (w *idleTracker) cut(conn *trackedConn, why cause) {
	w.forget(conn)
	w.limiter.metrics.early[why].Inc()
	_ = conn.Close() // it is given up
}

// drop closes a connection for a cause.
func (w *idleTracker) drop(conn *trackedConn, why cause) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, open := w.conns[conn]; open {
		w.cut(conn, why)
	}
}

// changedHTTP is the hook ConnState of net/http. That says of a connection that it is new after it was
// admitted, perhaps much later: its time for the first head has begun then.
func (w *idleTracker) changedHTTP(c net.Conn, state http.ConnState) {
	if state != http.StateNew {
		w.changed(c, state)
	}
}

// changed notes the state of a connection, and when it began.
func (w *idleTracker) changed(c net.Conn, state http.ConnState) {
	conn, ok := trackedOf(c, &state)
	if !ok {
		return
	}
	switch state {
	case http.StateNew, http.StateActive, http.StateIdle, streaming:
		conn.since.Store(w.now.Load()<<2 | int64(state))
		if state == http.StateIdle {
			conn.took()
		}
	case http.StateClosed:
		w.mu.Lock()
		w.forget(conn)
		w.mu.Unlock()
	}
}

// trackedOf finds the tracked connection, perhaps below TLS, and turns the state of
// one with overlapping requests into streaming.
func trackedOf(c net.Conn, state *http.ConnState) (*trackedConn, bool) {
	if framed, ok := c.(secureConn); ok {
		c = framed.tls
	}
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
	conn, _ := trackedOf(c, &state)
	return context.WithValue(ctx, connKey{}, conn)
}

// Authorise notes that a request of the connection in its context, if there is one, was authorised. On the admin
// listener it no longer counts among its peer's, and is evicted only while it is idle.
func Authorise(ctx context.Context) {
	conn, _ := ctx.Value(connKey{}).(*trackedConn)
	if conn == nil || conn.known.Swap(true) {
		return
	}
	conn.tracker.mu.Lock()
	defer conn.tracker.mu.Unlock()
	if _, open := conn.tracker.conns[conn]; open {
		conn.tracker.leave(conn)
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
		if socket, ok := conn.(syscall.Conn); ok && l.tracker.stopping.Load() {
			_ = kernel.KeepAll(socket) // where nothing is dropped, nothing is to be done
		}
		tracked := &trackedConn{Conn: conn}
		if l.tracker.admit(tracked) {
			return tracked, nil
		}
		_ = conn.Close() // it was not admitted
	}
}

// Raw is the system's connection below one that is not TLS. It is for looking at the socket
// without reading from it.
func Raw(nc net.Conn) syscall.RawConn {
	tracked, ok := nc.(*trackedConn)
	if !ok {
		return nil
	}
	system, ok := tracked.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, _ := system.SyscallConn()
	return raw
}

// closeConnection says that a connection ends with this answer; net/http makes a GOAWAY of it for HTTP/2.
var closeConnection = []string{"close"}

// closeOnDrain ends connections with their next answer while the server drains, so that their clients send
// nothing on them that would be lost.
type closeOnDrain struct {
	http.Handler
	draining *atomic.Bool
}

func (l closeOnDrain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.draining.Load() {
		w.Header()["Connection"] = closeConnection
	}
	l.Handler.ServeHTTP(w, r)
}
