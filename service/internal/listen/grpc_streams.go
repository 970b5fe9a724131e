package listen

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

const (
	// rpcMemory is what answers of all connections of gRPC may hold until they are sent, with their streams.
	rpcMemory = 16 << 20
	// rpcStreamBytes is about what a stream holds besides, and rpcBuffers for how many bytes one of an answer counts, as
	// buffers are longer than what is in them.
	rpcStreamBytes, rpcBuffers = 4 << 10, 2
	// rpcPrefix is how long the head of a message is, which is sent before it.
	rpcPrefix = 5
)

// rpcBounds bounds what connections of gRPC hold for their clients, which grpc-go does not: answers that nobody reads,
// and blocks of header fields that do not end. It is safe for concurrent use.
type rpcBounds struct {
	tracker *idleTracker
	// head and answer are the ticks that a block of header fields may take, and an answer to be read.
	head, answer int64
	held         atomic.Int64 // by all connections; at most rpcMemory, plus what is about to be closed
	evicting     sync.Mutex
}

// newRPCBounds makes bounds for the connections of a tracker.
func newRPCBounds(tracker *idleTracker, head, answer time.Duration) *rpcBounds {
	return &rpcBounds{tracker: tracker, head: tracker.ticks(head), answer: tracker.ticks(answer)}
}

// rpcStreams are the streams of a connection of gRPC. Those that are open and have no handler were answered, and their
// answers wait until the client reads them.
type rpcStreams struct {
	bounds *rpcBounds
	// handlers is how many run. since is the tick of the last progress: an answer was sent, or made.
	handlers, since atomic.Int64

	mu     sync.Mutex
	closed bool
	open   map[uint32]struct{}
	// unsent is how many bytes of answers are not sent yet, or more, where streams ended without them.
	unsent int64
	holds  int64 // of rpcBounds.held
	reads  bool  // whether an answer was sent as a whole, once
	block  int64 // the tick at which a block of header fields began that has not ended; -1 is none
}

func (b *rpcBounds) newStreams() *rpcStreams {
	s := &rpcStreams{bounds: b, open: map[uint32]struct{}{}, block: -1}
	s.since.Store(b.tracker.now.Load())
	return s
}

// came notes a frame of the client.
func (s *rpcStreams) came(f frame) {
	switch f.kind {
	case http2.FrameHeaders, http2.FrameContinuation:
		s.mu.Lock()
		if f.flags.Has(http2.FlagHeadersEndHeaders) { // of a continuation, too
			s.block = -1
		} else if s.block < 0 {
			s.block = s.bounds.tracker.now.Load()
		}
		_, known := s.open[f.stream]
		begun := f.kind == http2.FrameHeaders && !known
		if begun {
			if len(s.open) == 0 {
				s.since.Store(s.bounds.tracker.now.Load())
			}
			s.open[f.stream] = struct{}{}
			begun = s.settle()
		}
		s.mu.Unlock()
		if begun {
			s.bounds.evict()
		}
	case http2.FrameRSTStream:
		s.mu.Lock()
		s.end(f.stream)
		s.mu.Unlock()
	default:
	}
}

// went notes a frame for the client.
func (s *rpcStreams) went(f frame) {
	switch f.kind {
	case http2.FrameData, http2.FrameHeaders, http2.FrameRSTStream:
	default:
		return
	}
	s.since.Store(s.bounds.tracker.now.Load())
	ends := f.kind == http2.FrameRSTStream || f.flags.Has(http2.FlagDataEndStream) // of header fields, too
	if !ends && f.kind == http2.FrameHeaders {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.kind == http2.FrameData {
		sent := min(int64(f.length), s.unsent)
		s.unsent -= sent
	}
	if ends {
		s.reads = true
		s.end(f.stream)
	} else {
		s.settle()
	}
}

// end forgets a stream; mu is held. Once there are none but those that handlers have, nothing is unsent.
func (s *rpcStreams) end(stream uint32) {
	delete(s.open, stream)
	if int64(len(s.open)) <= s.handlers.Load() {
		s.unsent = 0
	}
	s.settle()
}

// settle counts what the connection holds now, and reports whether all hold too much; mu is held.
func (s *rpcStreams) settle() bool {
	if s.closed {
		return false
	}
	more := max(s.unread(), 0)*rpcStreamBytes + s.unsent*rpcBuffers - s.holds
	s.holds += more
	return s.bounds.held.Add(more) > rpcMemory
}

// begin notes that a handler runs, and ended that it has returned.
func (s *rpcStreams) begin() { s.handlers.Add(1) }

func (s *rpcStreams) ended() {
	s.since.Store(s.bounds.tracker.now.Load())
	s.mu.Lock()
	s.handlers.Add(-1)
	full := s.settle()
	s.mu.Unlock()
	if full {
		s.bounds.evict()
	}
}

// answered notes an answer of so many bytes, which is to be sent.
func (s *rpcStreams) answered(n int) {
	s.mu.Lock()
	s.unsent += int64(n + rpcPrefix)
	full := s.settle()
	s.mu.Unlock()
	if full {
		s.bounds.evict()
	}
}

// forget gives back what is held for a connection that is closed. It may be called again.
func (s *rpcStreams) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bounds.held.Add(-s.holds)
	s.holds, s.closed = 0, true
}

