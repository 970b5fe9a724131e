package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
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
	since atomic.Int64
	ended atomic.Bool // whether all was sent, and only its client's end of it is waited for
	peer  string      // under which its peer's connections are counted; "" is not at all
	begun int64       // how many were admitted before it
	known atomic.Bool
	ahead atomic.Uint32 // requests taken since a Read found all that the client had sent
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
		w.limits[state] = int64((limit + w.tick - 1) / w.tick)
	}
	return w
}

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

// connKey is where a request's context has its *heldConn.
type connKey struct{}

// A heldConn is a connection of a tracker.
type heldConn struct {
	tracker *idleTracker
	conn    *trackedConn
}

// withConn is the server's ConnContext hook where a handler authorises connections.
func (w *idleTracker) withConn(ctx context.Context, c net.Conn) context.Context {
	state := http.StateNew
	if conn, ok := trackedOf(c, &state); ok {
		return context.WithValue(ctx, connKey{}, &heldConn{w, conn})
	}
	return ctx
}

// Authorise notes that a request of the connection in its context, if there is one, was authorised. On the admin
// listener it no longer counts among its peer's, and is evicted only while it is idle.
func Authorise(ctx context.Context) {
	held, ok := ctx.Value(connKey{}).(*heldConn)
	if !ok || held.conn.known.Swap(true) {
		return
	}
	held.tracker.mu.Lock()
	defer held.tracker.mu.Unlock()
	if _, open := held.tracker.conns[held.conn]; open {
		held.tracker.leave(held.conn)
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

// A connLimiter bounds the connections of a listener. When there are as many as there may be, a new connection evicts
// those that were answered for the last time, then those that have been idle longest, then those that have not sent
// their first head for a while. If all of them have a request in progress, the new one is refused. A few that were idle
// for less than two ticks are no others' room: where the rest is busy, such as with bodies that do not come, they are
// the clients that ask again and again, and would hear of the eviction by a reset.
//
// A private one evicts first the connections on which no request was authorised, busy or not: those of the address that
// has most, of them those that have sent a head, such as those whose body does not come, before those that have not,
// and the oldest first. At the bound of one address it evicts those of that address. So strangers displace each other:
// a new connection is let in at once, and has its time to show a token while another address has more connections.
type connLimiter struct {
	most    int
	perPeer int // of one address that is not a trusted proxy; 0 is no bound
	private bool
	clients *clientip.Resolver
	metrics *connMetrics
	logger  *slog.Logger

	crowded int64 // the tick at which nothing could be closed, or -1
	lines   *logsampler.Sampler
}

// logInterval is the time between two lines about refused and evicted connections.
const logInterval = time.Minute

// evictShare: 1/evictShare of all connections is evicted at once. Choosing them takes time that grows with the number
// of connections, so it is done rarely.
const evictShare = 64

// A cause says why a connection was closed before its client did it.
type cause uint8

const (
	slowHead    cause = iota // its first head took too long
	idleTooLong              // no request came for too long
	slowRequest              // a request took too long
	madeRoom                 // for another connection
	refusedFull              // there are as many as there may be
	refusedPeer              // its address has as many as it may
	noCalls                  // its frames of HTTP/2 were no calls
)

// String is the metric's label.
func (c cause) String() string {
	return [...]string{"slow_head", "idle", "slow_request", "made_room", "refused_full", "refused_peer", "no_calls"}[c]
}

// connMetrics counts a listener's connections.
type connMetrics struct {
	open  prometheus.Gauge
	early [noCalls + 1]prometheus.Counter
}

// newConnMetrics registers the metrics of the listeners, by service.
func newConnMetrics(registry prometheus.Registerer) (map[string]*connMetrics, error) {
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rate_limiter_connections",
		Help: "Open connections.",
	}, []string{"service"})
	early := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_connections_closed_total",
		Help: "Connections that the service closed or refused before their client closed them, by cause.",
	}, []string{"service", "cause"})
	all := map[string]*connMetrics{}
	for _, service := range []string{HTTP, GRPC, RESP, Admin} {
		m := &connMetrics{open: open.WithLabelValues(service)}
		for why := range m.early {
			m.early[why] = early.WithLabelValues(service, cause(why).String())
		}
		all[service] = m
	}
	return all, errors.Join(registry.Register(open), registry.Register(early))
}

// admit reports whether the connection may stay; if so, it is tracked.
func (w *idleTracker) admit(conn *trackedConn) bool {
	if w.limiter.perPeer > 0 {
		conn.peer = w.limiter.peerOf(conn.RemoteAddr())
	}
	conn.since.Store(w.now.Load()<<2 | int64(http.StateNew))
	w.mu.Lock()
	why, admitted := w.tryAdmit(conn)
	w.mu.Unlock()
	if !admitted || why == madeRoom {
		if skipped, ok := w.limiter.lines.Admit(); ok {
			w.limiter.logger.Warn("connections are closed or refused: the listener has as many as it may "+
				"(http.max_connections, http.max_connections_per_peer)", "cause", why.String(),
				"connections", w.limiter.most, "affected", skipped+1)
		}
	}
	return admitted
}

