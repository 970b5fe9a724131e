package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	rpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

// The bounds on one connection of gRPC: streams at once (further requests wait for these), bytes of
// a request's message, and the time for a handshake. A descriptor list that Envoy sends has some
// hundred bytes.
const (
	grpcStreams      = 256      // at once; further requests wait for these
	grpcMessageBytes = 64 << 10 // of a request
	grpcHeaderBytes  = 16 << 10 // of a request's header fields, as HTTP/2 counts them
	grpcReadBuffer   = 8 << 10  // of a connection
	grpcHandshake    = 5 * time.Second
)

// healthName is under which the rate limit service's health is asked for, as the reference service
// has it.
const healthName = "ratelimit"

// healthGap is the time between two looks at whether the service is ready. Those who watch hear of
// a change within it.
const healthGap = 200 * time.Millisecond

// addRateLimit makes the rate limit service, if there is a listener for it. The store, the
// observers and the admission are the service's, so that one overload and one event serve all
// protocols.
func (s *service) addRateLimit(registerer prometheus.Registerer) error {
	if s.config.GRPCListen == "" {
		return nil
	}
	c := s.config.Envoy
	made, err := rls.New(rls.Config{
		Accounting: domains.Accounting(c.Accounting), MergeDomains: c.Merge, Shadow: c.Shadow, Quota: c.Quota,
		KeepDenied: c.KeepDenied, Metadata: c.Metadata, NearRatio: float32(c.NearRatio) / 100,
		Headers: rls.Headers(c.Headers),
		Store:   s.config.Store, Logger: s.config.Logger, Observe: s.observe, Enter: s.enterRPC,
	})
	if err != nil {
		return err
	}
	s.rateLimit = made
	return register(registerer, made.Collector(), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rate_limiter_commits_waiting",
		Help: "Commits of Envoy's streams that failed, and that are sent again.",
	}, func() float64 {
		waiting, _ := made.Commits()
		return float64(waiting)
	}), prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rate_limiter_commits_lost_total",
		Help: "Commits of Envoy's streams that were given up: the store had forgotten the hold, too many waited, or " +
			"the service stopped.",
	}, func() float64 {
		_, lost := made.Commits()
		return float64(lost)
	}))
}

// RateLimit is Envoy's rate limit service, which is given its domains; nil without a gRPC listener.
func (s *Server) RateLimit() *rls.Service { return s.service.rateLimit }

// enterRPC waits until the work of a request may begin. A peer is an Envoy, with all of its
// clients: fairness is between proxies.
func (s *service) enterRPC(ctx context.Context, cost int64) (leave func(), err error) {
	if ctx.Value(enteredKey{}) != nil {
		return func() {}, nil
	}
	work, err := s.admission.enter(ctx, cost, func() string {
		if p, ok := rpcpeer.FromContext(ctx); ok {
			return s.clients.Key(p.Addr.String(), nil)
		}
		return ""
	})
	if err != nil {
		return nil, err
	}
	return work.leave, nil
}

// openGRPC opens the gRPC listener, for so many connections at most.
func (s *Server) openGRPC(ctx context.Context, most int) (*openListener, error) {
	c := &s.config
	ln, err := s.listenGRPC(ctx)
	if err != nil {
		return nil, err
	}
	s.grpcAddr = ln.Addr()
	// A connection is the client's to use as it likes, and grpc-go bounds how long; only how many there are
	// is bounded here.
	tracker := newIdleTracker(0, 0, 0, connLimiter{
		most: most, perPeer: c.HTTP.MaxConnectionsPerPeer,
		clients: s.service.clients, metrics: s.service.connections[serviceGRPC], logger: c.Logger,
	})
	bounds := newRPCBounds(tracker, c.HTTP.ReadHeaderTimeout, c.HTTP.WriteTimeout)
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(grpcStreams), grpc.MaxRecvMsgSize(grpcMessageBytes), grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxHeaderListSize(grpcHeaderBytes), grpc.ConnectionTimeout(grpcHandshake),
		grpc.ReadBufferSize(grpcReadBuffer),
		grpc.InTapHandle(newArrivals(c.HTTP.BodyTimeout, tracker.open, s.service.clients).begin),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: c.HTTP.IdleTimeout, MaxConnectionAge: c.GRPCMaxAge, MaxConnectionAgeGrace: time.Hour,
			Time: c.HTTP.IdleTimeout, Timeout: c.HTTP.WriteTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	shake := insecure.NewCredentials()
	if c.GRPCTLS.Enabled() {
		certificates, err := openCertificates("grpc_tls", c.GRPCTLS.TLS, c.Logger, time.Now)
		if err != nil {
			return nil, errors.Join(prefix.Errorf("%w", err), ln.Close())
		}
		shake = credentials.NewTLS(withClientName(certificates.Config(), c.GRPCTLS.ClientName))
	}
	server := guardedServer{
		grpc.NewServer(append(options, grpc.Creds(framedCredentials{shake, bounds}))...), s.service.enterRPC,
	}
	server.RegisterService(&rateLimitDesc, s.service.rateLimit)
	told := s.service.newHealth()
	healthpb.RegisterHealthServer(server, told)
	reflection.Register(server)
	socket, _ := ln.(syscall.Conn)
	if _, tcp := ln.Addr().(*net.TCPAddr); !tcp {
		socket = nil
	}
	return &openListener{
		service: serviceGRPC, listener: grpcListener{tracker.listener(ln), bounds}, socket: socket,
		server: grpcServer{server.Server, told}, health: told, tracker: tracker,
	}, nil
}

