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

// A room says how many connections a listener may have. When it is full, those that
// have waited longest between two requests are closed to make room for new ones; then
// those that have not sent their first head for a while. When all of them are about a
// request, the new one is refused.
//
// In a private room most connections have no business: those of which no request was
// authorised, for however long they keep busy, are closed first, those of one
// address for another of it, and after a full tick at the earliest.
type room struct {
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

// logInterval is how far apart the lines about a full room are.
const logInterval = time.Minute

// share is the part of the room that is cleared at once, so that looking for what to
// close, which takes as long as there are connections, is done seldom.
const share = 64

// A cause says why a connection was closed before its client did it.
type cause uint8

const (
	slowHead    cause = iota // its first head took too long
	idleTooLong              // no request came for too long
	slowRequest              // a request took too long
	madeRoom                 // others needed the room
	refusedFull              // there was no room
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

// admit reports whether there is room for the connection; if so, it is watched.
func (w *watch) admit(conn *watchedConn) bool {
	if w.room.perPeer > 0 {
		conn.peer = w.room.peerOf(conn.RemoteAddr())
	}
	conn.begun = w.now.Load()
	conn.since.Store(conn.begun<<2 | int64(http.StateNew))
	w.mu.Lock()
	why, ok := w.tryAdmit(conn)
	affected := 0
	if !ok || why == madeRoom {
		affected = w.room.toLog(w.now.Load(), w.tick)
	}
	w.mu.Unlock()
	if affected > 0 {
		w.room.logger.Warn("connections are closed or refused: the listener has as many as it may (http.max_connections, http.max_connections_per_peer)", "cause", why.String(),
			"connections", w.room.most, "affected", affected)
	}
	return ok
}

// tryAdmit does what admit says; mu is held. The cause is why the connection was
// refused, or madeRoom when others had to go.
func (w *watch) tryAdmit(conn *watchedConn) (why cause, ok bool) {
	if conn.peer != "" && w.peers[conn.peer] >= w.room.perPeer {
		if !w.room.private || !w.makeRoom(conn.peer) {
			w.room.metrics.closed(refusedPeer)
			return refusedPeer, false
		}
		why = madeRoom
	}
	if len(w.conns) >= w.room.most {
		if !w.makeRoom("") {
			w.room.metrics.closed(refusedFull)
			return refusedFull, false
		}
		why = madeRoom
	}
	w.conns[conn] = struct{}{}
	w.room.metrics.open.Inc()
	if conn.peer != "" {
		w.peers[conn.peer]++
	}
	return why, true
}

// forget gives up a connection's room, once; mu is held.
func (w *watch) forget(conn *watchedConn) {
	if _, known := w.conns[conn]; !known {
		return
	}
	delete(w.conns, conn)
	w.room.metrics.open.Dec()
	w.leave(conn)
	w.noteEmpty()
}

// leave counts a connection among its peer's no more; mu is held.
func (w *watch) leave(conn *watchedConn) {
	if conn.peer == "" {
		return
	}
	if w.peers[conn.peer]--; w.peers[conn.peer] == 0 {
		delete(w.peers, conn.peer)
	}
	conn.peer = ""
}

// makeRoom closes the connections that can best be done without, of a peer if it is not "",
// and reports whether there were any; mu is held. When there are none it does not look again in
// the same tick, unless the room is private and so small.
func (w *watch) makeRoom(of string) bool {
	now := w.now.Load()
	if w.room.crowded == now && !w.room.private {
		return false
	}
	var found []candidate
	for conn := range w.conns {
		if of != "" && conn.peer != of {
			continue
		}
		if c := w.room.candidate(conn); c.idle || now-c.since > 1 && (c.stranger || c.silent) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		w.room.crowded = now
		return false
	}
	slices.SortFunc(found, candidate.compare)
	for _, c := range found[:min(len(found), 1+w.room.most/share)] {
		w.cut(c.conn, madeRoom)
	}
	return true
}

// A candidate is a connection that may make room.
type candidate struct {
	conn     *watchedConn
	stranger bool // in a private room, and no request was authorised
	idle     bool
	silent   bool  // the first head may be on its way: it has a full tick at least
	since    int64 // the tick
}

func (r *room) candidate(conn *watchedConn) candidate {
	if r.private && !conn.known.Load() {
		return candidate{conn: conn, stranger: true, since: conn.begun}
	}
	since := conn.since.Load()
	state := http.ConnState(since & 3)
	return candidate{conn: conn, idle: state == http.StateIdle, silent: state == http.StateNew, since: since >> 2}
}

// compare puts strangers before the idle, those before the silent, and of each the
// longest first.
func (c candidate) compare(d candidate) int {
	rank := func(c candidate) int {
		switch {
		case c.stranger:
			return 0
		case c.idle:
			return 1
		default:
			return 2
		}
	}
	return cmp.Or(cmp.Compare(rank(c), rank(d)), cmp.Compare(c.since, d.since))
}

// toLog notes that a connection had to go and returns how many had since the last
// line, 0 when it is too early for another.
func (r *room) toLog(now int64, tick time.Duration) int {
	r.unlogged++
	if r.logged && time.Duration(now-r.lastLog)*tick < logInterval {
		return 0
	}
	affected := r.unlogged
	r.logged, r.lastLog, r.unlogged = true, now, 0
	return affected
}

// peerOf is what the peer's connections are counted under; "" for a trusted proxy,
// behind which are many clients.
func (r *room) peerOf(addr net.Addr) string {
	peer := addr.String()
	if r.clients.TrustsPeer(peer) {
		return ""
	}
	return r.clients.Key(peer, nil)
}