// tryAdmit does what admit says; mu is held. The cause is why the connection was
// refused, or madeRoom if others were closed.
func (w *idleTracker) tryAdmit(conn *trackedConn) (why cause, ok bool) {
	if conn.peer != "" && w.peers[conn.peer] >= w.limiter.perPeer {
		if !w.limiter.private || !w.evict(conn.peer) {
			w.limiter.metrics.early[refusedPeer].Inc()
			return refusedPeer, false
		}
		why = madeRoom
	}
	if len(w.conns) >= w.limiter.most {
		if !w.evict("") {
			w.limiter.metrics.early[refusedFull].Inc()
			return refusedFull, false
		}
		why = madeRoom
	}
	conn.begun = w.begun
	w.begun++
	w.conns[conn] = struct{}{}
	w.limiter.metrics.open.Inc()
	if conn.peer != "" {
		w.peers[conn.peer]++
	}
	return why, true
}

// forget stops tracking a connection; mu is held. It may be called again.
func (w *idleTracker) forget(conn *trackedConn) {
	if _, known := w.conns[conn]; !known {
		return
	}
	delete(w.conns, conn)
	w.limiter.metrics.open.Dec()
	w.leave(conn)
}

// leave no longer counts a connection among its peer's; mu is held.
func (w *idleTracker) leave(conn *trackedConn) {
	if conn.peer == "" {
		return
	}
	if w.peers[conn.peer]--; w.peers[conn.peer] == 0 {
		delete(w.peers, conn.peer)
	}
	conn.peer = ""
}

// evict closes the connections that matter least, of a peer if it is not "", and reports whether there were any;
// mu is held. If there are none it does not look again in the same tick, unless the limiter is private, and so small.
func (w *idleTracker) evict(of string) bool {
	now := w.now.Load()
	if w.limiter.crowded == now && !w.limiter.private {
		return false
	}
	var found, fresh []candidate
	for conn := range w.conns {
		if of != "" && conn.peer != of {
			continue
		}
		switch c := w.candidate(conn); {
		case c.rank == idle && now-c.since <= 1:
			fresh = append(fresh, c)
		case c.rank <= idle, c.rank != busy && now-c.since > 1:
			found = append(found, c)
		}
	}
	if w.limiter.private || len(fresh) > w.limiter.most/evictShare {
		found = append(found, fresh...)
	}
	if len(found) == 0 {
		w.limiter.crowded = now
		return false
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(a.rank, b.rank), cmp.Compare(b.peers, a.peers), cmp.Compare(a.head, b.head),
			cmp.Compare(a.since, b.since),
		)
	})
	for _, c := range found[:min(len(found), 1+w.limiter.most/evictShare)] {
		w.cut(c.conn, madeRoom)
	}
	return true
}

// A rank says how much a connection matters. Those of the lowest rank go first.
type rank uint8

const (
	over         rank = iota // it was answered for the last time
	unauthorised             // of a private limiter, and no request was authorised
	idle
	silent // the first head may be on its way: it has a full tick at least
	busy
)

// A candidate is a connection that may be evicted.
type candidate struct {
	conn *trackedConn
	rank
	// peers, head and since order connections of one rank, of which idle ones have since alone.
	peers int   // how many its address has; most go first
	head  int   // 0 when it has sent its first head, 1 while that may be on its way
	since int64 // the tick, or how many were admitted before it
}

func (w *idleTracker) candidate(conn *trackedConn) candidate {
	since, rank := conn.since.Load(), busy
	if conn.ended.Load() {
		return candidate{conn: conn, rank: over, since: since >> 2}
	}
	if w.limiter.private && !conn.known.Load() {
		c := candidate{conn: conn, rank: unauthorised, peers: w.peers[conn.peer], since: conn.begun}
		if http.ConnState(since&3) == http.StateNew {
			c.head = 1
		}
		return c
	}
	switch http.ConnState(since & 3) {
	case http.StateIdle:
		rank = idle
	case http.StateNew:
		rank = silent
	default:
	}
	return candidate{conn: conn, rank: rank, since: since >> 2}
}

// peerOf is the key under which the peer's connections are counted; "" for a trusted proxy,
// which speaks for many clients.
func (r *connLimiter) peerOf(addr net.Addr) string {
	peer := addr.String()
	if r.clients.TrustsPeer(peer) {
		return ""
	}
	return r.clients.Key(peer, nil)
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
	raw, err := system.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
