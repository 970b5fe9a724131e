package listen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	rpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
)

// callers are connections of gRPC, whose calls come to one arrivals.
type callers struct {
	t        *testing.T
	arrivals *arrivals
}

func newCallers(t *testing.T, connections int) *callers {
	t.Helper()
	clients := must.Get(clientip.New(clientip.Config{}))(t)
	return &callers{t, newArrivals(time.Hour, func() int { return connections }, clients)}
}

// from is a connection from an address.
func (c *callers) from(ip string) *rpcAddr {
	addr := &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}
	return &rpcAddr{Addr: addr, conn: &trackedConn{}}
}

// begin begins a call. The tap refuses none, since grpc-go keeps the timers of those.
func (c *callers) begin(from *rpcAddr, method string) (*call, context.CancelFunc) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(rpcpeer.NewContext(c.t.Context(), &rpcpeer.Peer{Addr: from}))
	ctx, err := c.arrivals.begin(ctx, &tap.Info{FullMethodName: method})
	made, _ := ctx.Value(callKey{}).(*call)
	if err != nil || made == nil || ctx.Err() != nil {
		c.t.Fatalf("the tap refuses a call: %v, %v", err, ctx.Err())
	}
	return made, cancel
}

// Beyond the bound on calls that wait for their messages, a connection that has its share loses its own oldest, and
// another call ends the oldest of all: none of a client is refused whose messages come.
func TestHalfCallsEndForOthers(t *testing.T) {
	c := newCallers(t, 5000)
	attackers := make([]*rpcAddr, grpcAwaited)
	half := make([]*call, grpcAwaited)
	for i := range half {
		attackers[i] = c.from("127.0.0.2")
		half[i], _ = c.begin(attackers[i], "/a/B")
	}
	last := grpcAwaited - 1
	again, _ := c.begin(attackers[last], "/a/B")
	if half[last].refused() == nil || half[0].refused() != nil || again.refused() != nil {
		t.Error("a connection with its share did not lose its own call")
	}
	innocent := c.from("127.0.0.3")
	for range 100 {
		whole, cancel := c.begin(innocent, "/a/B")
		if !whole.first() {
			t.Fatal("the call has ended")
		}
		whole.ended()
		if whole.refused() != nil {
			t.Fatal("a whole call was refused")
		}
		cancel()
	}
	if half[0].refused() == nil || half[1].refused() != nil || half[0].next != nil {
		t.Error("the oldest call did not end, or more did")
	}
	if n := c.arrivals.awaits; n != grpcAwaited-1 {
		t.Errorf("%d calls wait", n)
	}
}

// When there are as many watches as may be, one of the address with most makes room.
func TestWatchesMakeRoom(t *testing.T) {
	c := newCallers(t, 1)
	method := healthpb.Health_Watch_FullMethodName
	var crowd []*call
	for range mostWatches {
		made, _ := c.begin(c.from("127.0.0.2"), method)
		crowd = append(crowd, made)
	}
	if made, _ := c.begin(c.from("127.0.0.2"), method); made.refused() == nil {
		t.Error("the address with most watches has one more")
	}
	made, cancel := c.begin(c.from("127.0.0.3"), method)
	lost := 0
	for _, other := range crowd {
		if other.refused() != nil {
			lost++
		}
	}
	if made.refused() != nil || lost != 1 || c.arrivals.watches.all != mostWatches {
		t.Errorf("refused: %v; %d made room; %d watch", made.refused(), lost, c.arrivals.watches.all)
	}
	cancel()
	for deadline := time.Now().Add(5 * time.Minute); ; <-time.After(time.Millisecond) {
		c.arrivals.watches.mu.Lock()
		all, of := c.arrivals.watches.all, len(c.arrivals.watches.of)
		c.arrivals.watches.mu.Unlock()
		if all == mostWatches-1 && of == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d watch, of %d addresses", all, of)
		}
	}
}

