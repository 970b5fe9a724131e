package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server"
)

// A wire is a connection of HTTP/2 to the gRPC listener, of which each frame is written by hand.
type wire struct {
	*http2.Framer
	t      *testing.T
	conn   net.Conn
	fields bytes.Buffer
	encode *hpack.Encoder
	stream uint32
}

func (r *running) wire(settings ...http2.Setting) *wire {
	r.t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(r.t.Context(), "tcp", r.server.GRPCAddr().String()))(r.t)
	r.t.Cleanup(func() { _ = conn.Close() })
	w := &wire{Framer: http2.NewFramer(conn, conn), t: r.t, conn: conn}
	w.encode = hpack.NewEncoder(&w.fields)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		r.t.Fatal(err)
	}
	w.must(w.WriteSettings(settings...))
	return w
}

func (w *wire) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// block is a block of header fields.
func (w *wire) block(fields ...string) []byte {
	w.fields.Reset()
	for field := range slices.Chunk(fields, 2) {
		w.must(w.encode.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	return w.fields.Bytes()
}

// call begins a call, with a message unless it is nil.
func (w *wire) call(method string, message []byte, more ...string) {
	w.t.Helper()
	w.stream += 2
	w.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.stream - 1, EndHeaders: true, BlockFragment: w.block(append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "s", "content-type", "application/grpc", "te", "trailers",
	}, more...)...)}))
	if message != nil {
		w.must(w.WriteData(w.stream-1, true, append([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}, message...)))
	}
}

// ends waits until the server has closed the connection.
func (w *wire) ends() {
	w.t.Helper()
	w.must(w.conn.SetReadDeadline(time.Now().Add(patience)))
	if _, err := io.Copy(io.Discard, w.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Error("the connection stays")
	}
}

// Answers that a client has no room for end its connection after http.write_timeout, however many calls go on. Another
// connection, on which a client watches, stays.
func TestGRPCAnswersThatNobodyReads(t *testing.T) {
	r := runGRPC(t, func(c *server.Config) { c.HTTP.WriteTimeout = time.Second })
	innocent := r.dial()
	watch := must.Get(healthpb.NewHealthClient(innocent).Watch(t.Context(), &healthpb.HealthCheckRequest{}))(t)
	must.Get(watch.Recv())(t)
	message := must.Get(proto.Marshal(one("x")))(t)
	w := r.wire(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	w.call(healthpb.Health_Watch_FullMethodName, []byte{})
	for range 100 {
		w.call(shouldRateLimit, message)
	}
	w.ends()
	decides(t, innocent)
	r.connections("grpc", 1)
	says(t, r.get("/metrics").body, `rate_limiter_connections_closed_total{cause="slow_request",service="grpc"} 1`)
}

// Calls that are read are no reason to end a connection, of whatever kind they are.
func TestGRPCAnswersThatAreRead(t *testing.T) {
	r := runGRPC(t, func(c *server.Config) { c.HTTP.WriteTimeout = time.Second })
	conn := r.dial()
	for begun := time.Now(); time.Since(begun) < 3*time.Second; { // ticks of the clock, which nothing replaces here
		decides(t, conn)
		must.Get(healthOf(t, conn, ""))(t)
		if err := conn.Invoke(t.Context(), "/none/None", &pb.RateLimitRequest{}, &pb.RateLimitResponse{}); status.Code(err) != codes.Unimplemented {
			t.Fatal(err)
		}
	}
}

// A block of header fields that is too long, or does not end in time, ends the connection.
func TestGRPCHeaderBlocks(t *testing.T) {
	r := runGRPC(t, func(c *server.Config) { c.HTTP.ReadHeaderTimeout = time.Millisecond })
	long := r.wire()
	long.must(long.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: long.block(":method", "POST")}))
	var err error
	for i := 0; err == nil && i < 1600; i++ { // more than sockets keep
		err = long.WriteContinuation(1, false, long.block(fmt.Sprint("x-", i), strings.Repeat("v", 10_000)))
	}
	long.ends()
	if err == nil {
		t.Error("a block of 16 MB was read")
	}
	short := r.wire()
	short.must(short.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: short.block(":method", "POST")}))
	go func() { // it goes on, and does not end
		for err := error(nil); err == nil && t.Context().Err() == nil; <-time.After(100 * time.Millisecond) {
			err = short.WriteContinuation(1, false, []byte{0x82}) // :method: GET
		}
	}()
	short.ends()
	decides(t, r.dial())
}

// A question about the service's messages, and one of the rate limit service in JSON, wait for their turns before they
// are worked on, and are refused when these do not come.
func TestRateLimitTurns(t *testing.T) {
	g := &gated{gate: make(chan struct{})}
	r := runGRPC(t, func(c *server.Config) {
		g.Store, c.Store = c.Store, g
		c.HTTP.MaxOperations, c.OpenJSON = 1, true
	})
	held := make(chan error, 1)
	go func() {
		_, err := rate(t.Context(), r.dial(), "held")
		held <- err
	}()
	eventually(t, func() bool { return g.inside.Load() == 1 })
	stream := must.Get(reflectionpb.NewServerReflectionClient(r.dial()).ServerReflectionInfo(t.Context()))(t)
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: pb.RateLimitService_ServiceDesc.ServiceName}}
	must.Do(t, stream.Send(ask))
	if answer, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("reflection: %d bytes, %v", proto.Size(answer), err)
	}
	post := func(body string) int { return r.post("/json", body).status }
	if got := post("{"); got != http.StatusServiceUnavailable {
		t.Errorf("JSON: %d", got)
	}
	close(g.gate)
	if err := <-held; err != nil {
		t.Error(err)
	}
	eventually(t, func() bool { return post("{") == http.StatusBadRequest })
	if got := post("{" + strings.Repeat(" ", 64<<10)); got != http.StatusRequestEntityTooLarge {
		t.Errorf("64 KiB and more of JSON: %d", got)
	}
}
