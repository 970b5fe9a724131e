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
//   - package listen has the listeners, and bounds what clients can make the process do
//   - ratelimit.go and resp.go put the packages rls and resp on them
//   - package admin answers on the admin listener, with the packages rulesapi, dashboard and activity
//   - observe.go makes one event of each decision, for everybody who wants to know
//
// A request's way: listener, admission (its turn), reading, authority (may it name a
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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/admin"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/server/resp"
)

// collectorFloor is the heap that the garbage collector reckons with at the least. With less, a
// service that answers much and keeps little collects many times a second.
const collectorFloor = 32 << 20

// A Server is the service as a value: made by [New], run by [Server.Run].
type Server struct {
	config    Config
	service   *service
	listeners *listen.Listeners
	started   atomic.Bool
	listening chan struct{}
	ballast   []byte
	admin     *admin.Handler // nil without a listener
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
	s := &Server{config: config, listening: make(chan struct{})}
	service, err := newService(&s.config)
	if err != nil {
		return nil, err
	}
	s.service = service
	s.listeners, err = listen.New(&s.config.Settings, service.clients, s.config.Logger, service.registerer)
	service.draining = s.listeners.Draining
	return s, err
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
	return errors.Join(s.Wait(ctx), s.Stop(context.WithoutCancel(ctx)))
}

// Start listens and serves. It returns an error when it can't listen, and when the admin listener would be open to
// others or a certificate can't be used (ErrInvalid). The context is for the start alone. It can be called once.
func (s *Server) Start(ctx context.Context) error {
	if s.started.Swap(true) {
		return errors.New("stint: the server was started before")
	}
	if err := s.open(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, s.listeners.Close())
	}
	s.announce()
	close(s.listening)
	// Many short-lived requests over a small heap keep the collector at work; so much memory, which is
	// never touched and so never used, lets it run when there is something to collect.
	s.ballast = make([]byte, collectorFloor)
	s.listeners.Start()
	return nil
}

// open opens the listeners.
func (s *Server) open(ctx context.Context) (err error) {
	if s.addr, err = s.listeners.HTTP(ctx, s.Handler()); err != nil {
		return err
	}
	s.service.authority.loopback.Store(listen.IsLoopback(s.addr))
	if s.config.GRPCListen != "" {
		s.grpcAddr, err = s.listeners.GRPC(ctx, listen.RateLimit{
			Service: s.service.rateLimit, Enter: s.service.enterRPC, Ready: s.service.ready, MaxAge: s.config.GRPCMaxAge,
		})
	}
	if s.config.RESPListen != "" && err == nil {
		s.respAddr, err = s.listeners.RESP(ctx, func(addr net.Addr, state func(net.Conn, http.ConnState)) listen.Server {
			return resp.New(s.service.respConfig(listen.IsLoopback(addr), state))
		})
	}
	if s.config.AdminListen == "" || err != nil {
		return err
	}
	s.adminAddr, err = s.listeners.Admin(ctx, func(addr net.Addr) (_ http.Handler, err error) {
		s.admin, err = admin.New(admin.Config{
			Config: &s.config.Settings, Rules: s.service.administration, InForce: s.service.rules.Set, Store: s.config.Store,
			RateLimit: s.service.rateLimit, Activity: s.config.Activity, Addr: addr, Logger: s.config.Logger,
		})
		return s.admin, err
	})
	return err
}

// Wait returns when ctx is done, or with the error of a listener that failed. A service without one of its listeners
// should be restarted.
func (s *Server) Wait(ctx context.Context) error { return s.listeners.Wait(ctx) }

// Stop ends a server that was started: it reports itself not ready, lets the requests in flight end as
// [listen.Listeners.Stop] says, and sends commits that failed again as long as there is time. It takes the drain's
// delay and timeout at most, and ends with ctx. It returns an error when a listener fails, and when requests had to be
// cut off.
func (s *Server) Stop(ctx context.Context) error {
	if s.admin != nil {
		s.admin.Stop()
	}
	defer runtime.KeepAlive(s.ballast)
	return s.listeners.Stop(ctx, func(ctx context.Context) {
		if rateLimit := s.service.rateLimit; rateLimit != nil {
			if err := rateLimit.Drain(ctx); err != nil {
				s.config.Logger.Warn("the service stops with commits that are not charged", "err", prefix.Trim(err.Error()))
			}
		}
	})
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
		{listen.HTTP, s.addr, s.config.TLS, len(s.config.API.Tokens)},
		{listen.GRPC, s.grpcAddr, s.config.GRPCTLS.TLS, 0},
		{listen.RESP, s.respAddr, s.config.RESPTLS, len(s.config.API.Tokens)},
		{listen.Admin, s.adminAddr, s.config.AdminTLS, len(s.config.Admin.Tokens)},
	} {
		if l.addr == nil {
			continue
		}
		attributes := []any{"service", l.service, "addr", l.addr.String()}
		if l.tls.Enabled() {
			attributes = append(attributes, "tls", true, "client_certificates", l.tls.ClientCAFile != "")
		}
		log.Info("listening", attributes...)
		if l.tokens > 0 && !listen.IsLoopback(l.addr) && !l.tls.Enabled() {
			log.Warn(
				"tokens are sent unencrypted: the listener is not on loopback and has no TLS; set its cert_file",
				"addr", l.addr.String(),
			)
		}
		if l.service == listen.HTTP || l.service == listen.RESP {
			s.warnOfCallers(l.service, l.addr)
		}
		if l.service == listen.Admin && l.tokens == 0 && l.tls.ClientCAFile == "" {
			log.Warn(
				"anyone on this machine may change rules and reset clients, and is shown clients without their names: no admin "+
					"tokens are configured; with admin.tokens_file, who has a token is shown the names",
				"service", l.service, "addr", l.addr.String(),
			)
		}
	}
	if s.grpcAddr != nil && !listen.IsLoopback(s.grpcAddr) && s.config.GRPCTLS.ClientCAFile == "" {
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
	case listen.IsLoopback(addr):
		warning = "anyone on this machine may name keys, reset, settle and evaluate: no tokens are configured"
	}
	s.config.Logger.Warn(warning, "service", service, "addr", addr.String())
}
