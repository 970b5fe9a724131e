// Package server is the rate limiter as a service: the REST API, Envoy's rate limit service over
// gRPC, the Redis protocol, metrics and health, and the admin listener.
//
//	config := server.DefaultConfig()
//	config.Store = memstore.New(memstore.Config{})
//	s, err := server.New(config)
//	...
//	err = s.Run(ctx) // until ctx is done and the requests in flight have ended
//
// A [Server] is made of a [Config], which has the store and everything else that decides: the
// package opens no store and reads no file but certificates. Its parts:
//
//   - service.go routes requests of the REST API to endpoints: check.go and hold.go (a key and a
//     limit), evaluate.go and forward.go (rules), state.go (reset, settle, remaining), health.go,
//     scrapes.go
//   - request.go reads queries and bodies; package api has what is answered, package problem the
//     errors
//   - admission.go, bodies.go and the connection limiter bound what clients can make the process do
//   - grpc.go and resp.go put the listeners of other protocols around the packages rls and resp
//   - admin.go is the admin listener; the packages rulesapi, dashboard and activity answer for it
//   - observe.go makes one event of each decision, for everybody who wants to know
//
// A request's way: connection limiter, admission (its turn), reading, authority (may it name a
// key), the store or the rules, observers, answer. The work under way ends before the answer is
// written, since a client may read it slowly.
//
// Everything exported is safe for concurrent use. Rules and limits are swapped whole: a request is
// decided by those that it began with.
package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/component"
)

// collectorFloor is the heap that the garbage collector reckons with at the least. With less, a
// service that answers much and keeps little collects many times a second.
const collectorFloor = 32 << 20

// A Server is the service as a value: made by [New], run by [Server.Run].
type Server struct {
	config  Config
	service *service
	// listen and dropNew are replaced by tests.
	listen    func(ctx context.Context, param, address string) (net.Listener, error)
	dropNew   func(socket syscall.Conn) error
	started   atomic.Bool
	listening chan struct{}

	// Of the listeners while they serve; ended has what each ended with, and failed says that one did before Stop.
	listeners    []*openListener
	ended        chan error
	failed       bool
	ballast      []byte
	stopWatching func()
	// stopping ends with Stop's beginning; simulations end with it.
	stopping        context.Context
	stopSimulations context.CancelFunc
	// The addresses are set before listening is closed, and not changed afterwards.
	addr      net.Addr
	grpcAddr  net.Addr
	respAddr  net.Addr
	adminAddr net.Addr
}

// New makes a server, or reports everything that is wrong with the configuration. It opens nothing.
func New(config Config) (*Server, error) {
	config = config.withDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Logger = clipLog(config.Logger)
	s := &Server{config: config, listen: listen, dropNew: dropNew, listening: make(chan struct{})}
	s.stopping, s.stopSimulations = context.WithCancel(context.Background())
	service, err := newService(&s.config)
	if err != nil {
		return nil, err
	}
	s.service = service
	return s, nil
}

// Handler is the service without a listener, for embedding it in another server.
// Such a listener does not count as loopback.
func (s *Server) Handler() http.Handler {
	if middleware := s.service.config.Middleware; middleware != nil {
		return middleware(s.service)
	}
	return s.service
}

// SwapRules puts rules in the place of those in force, and tells in which they differ; nil is
// none. Requests that have begun are decided by the rules that they began with. It is safe for
// concurrent use.
func (s *Server) SwapRules(set *rules.Set) rules.Changes { return s.service.swapRules(set) }

// SwapLimits puts limits in the place of those by which checks are decided, or reports everything that
// is wrong with them and changes nothing. What clients have used counts on under a limit of the same
// name and algorithm. Requests that have begun are decided by the limits that they began with. It is
// safe for concurrent use.
func (s *Server) SwapLimits(limits Limits) error {
	limits = limits.withDefaults()
	if err := prefix.Join(limits.validate()...); err != nil {
		return err
	}
	ts, err := newTargets(s.service.config, limits)
	if err == nil {
		s.service.targets.Store(ts)
	}
	return err
}

// Gatherer gathers the metrics that the server serves, for a program that sends them elsewhere too.
func (s *Server) Gatherer() prometheus.Gatherer { return s.service.registry }

// Listening is closed once Run listens; from then on the addresses are known. When
// Run fails to listen it stays open.
func (s *Server) Listening() <-chan struct{} { return s.listening }

// Addr is the service's real address, nil before Listening is closed.
func (s *Server) Addr() net.Addr { return s.known(&s.addr) }

// GRPCAddr is the gRPC listener's real address, nil before Listening is closed and when there is
// none.
func (s *Server) GRPCAddr() net.Addr { return s.known(&s.grpcAddr) }

