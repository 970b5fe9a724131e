package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

const shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// runGRPC is a server with a gRPC listener and a domain d, in which the key k has a limit of a million.
func runGRPC(t *testing.T, change func(*server.Config)) *running {
	t.Helper()
	r := run(t, func(c *server.Config) {
		c.GRPCListen = "127.0.0.1:0"
		if change != nil {
			change(c)
		}
	})
	r.load()
	return r
}

// load puts the domain in force.
func (r *running) load() {
	r.t.Helper()
	d, _, err := domains.Parse("test.yaml", []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}]\n"))
	if err == nil {
		err = r.server.RateLimit().Swap([]*domains.Domain{d})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// dial is a connection to the server's gRPC listener, plain unless options say otherwise, until the test ends.
func (r *running) dial(options ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	return dialGRPC(r.t, "passthrough:///"+r.server.GRPCAddr().String(), options...)
}

func dialGRPC(t *testing.T, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	conn := must.Get(grpc.NewClient(target, options...))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// one is a request with one descriptor.
func one(value string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: value}}},
	}}
}

// rate asks about one value over a connection.
func rate(ctx context.Context, conn *grpc.ClientConn, value string) (*pb.RateLimitResponse, error) {
	return pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, one(value))
}

// decides expects decisions over a connection.
func decides(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, err := rate(ctx, conn, "x")
	if err != nil || response.OverallCode != pb.RateLimitResponse_OK || len(response.Statuses) != 1 || response.Statuses[0].CurrentLimit.GetRequestsPerUnit() != 1_000_000 {
		t.Errorf("%v, %v", response, err)
	}
}

// refuses expects that no connection comes about.
func refuses(t *testing.T, conn *grpc.ClientConn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, err := rate(ctx, conn, "x")
	if status.Code(err) != codes.Unavailable || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%v, %v; want UNAVAILABLE with %q", response, err, text)
	}
}

func TestGRPC(t *testing.T) {
	r := runGRPC(t, nil)
	decides(t, r.dial())
	says(t, r.log.String(), "level=INFO msg=listening service=grpc addr="+r.server.GRPCAddr().String())
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	without := run(t, nil)
	if without.server.GRPCAddr() != nil || without.server.RateLimit() != nil {
		t.Error("there is a gRPC listener that nobody asked for")
	}
}

// A socket is listened on, also one that a killed process has left. One on which somebody listens is, and so is another file.
func TestGRPCUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	left := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	left.SetUnlinkOnClose(false) // as after kill -9
	must.Do(t, left.Close())
	r := runGRPC(t, func(c *server.Config) { c.GRPCListen = "unix:" + path })
	conn := dialGRPC(t, "unix:"+path)
	decides(t, conn)
	r.connections("grpc", 1)
	_ = conn.Close()
	r.connections("grpc", 0)
	says(t, r.log.String(), "a socket on which nobody listens any more was removed")
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, []byte("kept"), 0o600))
	for name, address := range map[string]string{"another service's": path, "a file": file} {
		_, _, err := startFails(t, func(c *server.Config) { c.GRPCListen = "unix:" + address })
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "or that nobody listens on") {
			t.Errorf("%s: %v", name, err)
		}
	}
	decides(t, dialGRPC(t, "unix:"+path))
	if text, err := os.ReadFile(file); string(text) != "kept" {
		t.Errorf("the file has %q: %v", text, err)
	}
	r.stop()
	must.Do(t, r.end())
}

// connections waits until the metrics say that a listener has so many.
func (r *running) connections(service string, want int) {
	r.t.Helper()
	eventually(r.t, func() bool {
		for _, f := range must.Get(r.server.Gatherer().Gather())(r.t) {
			for _, m := range f.GetMetric() {
				if f.GetName() == "rate_limiter_connections" && m.GetLabel()[0].GetValue() == service {
					return m.GetGauge().GetValue() == float64(want)
				}
			}
		}
		return false
	})
}

