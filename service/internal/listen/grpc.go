package listen

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/service/internal/certificates"
	"github.com/stint-go/stint/service/internal/decisionlog"
)

// MessageBytes bounds a message of a request of the rate limit service.
const MessageBytes = 64 << 10

// The bounds on one connection of gRPC besides. A descriptor list that Envoy sends has some hundred bytes.
const (
	grpcStreams     = 256      // at once; further requests wait for these
	grpcHeaderBytes = 16 << 10 // of a request's header fields, as HTTP/2 counts them
	grpcReadBuffer  = 8 << 10  // of a connection
	grpcHandshake   = 5 * time.Second
)

// healthName is under which the rate limit service's health is asked for, as the reference service
// has it.
const healthName = "ratelimit"

// healthGap is the time between two looks at whether the service is ready. Those who watch hear of
// a change within it.
const healthGap = 200 * time.Millisecond

// A RateLimitService decides. Malformed is told of each message that is none, and makes the error of it.
type RateLimitService interface {
	pb.RateLimitServiceServer
	Malformed(err error) error
}

// A RateLimit is what the gRPC listener serves.
type RateLimit struct {
	Service RateLimitService
	// Enter waits until the work of a request may begin.
	Enter func(ctx context.Context, cost int64) (leave func(), err error)
	// Ready reports whether requests are answered, which the health service tells.
	Ready func(context.Context) bool
	// MaxAge is how long a connection is kept before its client is asked to make another one. Default: 0, as long as the
	// client likes.
	MaxAge time.Duration
	// Answers count what the service answers; not what health and reflection do.
	Answers *promlimit.Answers
}

// GRPC opens the gRPC listener, and returns its address.
func (l *Listeners) GRPC(ctx context.Context, limit RateLimit) (net.Addr, error) {
	c := l.config
	ln, err := l.listenGRPC(ctx)
	if err != nil {
		return nil, err
	}
	// A connection is the client's to use as it likes, and grpc-go bounds how long; only how many there are
	// is bounded here.
	tracker := newIdleTracker(0, 0, 0, l.limiter(GRPC))
	bounds := newRPCBounds(tracker, c.HTTP.ReadHeaderTimeout, c.HTTP.WriteTimeout)
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(grpcStreams), grpc.MaxRecvMsgSize(MessageBytes), grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxHeaderListSize(grpcHeaderBytes), grpc.ConnectionTimeout(grpcHandshake),
		grpc.ReadBufferSize(grpcReadBuffer),
		grpc.InTapHandle(newArrivals(c.HTTP.BodyTimeout, tracker.open, l.clients).begin),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: c.HTTP.IdleTimeout, MaxConnectionAge: limit.MaxAge, MaxConnectionAgeGrace: time.Hour,
			Time: c.HTTP.IdleTimeout, Timeout: c.HTTP.WriteTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	shake := insecure.NewCredentials()
	if c.GRPCTLS.Enabled() {
		files, err := l.openCertificates("grpc_tls", GRPC, c.GRPCTLS.TLS)
		if err != nil {
			return nil, errors.Join(err, ln.Close())
		}
		shake = credentials.NewTLS(certificates.WithClientName(files.Config(), c.GRPCTLS.ClientName))
	}
	server := guardedServer{
		grpc.NewServer(append(options, grpc.Creds(framedCredentials{shake, bounds}))...), limit.Enter,
	}
	server.RegisterService(rateLimitDesc(limit.Answers), limit.Service)
	told := newHealth(limit.Ready)
	healthpb.RegisterHealthServer(server, told)
	reflection.Register(server)
	f := l.opened(GRPC, ln, tracker)
	if _, tcp := ln.Addr().(*net.TCPAddr); !tcp {
		f.socket = nil
	}
	f.listener, f.server, f.health = grpcListener{f.listener}, grpcServer{server.Server, told}, told
	return ln.Addr(), nil
}

// A grpcServer is the [Server] of gRPC.
type grpcServer struct {
	*grpc.Server
	health *rpcHealth
}

// Shutdown implements [Server]. Watchers of the health are ended first, since GracefulStop
// would wait for them.
func (s grpcServer) Shutdown(ctx context.Context) error {
	s.health.tell(ctx)
	close(s.health.ended)
	ended := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.Stop()
		<-ended
		return ctx.Err()
	}
}

