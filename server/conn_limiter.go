package server

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/clientip"
)

// A connLimiter bounds the connections of a listener. When there are as many as there may be, a new connection
// evicts those that have been idle longest, then those that have not sent their first head for a while. If all
// of them have a request in progress, the new one is refused.
//
// A private one evicts first the connections on which no request was authorised, busy or not: a full tick after
// they came at the earliest, and at the bound of one address those of that address.
type connLimiter struct {
	most    int
	perPeer int // of one address that is not a trusted proxy; 0 is no bound
	private bool
	clients *clientip.Resolver
	metrics *connMetrics
	logger  *slog.Logger

	crowded  int64 // the tick at which nothing could be closed, or -1
	lastLog  int64 // the tick of the last line
	logged   bool
	unlogged int // how many were closed or refused since
}

// logInterval is the time between two lines about refused and evicted connections.
const logInterval = time.Minute

// evictShare: 1/evictShare of all connections is evicted at once. Choosing them takes time that grows with the number of
// connections, so it is done seldom.
const evictShare = 64

// A cause says why a connection was closed before its client did it.
type cause uint8

const (
	slowHead    cause = iota // its first head took too long
	idleTooLong              // no request came for too long
	slowRequest              // a request took too long
	evicted                  // for another connection
	refusedFull              // there are as many as there may be
	refusedPeer              // its address has as many as it may
)

// String is the metric's label.
func (c cause) String() string {
	return [...]string{"slow_head", "idle", "slow_request", "made_room", "refused_full", "refused_peer"}[c]
}

// connMetrics counts a listener's connections.
type connMetrics struct {
	open  prometheus.Gauge
	early [refusedPeer + 1]prometheus.Counter
}

func (m *connMetrics) closed(why cause) { m.early[why].Inc() }

// newConnMetrics registers the metrics of both listeners, by service.
func newConnMetrics(registry prometheus.Registerer) (public, admin *connMetrics, err error) {
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rate_limiter_connections",
		Help: "Open connections.",
	}, []string{"service"})
	early := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_connections_closed_total",
		Help: "Connections that the service closed or refused before their client closed them, by cause.",
	}, []string{"service", "cause"})
	of := func(service string) *connMetrics {
		m := &connMetrics{open: open.WithLabelValues(service)}
		for why := range m.early {
			m.early[why] = early.WithLabelValues(service, cause(why).String())
		}
		return m
	}
	public, admin = of(serviceHTTP), of(serviceAdmin)
	for _, collector := range []prometheus.Collector{open, early} {
		if err := registry.Register(collector); err != nil {
			return nil, nil, err
		}
	}
	return public, admin, nil
}

// admit reports whether the connection may stay; if so, it is tracked.
func (w *idleTracker) admit(conn *trackedConn) bool {
	if w.limiter.perPeer > 0 {
		conn.peer = w.limiter.peerOf(conn.RemoteAddr())
	}
	conn.begun = w.now.Load()
	conn.since.Store(conn.begun<<2 | int64(http.StateNew))
	w.mu.Lock()
	why, ok := w.tryAdmit(conn)
	affected := 0
	if !ok || why == evicted {
		affected = w.limiter.toLog(w.now.Load(), w.tick)
	}
	w.mu.Unlock()
	if affected > 0 {
		w.limiter.logger.Warn("connections are closed or refused: the listener has as many as it may (http.max_connections, http.max_connections_per_peer)", "cause", why.String(),
			"connections", w.limiter.most, "affected", affected)
	}
	return ok
}

// tryAdmit does what admit says; mu is held. The cause is why the connection was
// refused, or evicted if others were.
func (w *idleTracker) tryAdmit(conn *trackedConn) (why cause, ok bool) {
	if conn.peer != "" && w.peers[conn.peer] >= w.limiter.perPeer {
		if !w.limiter.private || !w.evict(conn.peer) {
			w.limiter.metrics.closed(refusedPeer)
			return refusedPeer, false
		}
		why = evicted
	}
	if len(w.conns) >= w.limiter.most {
		if !w.evict("") {
			w.limiter.metrics.closed(refusedFull)
			return refusedFull, false
		}
		why = evicted
	}
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
	w.noteEmpty()
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
	var found []candidate
	for conn := range w.conns {
		if of != "" && conn.peer != of {
			continue
		}
		if c := w.limiter.candidate(conn); c.idle || now-c.since > 1 && (c.unauthorised || c.silent) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		w.limiter.crowded = now
		return false
	}
	slices.SortFunc(found, candidate.compare)
	for _, c := range found[:min(len(found), 1+w.limiter.most/evictShare)] {
		w.cut(c.conn, evicted)
	}
	return true
}

// A candidate is a connection that may be evicted.
type candidate struct {
	conn         *trackedConn
	unauthorised bool // of a private limiter, and no request was authorised
	idle         bool
	silent       bool  // the first head may be on its way: it has a full tick at least
	since        int64 // the tick
}

func (r *connLimiter) candidate(conn *trackedConn) candidate {
	if r.private && !conn.known.Load() {
		return candidate{conn: conn, unauthorised: true, since: conn.begun}
	}
	since := conn.since.Load()
	state := http.ConnState(since & 3)
	return candidate{conn: conn, idle: state == http.StateIdle, silent: state == http.StateNew, since: since >> 2}
}

// compare orders unauthorised ones before idle ones before silent ones, and among each the oldest first.
func (c candidate) compare(d candidate) int {
	rank := func(c candidate) int {
		switch {
		case c.unauthorised:
			return 0
		case c.idle:
			return 1
		default:
			return 2
		}
	}
	return cmp.Or(cmp.Compare(rank(c), rank(d)), cmp.Compare(c.since, d.since))
}

// toLog counts a connection that was refused or evicted, and returns how many were since the last
// line; 0 if it is too early for another line.
func (r *connLimiter) toLog(now int64, tick time.Duration) int {
	r.unlogged++
	if r.logged && time.Duration(now-r.lastLog)*tick < logInterval {
		return 0
	}
	affected := r.unlogged
	r.logged, r.lastLog, r.unlogged = true, now, 0
	return affected
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