// Connections are counted. Beyond MaxConnections one is refused, and let in when another has ended.
func TestGRPCMaxConnections(t *testing.T) {
	r := runGRPC(t, func(c *server.Config) { c.HTTP.MaxConnections, c.MetricsAge = 2, -1 })
	first, second, third := r.dial(), r.dial(), r.dial()
	for i, conn := range []*grpc.ClientConn{first, second} {
		r.connections("grpc", i)
		decides(t, conn)
	}
	refuses(t, third, "")
	decides(t, first)
	r.connections("grpc", 2)
	_ = second.Close()
	eventually(t, func() bool {
		_, err := rate(t.Context(), third, "x")
		return err == nil
	})
	_, _ = first.Close(), third.Close()
	r.connections("grpc", 0)
	if body := r.get("/metrics").body; strings.Contains(body, `rate_limiter_connections_closed_total{cause="refused_full",service="grpc"} 0`) || !strings.Contains(body, `service="grpc"`) {
		t.Error("refused connections are not counted")
	}
}

func TestGRPCReflection(t *testing.T) {
	r := runGRPC(t, nil)
	stream := must.Get(reflectionpb.NewServerReflectionClient(r.dial()).ServerReflectionInfo(t.Context()))(t)
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	must.Do(t, stream.Send(ask))
	answer := must.Get(stream.Recv())(t)
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	for _, want := range []string{pb.RateLimitService_ServiceDesc.ServiceName, healthpb.Health_ServiceDesc.ServiceName} {
		if !slices.Contains(names, want) {
			t.Errorf("the services are %q, without %s", names, want)
		}
	}
}

// A raw codec sends bytes as they are.
type raw struct{ encoding.CodecV2 }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }
func (raw) Name() string                         { return "proto" }

// Messages that are too long, and what is no message, are refused with a code, and the connection goes on.
func TestGRPCBadMessages(t *testing.T) {
	r := runGRPC(t, nil)
	conn := r.dial()
	for _, test := range []struct {
		name    string
		message []byte
		code    codes.Code
	}{
		{"10 MB", make([]byte, 10<<20), codes.ResourceExhausted},
		{"no message", []byte{0xff}, codes.InvalidArgument},
		{"a text that is no UTF-8", []byte("\x0a\x02d\xff"), codes.InvalidArgument},
		{"nothing", nil, codes.InvalidArgument},
		{"a text of another length", []byte("\x0a\x7fd"), codes.InvalidArgument},
	} {
		if err := conn.Invoke(t.Context(), shouldRateLimit, test.message, nil, grpc.ForceCodecV2(raw{})); status.Code(err) != test.code {
			t.Errorf("%s: %v, want %v", test.name, err, test.code)
		}
		decides(t, conn)
	}
	if err := conn.Invoke(t.Context(), "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", []byte{}, nil, grpc.ForceCodecV2(raw{})); status.Code(err) != codes.Unimplemented {
		t.Errorf("version 2: %v", err)
	}
}

// begun is a call of which the message does not come.
func begun(ctx context.Context, conn *grpc.ClientConn, method string) (grpc.ClientStream, error) {
	return conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
}