// RESPAddr is the Redis protocol's real address, nil before Listening is closed and when there is
// none.
func (s *Server) RESPAddr() net.Addr { return s.known(&s.respAddr) }

// AdminAddr is the admin listener's real address, nil before Listening is closed
// and when there is none.
func (s *Server) AdminAddr() net.Addr { return s.known(&s.adminAddr) }

// known is an address once there is one. The closing of listening orders the write of it before the
// read.
func (s *Server) known(addr *net.Addr) net.Addr {
	select {
	case <-s.listening:
		return *addr
	default:
		return nil
	}
}

// Run is Start, then Stop once ctx is done or a listener fails. It can be called once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	return s.serve(ctx)
}

// serve serves until ctx is done or a listener fails, and stops.
func (s *Server) serve(ctx context.Context) error {
	return errors.Join(s.Wait(ctx), s.Stop(context.WithoutCancel(ctx)))
}

// Start listens and serves. It returns an error when it can't listen, and when the admin listener would be open to
// others or a certificate can't be used (ErrInvalid). The context is for the start alone. It can be called once.
func (s *Server) Start(ctx context.Context) error {
	if s.started.Swap(true) {
		return errors.New("stint: the server was started before")
	}
	listeners, err := s.open(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	s.announce()
	close(s.listening)
	s.begin(listeners)
	return nil
}

// begin has the listeners accept.
func (s *Server) begin(listeners []*openListener) {
	// Many short-lived requests over a small heap keep the collector at work; so much memory, which is
	// never touched and so never used, lets it run when there is something to collect.
	s.ballast = make([]byte, collectorFloor)
	s.listeners, s.ended = listeners, make(chan error, len(listeners))
	var runs []func(context.Context)
	for _, f := range listeners {
		go func() { s.ended <- f.server.Serve(f.listener) }()
		if runs = append(runs, f.tracker.run); f.health != nil {
			runs = append(runs, f.health.run)
		}
	}
	s.stopWatching = component.Run(context.Background(), runs...) // while the server drains, too
}

// Wait returns when ctx is done, or with the error of a listener that failed. A service without one of its listeners
// should be restarted.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.ended:
		s.failed = true
		return err
	}
}