// What streams hold is bounded by closing connections whose answers nobody reads: first those that have read none.
func TestUnreadAnswersMakeRoom(t *testing.T) {
	w := trackedBy(t, GRPC, connLimiter{most: 10})
	b := newRPCBounds(w, time.Second, time.Second)
	open := func() *trackedConn {
		near, far := net.Pipe()
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		conn := &trackedConn{Conn: near, streams: b.newStreams()}
		if !w.admit(conn) {
			t.Fatal("there is no room")
		}
		return conn
	}
	headers := func(stream uint32, flags http2.Flags) frame {
		return frame{kind: http2.FrameHeaders, flags: flags | http2.FlagHeadersEndHeaders, stream: stream}
	}
	reader, attacker, other := open(), open(), open()
	reader.streams.came(headers(1, 0))
	reader.streams.answered(100)
	reader.streams.went(frame{kind: http2.FrameData, length: 105, stream: 1})
	reader.streams.went(headers(1, http2.FlagHeadersEndStream))
	if n := b.held.Load(); n != 0 {
		t.Fatalf("%d bytes are held for an answer that was sent", n)
	}
	reader.streams.came(headers(3, 0))
	reader.streams.answered(rpcMemory / rpcBuffers / 2)
	for stream := uint32(1); stream < 101; stream += 2 {
		attacker.streams.came(headers(stream, 0))
	}
	other.streams.begin() // the only call of it has a handler
	other.streams.came(headers(1, 0))
	w.now.Add(5)
	attacker.streams.answered(rpcMemory / rpcBuffers / 2)
	if w.stays(attacker) || !w.stays(reader) || !w.stays(other) {
		t.Errorf("the attacker stays: %t, the others stay: %t, %t", w.stays(attacker), w.stays(reader), w.stays(other))
	}
	reader.streams.came(frame{kind: http2.FrameRSTStream, stream: 3})
	other.streams.ended()
	other.streams.went(headers(1, http2.FlagHeadersEndStream))
	if n := b.held.Load(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
	for stream := uint32(1); stream < 2*rpcMemory/rpcStreamBytes; stream += 2 {
		other.streams.begin()
		other.streams.came(headers(stream, 0))
	}
	if !w.stays(other) || !w.stays(reader) {
		t.Error("calls under way end a connection")
	}
}

// A connection whose frames are no calls is slowed, and then closed. One with calls is never slowed.
func TestFramesThatAreNoCalls(t *testing.T) {
	for _, test := range []struct {
		name  string
		each  func(*http2.Framer, int) error
		ends  bool
		calls bool // whether frames of header fields are calls
	}{
		{"PING", func(f *http2.Framer, _ int) error { return f.WritePing(false, [8]byte{}) }, true, true},
		{"SETTINGS", func(f *http2.Framer, _ int) error { return f.WriteSettings() }, true, true},
		{"WINDOW_UPDATE", func(f *http2.Framer, _ int) error { return f.WriteWindowUpdate(0, 1) }, true, true},
		{"PRIORITY", func(f *http2.Framer, _ int) error { return f.WritePriority(1, http2.PriorityParam{}) }, true, true},
		{"RST_STREAM", func(f *http2.Framer, _ int) error { return f.WriteRSTStream(1, 0) }, true, true},
		{"empty DATA", func(f *http2.Framer, _ int) error { return f.WriteData(1, false, nil) }, true, true},
		{"header fields that are no calls", func(f *http2.Framer, _ int) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{1}})
		}, true, false},
		{"calls", func(f *http2.Framer, n int) error {
			stream := uint32(2*n + 1)
			return errors.Join(
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{1}, EndHeaders: true}),
				f.WriteData(stream, true, []byte{1}), f.WritePing(false, [8]byte{}), f.WriteWindowUpdate(0, 1),
				f.WriteWindowUpdate(stream, 1), f.WriteRSTStream(stream, 0),
			)
		}, false, true},
		{"a long body", func(f *http2.Framer, n int) error { return f.WriteData(1, false, make([]byte, 16<<10)) }, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer func() { _ = far.Close() }()
				closed := false
				var streams *rpcStreams
				if !test.calls {
					streams = newRPCBounds(newIdleTracker(0, 0, 0, connLimiter{}), 1, 1).newStreams()
				}
				conn := newFramedConn(near, streams, func() { closed = true })
				const most = 20_000
				go func() {
					defer func() { _ = far.Close() }()
					out := bufio.NewWriter(far)
					_, err := io.WriteString(out, http2.ClientPreface)
					framer := http2.NewFramer(out, nil)
					framer.AllowIllegalWrites = true
					for n := 0; err == nil && n < most; n++ {
						err = test.each(framer, n)
					}
					_ = out.Flush() // if it is closed, the other end says so
				}()
				begun := time.Now()
				_, err := io.Copy(io.Discard, conn)
				_ = conn.Close()
				took := time.Since(begun)
				switch {
				case test.ends && (!errors.Is(err, errNoCalls) || !closed || took < 10*time.Second || took > 2*time.Minute):
					t.Errorf("%v after %s, closed %t", err, took, closed)
				case !test.ends && (err != nil || closed || took > 0):
					t.Errorf("%v after %s, closed %t", err, took, closed)
				}
			})
		})
	}
}

// Frames are found wherever their bytes are parted.
func TestFrameScanner(t *testing.T) {
	var whole []byte
	var want []frame
	for i := range 20 {
		f := frame{kind: http2.FrameType(i % 10), flags: http2.Flags(i), length: i * 7 % 23, stream: uint32(i)}
		whole = append(whole, 0, 0, byte(f.length), byte(f.kind), byte(f.flags), 0x80, 0, 0, byte(f.stream))
		whole = append(whole, make([]byte, f.length)...)
		want = append(want, f)
	}
	for size := 1; size <= len(whole); size++ {
		var s frameScanner
		var got []frame
		for rest := whole; len(rest) > 0; {
			part := rest[:min(size, len(rest))]
			rest = rest[len(part):]
			for f, after, ok := s.next(part); ok; f, after, ok = s.next(after) {
				got = append(got, f)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("in parts of %d bytes: %v", size, got)
		}
	}
}