// unread is how many answers wait to be read; mu is held.
func (s *rpcStreams) unread() int64 { return int64(len(s.open)) - s.handlers.Load() }

// late reports whether something has taken too long at a tick, and why the connection is closed then.
func (s *rpcStreams) late(now int64) (cause, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.block >= 0 && now-s.block > s.bounds.head {
		return slowHead, true
	}
	return slowRequest, s.unread() > 0 && now-s.since.Load() > s.bounds.answer
}

// evict closes connections whose answers nobody reads, until a quarter of the memory is free: first those that have
// read none, then those that have not read for longest, of them those that hold most.
func (b *rpcBounds) evict() {
	if !b.evicting.TryLock() {
		return
	}
	defer b.evicting.Unlock()
	b.tracker.mu.Lock()
	defer b.tracker.mu.Unlock()
	type candidate struct {
		conn         *trackedConn
		reads        int
		since, holds int64
	}
	var found []*candidate
	for conn := range b.tracker.conns {
		if s := conn.streams; s != nil {
			s.mu.Lock()
			c := &candidate{conn: conn, since: s.since.Load()}
			if s.reads {
				c.reads = 1
			}
			c.holds = s.holds
			if s.unread() > 0 {
				found = append(found, c)
			}
			s.mu.Unlock()
		}
	}
	slices.SortFunc(found, func(x, y *candidate) int {
		return cmp.Or(cmp.Compare(x.reads, y.reads), cmp.Compare(x.since, y.since), cmp.Compare(y.holds, x.holds))
	})
	for _, c := range found {
		if b.held.Load() <= rpcMemory/4*3 {
			return
		}
		c.conn.streams.forget()
		b.tracker.cut(c.conn, slowRequest)
	}
}

// A grpcListener accepts connections that are counted until they are closed.
type grpcListener struct{ net.Listener }

// Accept implements [net.Listener].
func (l grpcListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tracked, ok := conn.(*trackedConn); ok {
		return grpcConn{tracked, &rpcAddr{Addr: tracked.RemoteAddr(), conn: tracked}}, nil
	}
	return conn, err
}

// A grpcConn is forgotten when it is closed. What requests are under way on it is grpc-go's to
// know; when there are as many connections as may be, the one that has been silent longest is
// closed for another.
type grpcConn struct {
	*trackedConn
	remote *rpcAddr
}

// RemoteAddr implements [net.Conn].
func (c grpcConn) RemoteAddr() net.Addr { return c.remote }

// Read implements [net.Conn].
func (c grpcConn) Read(to []byte) (int, error) {
	n, err := c.trackedConn.Read(to)
	c.since.Store(c.tracker.now.Load()<<2 | int64(http.StateNew))
	return n, err
}

// Close implements [net.Conn].
func (c grpcConn) Close() error {
	c.tracker.changed(c.trackedConn, http.StateClosed)
	if c.streams != nil {
		c.streams.forget()
	}
	return c.trackedConn.Close()
}

// An rpcAddr is the address at the other end of a connection of gRPC, by which its calls find the
// connection.
type rpcAddr struct {
	net.Addr
	conn    *trackedConn
	frames  *framedConn // nil until the handshake has ended
	awaited int         // its calls that wait for their messages; arrivals' lock guards it
}

// framedCredentials count the frames of connections, below which there may be TLS.
type framedCredentials struct {
	credentials.TransportCredentials
	bounds *rpcBounds
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c framedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	known, ok := raw.(grpcConn)
	if err != nil || !ok {
		return conn, info, err
	}
	streams := c.bounds.newStreams()
	c.bounds.tracker.mu.Lock()
	known.streams = streams
	c.bounds.tracker.mu.Unlock()
	known.remote.frames = newFramedConn(conn, streams, func() { c.bounds.tracker.drop(known.trackedConn, noCalls) })
	return known.remote.frames, info, nil
}