// Stop ends a server that was started: it reports itself not ready, ends each connection with its next answer (by
// Connection: close, with HTTP/2 by GOAWAY), lets the requests in flight end and returns nil. After the drain's delay
// no connections are made, and the listeners are closed when those that were are accepted. Connections that no request
// comes on are closed after its keep-alive. All this takes its delay and timeout at most, and ends with ctx. It returns
// an error when a listener fails, and when requests had to be cut off.
func (s *Server) Stop(ctx context.Context) error {
	s.stopSimulations()
	defer runtime.KeepAlive(s.ballast)
	defer s.stopWatching()
	failed, serving := s.drain(ctx, s.listeners, !s.failed), len(s.listeners)
	if s.failed {
		serving--
	}
	for range serving {
		if err := <-s.ended; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// announce logs the real addresses and what they imply.
func (s *Server) announce() {
	log := s.config.Logger
	for _, l := range []struct {
		service string
		addr    net.Addr
		tls     TLS
		tokens  int
	}{
		{serviceHTTP, s.addr, s.config.TLS, len(s.config.API.Tokens)},
		{serviceGRPC, s.grpcAddr, s.config.GRPCTLS.TLS, 0},
		{serviceRESP, s.respAddr, s.config.RESPTLS, len(s.config.API.Tokens)},
		{serviceAdmin, s.adminAddr, s.config.AdminTLS, len(s.config.Admin.Tokens)},
	} {
		if l.addr == nil {
			continue
		}
		attributes := []any{"service", l.service, "addr", l.addr.String()}
		if l.tls.Enabled() {
			attributes = append(attributes, "tls", true, "client_certificates", l.tls.ClientCAFile != "")
		}
		log.Info("listening", attributes...)
		if l.tokens > 0 && !isLoopback(l.addr) && !l.tls.Enabled() {
			log.Warn(
				"tokens are sent unencrypted: the listener is not on loopback and has no TLS; set its cert_file",
				"addr", l.addr.String(),
			)
		}
		if l.service == serviceHTTP || l.service == serviceRESP {
			s.warnOfCallers(l.service, l.addr)
		}
		if l.service == serviceAdmin && l.tokens == 0 && l.tls.ClientCAFile == "" {
			log.Warn(
				"anyone on this machine may change rules and reset clients, and is shown clients without their names: no admin "+
					"tokens are configured; with admin.tokens_file, who has a token is shown the names",
				"service", l.service, "addr", l.addr.String(),
			)
		}
	}
	if s.grpcAddr != nil && !isLoopback(s.grpcAddr) && s.config.GRPCTLS.ClientCAFile == "" {
		log.Warn("whoever reaches the gRPC listener may ask the rate limit service; "+
			"let it ask for clients' certificates with grpc_tls.client_ca_file, or keep others away from it",
			"addr", s.grpcAddr.String())
	}
}

// warnOfCallers says who may manage by a listener that goes by api.tokens_file.
func (s *Server) warnOfCallers(service string, addr net.Addr) {
	warning := "explicit keys, reset, settle and evaluate are refused: no tokens are configured and the listener is not " +
		"on loopback"
	switch {
	case len(s.config.API.Tokens) > 0:
		return
	case s.config.API.Open:
		warning = "anyone who can reach the service may name keys, reset, settle and evaluate: " +
			"api.open is set and no tokens are configured"
	case isLoopback(addr):
		warning = "anyone on this machine may name keys, reset, settle and evaluate: no tokens are configured"
	}
	s.config.Logger.Warn(warning, "service", service, "addr", addr.String())
}

// drain stops the servers. It waits for load balancers, and for the next requests of connections
// that are kept alive, only when the servers are still fine. In order:
//
//  1. answers end their connections, and the health says not ready, for DrainDelay;
//  2. the listeners are closed, once what the kernel has accepted for them is accepted;
//  3. idle connections are kept for one more request, for DrainKeepAlive;
//  4. what is left is shut down, and cut off when DrainTimeout is over;
//  5. commits that failed are sent again until then.
func (s *Server) drain(ctx context.Context, listeners []*openListener, wait bool) error {
	s.service.draining.Store(true) // from now on answers end their connections
	if wait && s.config.Drain.Delay > 0 {
		_ = sleep.For(ctx, s.config.Drain.Delay) // or until there is no more time
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Drain.Timeout)
	defer cancel()
	var failed error
	if wait {
		failed = s.stopAccepting(ctx, listeners)
		s.awaitKept(ctx, listeners)
	}
	stopped := make(chan error, len(listeners))
	for _, f := range listeners {
		go func() {
			err := f.server.Shutdown(ctx)
			if err != nil {
				err = prefix.Errorf("requests were cut off after %s: %w", s.config.Drain.Timeout, err)
			}
			stopped <- err
		}()
	}
	for range listeners {
		failed = errors.Join(failed, <-stopped)
	}
	if rateLimit := s.service.rateLimit; rateLimit != nil {
		if err := rateLimit.Drain(ctx); err != nil {
			s.config.Logger.Warn("the service stops with commits that are not charged", "err", prefix.Trim(err.Error()))
		}
	}
	return failed
}

// handshake is the time that a connection has to come about after the service stopped to accept new
// ones.
const handshake = 200 * time.Millisecond

// mostLooks bounds how often a backlog is looked at where the system goes on making connections: for 5 seconds.
const mostLooks = 500

// stopAccepting closes each listener when every connection that the kernel has made for it is accepted: it resets
// those that it finds in the backlog of a socket that is closed. Where a system can't be kept from making more of
// them, a backlog that is found empty may have one again when the socket is closed. Systems other than Linux do not say
// what is in the backlog, so there the listeners are closed at once.
func (s *Server) stopAccepting(ctx context.Context, listeners []*openListener) (failed error) {
	dropped := false
	for _, f := range listeners {
		f.tracker.stopping.Store(true)
		if f.socket != nil && s.dropNew(f.socket) == nil {
			dropped = true
		}
	}
	if dropped {
		_ = sleep.For(ctx, handshake) // then, or when time is over, the listeners are closed
	}
	for _, f := range listeners {
		if f.socket != nil {
			awaitBacklog(ctx, f.socket)
		}
		failed = errors.Join(failed, f.listener.Close())
	}
	return failed
}

// awaitBacklog waits until a listening socket has no connection that was not accepted, for mostLooks at most.
func awaitBacklog(ctx context.Context, socket syscall.Conn) {
	for range mostLooks {
		if n, err := backlog(socket); n == 0 || err != nil || sleep.For(ctx, drainGap) != nil {
			return
		}
	}
}

// awaitKept waits until the connections are gone, as each is after its next answer, for DrainKeepAlive at most.
// http.Server.Shutdown would close those that are idle at once, with what their clients are about to send.
func (s *Server) awaitKept(ctx context.Context, listeners []*openListener) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Drain.KeepAlive)
	defer cancel()
	for open := 1; open > 0 && sleep.For(ctx, drainGap) == nil; {
		open = 0
		for _, f := range listeners {
			open += f.tracker.open()
		}
	}
}

// drainGap is the time between two counts of the connections that are left.
const drainGap = 10 * time.Millisecond

// isLoopback reports whether the address is reached from this machine only. A socket of the file
// system is not: who may use it is a matter of permissions, and gRPC's alone.
func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
