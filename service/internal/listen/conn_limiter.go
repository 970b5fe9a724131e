package listen

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/service/internal/logsampler"
)

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
	conn.tracker = w
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