// A grpcServer is the connServer of gRPC.
type grpcServer struct {
	*grpc.Server
	health *rpcHealth
}

// Shutdown implements [connServer]. Watchers of the health are ended first, since GracefulStop
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
// are none.
var rateLimitDesc = grpc.ServiceDesc{
	ServiceName: pb.RateLimitService_ServiceDesc.ServiceName,
	HandlerType: pb.RateLimitService_ServiceDesc.HandlerType,
	Metadata:    pb.RateLimitService_ServiceDesc.Metadata,
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
}

// shouldRateLimit answers a call whose message has arrived. A message that is none is answered as
// the reference service answers it, INVALID_ARGUMENT, and counted.
func shouldRateLimit(
	to any, ctx context.Context, decode func(any) error, //nolint:revive // as grpc.MethodDesc has it
	_ grpc.UnaryServerInterceptor,
) (any, error) {
	service, _ := to.(*rls.Service)
	m := &message{}
	err := decode(m)
	ctx = arrived(ctx)
	switch {
	case err != nil:
		return nil, err
	case m.err != nil:
		return nil, service.Malformed(m.err)
	}
	return service.ShouldRateLimit(ctx, &m.request)
}

// listenGRPC listens at an address, or at a socket of this machine.
func (s *Server) listenGRPC(ctx context.Context) (net.Listener, error) {
	path, local := strings.CutPrefix(s.config.GRPCListen, "unix:")
	if !local {
		return s.listen(ctx, "grpc_listen", s.config.GRPCListen)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && removeLeft(ctx, path) {
		s.config.Logger.Warn("a socket on which nobody listens any more was removed", "service", serviceGRPC, "path", path)
		ln, err = new(net.ListenConfig).Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, prefix.Errorf("grpc_listen: %w: %w", stint.Invalid("grpc_listen", s.config.GRPCListen,
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

// withClientName has a handshake ask for a name in the client's certificate, "" for any. The chain
// was verified by the authorities before; the name tells the proxies from others with certificates
// of the same authority.
func withClientName(config *tls.Config, name string) *tls.Config {
	if name == "" {
		return config
	}
	find := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		found, err := find(hello)
		if err != nil {
			return nil, err
		}
		found = found.Clone()
		found.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !hasName(state.PeerCertificates[0], name) {
				return errors.New("the client's certificate does not have the name that grpc_client_name asks for")
			}
			return nil
		}
		return found, nil
	}
	return config
}

// hasName reports whether a certificate is for a host, an address or a URI, which may be a SPIFFE
// ID.
func hasName(certificate *x509.Certificate, name string) bool {
	return certificate.VerifyHostname(name) == nil || slices.Contains(certificate.DNSNames, name) ||
		slices.ContainsFunc(certificate.URIs, func(uri *url.URL) bool { return uri.String() == name })
}

// A rpcHealth is gRPC's health service, which tells whether this one is ready.
type rpcHealth struct {
	*health.Server
	ended   chan struct{} // closed when those who watch it are to leave
	service *service
}

// newHealth makes a health service that knows its first answer.
func (s *service) newHealth() *rpcHealth {
	h := &rpcHealth{Server: health.NewServer(), ended: make(chan struct{}), service: s}
	h.tell(context.Background())
	return h
}

// tell says whether the service is ready. The names are "", the reference service's and the
// service's full name, as health checkers are configured with any of them.
func (h *rpcHealth) tell(ctx context.Context) {
	status := healthpb.HealthCheckResponse_SERVING
	if !h.service.ready(ctx) {
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

// rateLimitEndpoints are those of the rate limit service over HTTP, as the reference service has
// them.
var rateLimitEndpoints = map[string]endpoint{
	"/json":        {[]string{"POST"}, (*service).rateLimitJSON},
	"/healthcheck": {readMethods, (*service).healthcheck},
}

// enteredKey is where a context says that the work of its request has begun.
type enteredKey struct{}

// jsonText is for how many bytes of other text one of a request in JSON counts. A descriptor has 25 or more, and is an
// operation.
const jsonText = 4

// rateLimitJSON is ShouldRateLimit with its messages as JSON.
func (s *service) rateLimitJSON(w http.ResponseWriter, r *http.Request) error {
	if !s.config.OpenJSON {
		if err := s.authority.mayManage(r); err != nil {
			return err
		}
	}
	text, err := s.readTextOf(w, r, min(s.config.HTTP.MaxBodyBytes, grpcMessageBytes))
	if err != nil {
		return err
	}
	defer text.release()
	// What is parsed takes up to 50 times as much memory as its text, so that there is one turn for both, the parsing
	// and the decision.
	work, err := s.admission.enter(r.Context(), costOf(1, jsonText*len(text.text)),
		func() string { return s.clients.Key(r.RemoteAddr, r.Header) })
	switch {
	case err == nil:
	case errors.Is(err, stint.ErrOverloaded):
		return err
	default:
		return problem.ClientGone
	}
	defer work.leave()
	request, err := parseRateLimitRequest([]byte(text.text))
	if err != nil {
		return err
	}
	response, err := s.rateLimit.ShouldRateLimit(context.WithValue(r.Context(), enteredKey{}, true), request)
	if err != nil {
		return problem.New(httpStatus(status.Code(err)), "%s", status.Convert(err).Message())
	}
	body, err := protojson.Marshal(response)
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = jsonType
	if response.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(body) // a client that is gone has no use for the error
	return nil
}

// parseRateLimitRequest reads a request by the rules of protobuf's JSON.
func parseRateLimitRequest(text []byte) (*pb.RateLimitRequest, error) {
	request := &pb.RateLimitRequest{}
	if err := protojson.Unmarshal(text, request); err != nil {
		return nil, problem.New(http.StatusBadRequest, "the body is no RateLimitRequest in JSON: %s",
			problem.Short(err.Error()))
	}
	return request, nil
}

// httpStatus is the status of HTTP for an error of the rate limit service.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Internal:
		return http.StatusInternalServerError
	default:
		return http.StatusServiceUnavailable
	}
}

// healthcheck says OK while the service is ready.
func (s *service) healthcheck(w http.ResponseWriter, r *http.Request) error {
	if !s.ready(r.Context()) {
		return problem.New(http.StatusInternalServerError, "the service is not ready")
	}
	_, _ = w.Write([]byte("OK")) // a client that is gone has no use for the error
	return nil
}

// The paths of the admin API about the rate limit service.
const (
	pathDomains       = "/api/v1/domains"
	pathExplainDomain = "/api/v1/domains/explain"
)

// A DomainList answers for the domains in force.
type DomainList struct {
	Domains []rls.Domain `json:"domains"`
}

// listDomains tells which domains are in force.
func (a *admin) listDomains(w http.ResponseWriter, r *http.Request, _ rulesapi.Caller) error {
	list := DomainList{Domains: []rls.Domain{}}
	if a.rateLimit != nil {
		list.Domains = a.rateLimit.Domains()
	}
	return problem.Answer(w, r, http.StatusOK, list)
}

// explainDomain tells what a request of the rate limit service would be answered, and takes
// nothing.
func (a *admin) explainDomain(w http.ResponseWriter, r *http.Request, _ rulesapi.Caller) error {
	if a.rateLimit == nil {
		return problem.New(http.StatusNotFound, "there are no domains: the service has no grpc_listen")
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, grpcMessageBytes))
	if err != nil {
		return problem.New(http.StatusRequestEntityTooLarge, "the body is too long; allowed: %d bytes", grpcMessageBytes)
	}
	request, err := parseRateLimitRequest(text)
	if err != nil {
		return err
	}
	explained, err := a.rateLimit.Explain(r.Context(), request)
	if err != nil {
		return err
	}
	return problem.Answer(w, r, http.StatusOK, explained)
}