// A call whose message does not come ends after the time that a body may take; one that is being decided goes on.
func TestGRPCMessagesInTime(t *testing.T) {
	g := &gated{gate: make(chan struct{})}
	r := runGRPC(t, func(c *server.Config) {
		c.HTTP.BodyTimeout = 50 * time.Millisecond
		g.Store, c.Store = c.Store, g
	})
	conn := r.dial()
	held := make(chan error, 1)
	go func() {
		for { // again, if its message took too long
			if _, err := rate(t.Context(), conn, "held"); status.Code(err) != codes.DeadlineExceeded || g.inside.Load() > 0 {
				held <- err
				return
			}
		}
	}()
	eventually(t, func() bool { return g.inside.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, method := range []string{shouldRateLimit, healthpb.Health_Check_FullMethodName, reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName} {
		stream := must.Get(begun(ctx, conn, method))(t)
		if err := stream.RecvMsg(&pb.RateLimitResponse{}); status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	close(g.gate)
	if err := <-held; err != nil {
		t.Errorf("a call that was being decided: %v", err)
	}
}

// Only so many calls of one address watch the health at once.
func TestGRPCWatches(t *testing.T) {
	r := runGRPC(t, nil)
	watch := func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 8 {
		conn := r.dial()
		for i := range 256 {
			if err := watch(ctx, conn); err != nil {
				t.Fatalf("watcher %d of a connection: %v", i, err)
			}
		}
	}
	other := r.dial()
	if err := watch(t.Context(), other); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	eventually(t, func() bool { return watch(t.Context(), other) == nil })
}

// A gated store holds what is asked for a value until the gate is opened.
type gated struct {
	stint.Store
	inside atomic.Int64
	gate   chan struct{}
}

func (g *gated) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if strings.HasSuffix(op.Key, "held") {
		g.inside.Add(1)
		defer g.inside.Add(-1)
		<-g.gate
		if err := ctx.Err(); err != nil {
			return stint.Decision{}, err
		}
	}
	return g.Store.Decide(ctx, op)
}

// A flood of requests on one connection waits there, 256 are under way, and other clients are answered.
func TestGRPCFloodOfStreams(t *testing.T) {
	g := &gated{gate: make(chan struct{})}
	r := runGRPC(t, func(c *server.Config) { g.Store, c.Store = c.Store, g })
	flood, innocent := r.dial(), r.dial()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls sync.WaitGroup
	var answered atomic.Int64
	for range 3000 {
		calls.Go(func() {
			if _, err := rate(ctx, flood, "held"); err == nil {
				answered.Add(1)
			}
		})
	}
	eventually(t, func() bool { return g.inside.Load() == 256 })
	for range 200 {
		decides(t, innocent)
	}
	if n := g.inside.Load(); n != 256 {
		t.Errorf("%d requests of one connection are under way", n)
	}
	close(g.gate)
	calls.Wait()
	if n := answered.Load(); n != 3000 {
		t.Errorf("%d of 3000 were answered", n)
	}
}

// A server that is stopped under load ends its connections by GOAWAY, and its clients, which have another server, lose
// no request.
func TestGRPCDrainUnderLoad(t *testing.T) {
	patient := func(c *server.Config) { c.Drain.Timeout = patience } // if it passes, Run says so
	first, second := runGRPC(t, patient), runGRPC(t, nil)
	servers := manual.NewBuilderWithScheme("both")
	servers.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: first.server.GRPCAddr().String()}, {Addr: second.server.GRPCAddr().String()}}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var done atomic.Bool
	var load sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		conn := dialGRPC(t, "both:///", grpc.WithResolvers(servers), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin":{}}]}`))
		for range 8 {
			load.Go(func() {
				for !done.Load() {
					if _, err := rate(ctx, conn, "x"); err != nil {
						t.Error(err)
						return
					}
					answered.Add(1)
				}
			})
		}
	}
	more := func(n int64) {
		from := answered.Load()
		eventually(t, func() bool { return answered.Load() > from+n || t.Failed() })
	}
	eventually(t, func() bool { return first.store.calls.Load() > 100 && second.store.calls.Load() > 100 })
	first.stop()
	if err := first.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	more(1000)
	done.Store(true)
	load.Wait()
}

// A request under way when the server is stopped is answered, and Run waits for it.
func TestGRPCDrain(t *testing.T) {
	g := &gated{gate: make(chan struct{})}
	r := runGRPC(t, func(c *server.Config) { g.Store, c.Store = c.Store, g })
	conn := r.dial()
	answered := make(chan error, 1)
	go func() {
		_, err := rate(t.Context(), conn, "held")
		answered <- err
	}()
	eventually(t, func() bool { return g.inside.Load() == 1 })
	r.stop()
	other := r.dial()
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rate(ctx, other, "x")
		return err != nil
	})
	select {
	case err := <-r.ended:
		t.Fatalf("Run ended before its request: %v", err)
	default:
	}
	close(g.gate)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// A request that does not end is cut off at the DrainTimeout.
func TestGRPCDrainTimeout(t *testing.T) {
	r := runGRPC(t, func(c *server.Config) { c.Drain.Timeout = 300 * time.Millisecond })
	inside := make(chan struct{})
	r.store.enter = func(ctx context.Context) { close(inside); <-ctx.Done() }
	conn := r.dial()
	cut := make(chan error, 1)
	go func() {
		_, err := rate(t.Context(), conn, "x")
		cut <- err
	}()
	<-inside
	r.stop()
	if err := <-cut; status.Code(err) != codes.Unavailable {
		t.Errorf("the request that was cut off: %v", err)
	}
	if err := r.end(); err == nil || !strings.Contains(err.Error(), "requests were cut off after 300ms") {
		t.Errorf("Run = %v", err)
	}
}