// rateLimitDesc describes the rate limit service as the generated code does, but for messages that
// are none, and for answers, which are counted from the message's arrival on.
func rateLimitDesc(answers *promlimit.Answers) *grpc.ServiceDesc {
	const method = "ShouldRateLimit"
	desc := pb.RateLimitService_ServiceDesc
	route := answers.Route(GRPC, "/"+desc.ServiceName+"/"+method)
	answer := func(
		to any, ctx context.Context, decode func(any) error,
		_ grpc.UnaryServerInterceptor,
	) (any, error) {
		m := &message{}
		err := decode(m)
		start := time.Now()
		ctx = arrived(ctx)
		if err != nil {
			return nil, err
		}
		service, _ := to.(RateLimitService)
		var reply any
		if m.err != nil { // answered as the reference service does, INVALID_ARGUMENT, and counted
			err = service.Malformed(m.err)
		} else {
			reply, err = service.ShouldRateLimit(ctx, &m.request)
		}
		trace := decisionlog.RecordedTrace(metadata.ValueFromIncomingContext(ctx, "traceparent"))
		route.Answered(status.Code(err).String(), time.Since(start), trace)
		return reply, err
	}
	desc.Methods = []grpc.MethodDesc{{MethodName: method, Handler: answer}}
	return &desc
}

// listenGRPC listens at an address, or at a socket of this machine.
func (l *Listeners) listenGRPC(ctx context.Context) (net.Listener, error) {
	path, local := strings.CutPrefix(l.config.GRPCListen, "unix:")
	if !local {
		return l.Listen(ctx, "grpc_listen", l.config.GRPCListen)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && removeLeft(ctx, path) {
		l.logger.Warn("a socket on which nobody listens any more was removed", "service", GRPC, "path", path)
		ln, err = new(net.ListenConfig).Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, prefix.Errorf("grpc_listen: %w: %w", stint.Invalid("grpc_listen", l.config.GRPCListen,
			"unix: and the path of a socket that is not there yet, or that nobody listens on, in a folder that may be written"),
			err)
	}
	return ln, nil
}

// removeLeft removes the socket of a process that was killed: one that refuses a connection, as nobody listens on it.
// It reports whether it did. Nothing else is removed, nor what took its place meanwhile.
func removeLeft(ctx context.Context, path string) bool {
	before, err := os.Lstat(path)
	if err != nil || before.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	after, err := os.Lstat(path)
	return err == nil && os.SameFile(before, after) && os.Remove(path) == nil
}

// A rpcHealth is gRPC's health service, which tells whether this one is ready.
type rpcHealth struct {
	*health.Server
	ended chan struct{} // closed when those who watch it are to leave
	ready func(context.Context) bool
}

// newHealth makes a health service that knows its first answer.
func newHealth(ready func(context.Context) bool) *rpcHealth {
	h := &rpcHealth{Server: health.NewServer(), ended: make(chan struct{}), ready: ready}
	h.tell(context.Background())
	return h
}

// tell says whether the service is ready. The names are "", the reference service's and the
// service's full name, as health checkers are configured with any of them.
func (h *rpcHealth) tell(ctx context.Context) {
	status := healthpb.HealthCheckResponse_SERVING
	if !h.ready(ctx) {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	for _, name := range []string{"", healthName, pb.RateLimitService_ServiceDesc.ServiceName} {
		h.SetServingStatus(name, status)
	}
}

// run tells it until ctx is done.
func (h *rpcHealth) run(ctx context.Context) {
	sleep.Every(ctx, healthGap, func() { h.tell(ctx) })
}

// Watch implements [healthpb.HealthServer]. It ends when the service does, which would wait for it.
func (h *rpcHealth) Watch(r *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() {
		select {
		case <-h.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return h.Server.Watch(r, endingStream{stream, ctx})
}

// An endingStream has a context that ends with the service.
type endingStream struct {
	healthpb.Health_WatchServer
	ctx context.Context //nolint:containedctx // of the stream
}

// Context implements [grpc.ServerStream].
func (s endingStream) Context() context.Context { return s.ctx }
