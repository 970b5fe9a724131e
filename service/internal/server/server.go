// Package server is the rate limiter as a service: the REST API, Envoy's rate limit service over
// gRPC, the Redis protocol, metrics and health, and the admin listener.
//
//	config := server.DefaultConfig()
//	config.Store = memstore.New(memstore.Config{})
//	s, err := server.New(config)
//	...
//	err = s.Run(ctx) // until ctx is done and the requests in flight have ended
//
// A [Server] is made of a [Config], which has the store and everything else that decides. The package only puts
// together: package listen has the listeners, package rest answers on them, package admin on the admin listener, and
// rls and resp speak the other protocols.
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
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/admin"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/rest"
	"github.com/stint-go/stint/service/internal/server/resp"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

// collectorFloor is the heap that the garbage collector reckons with at the least. With less, a
// service that answers much and keeps little collects many times a second.
const collectorFloor = 32 << 20

// A Server is the service as a value: made by [New], run by [Server.Run].
type Server struct {
	config         Config
	registry       *prometheus.Registry
	rest           *rest.Service
	administration *rulesapi.API
	adminBodies    *capacity.Bodies
	listeners      *listen.Listeners
	started        atomic.Bool
	listening      chan struct{}
	ballast        []byte
	admin          *admin.Handler // nil without a listener
	// The addresses are set before listening is closed, and not changed afterwards.
	addr      net.Addr
	grpcAddr  net.Addr
	respAddr  net.Addr
	adminAddr net.Addr
}

// New makes a server, or reports everything that is wrong with the configuration. It opens nothing.
func New(config Config) (*Server, error) {
	config.Config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Logger = clipLog(config.Logger)
	s := &Server{config: config, listening: make(chan struct{}), registry: prometheus.NewRegistry()}
	c := &s.config
	registerer, err := promlimit.WithLabels(s.registry, c.Metrics.Labels)
	if err != nil {
		return nil, err
	}
	for _, collector := range append([]prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, c.Collectors...) {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	clients, err := clientip.New(clientip.Config(c.ClientIP))
	if err != nil {
		return nil, err
	}
	if s.listeners, err = listen.New(&c.Settings, clients, c.Logger, registerer); err != nil {
		return nil, err
	}
	bodies, adminBodies, err := capacity.NewBodies(c.HTTP.MaxBodyMemory, c.Logger, registerer)
	if err != nil {
		return nil, err
	}
	s.adminBodies = adminBodies
	if s.rest, err = rest.New(&c.Config, rest.Parts{
		Clients: clients, Bodies: bodies, Draining: s.listeners.Draining, Trace: c.Trace,
		Certificates: s.listeners.Certificates, Gatherer: s.registry, Registerer: registerer,
	}); err != nil {
		return nil, err
	}
	s.administration, err = rulesapi.New(rulesapi.Config{
		Manager: c.Manager, RulesFrom: c.RulesPlace, Forgotten: c.RulesForgotten,
		Limiter: s.rest.Limiter(), Loaded: s.rest.RulesLoaded, Store: c.Store, Policies: s.rest.Policies,
		ReadRequest: s.rest.ReadRequest, IPv6Prefix: c.ClientIP.IPv6Prefix, Clustered: c.Settings.Store.Clustered(),
		MaxBodyBytes: c.HTTP.MaxBodyBytes, ReadBody: adminBodies.Text, Logger: c.Logger, Registerer: registerer,
	})
	return s, err
}

// Handler is the service without a listener, for embedding it in another server.
// Such a listener does not count as loopback.
func (s *Server) Handler() http.Handler {
	if s.config.Middleware != nil {
		return s.config.Middleware(s.rest)
	}
	return s.rest
}

// SwapRules puts rules in the place of those in force, and tells in which they differ; nil is
// none. Requests that have begun are decided by the rules that they began with. It is safe for
// concurrent use.
func (s *Server) SwapRules(set *rules.Set) rulediff.Changes { return s.rest.SwapRules(set) }

// SwapLimits is [rest.Service.SwapLimits].
func (s *Server) SwapLimits(limits rest.Limits) error { return s.rest.SwapLimits(limits) }

// RateLimit is Envoy's rate limit service, which is given its domains; nil without a gRPC listener.
func (s *Server) RateLimit() *rls.Service { return s.rest.RateLimit() }

// Gatherer gathers the metrics that the server serves, for a program that sends them elsewhere too.
func (s *Server) Gatherer() prometheus.Gatherer { return s.registry }

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
	s.rest.ListensAt(s.addr)
	if s.config.GRPCListen != "" {
		s.grpcAddr, err = s.listeners.GRPC(ctx, listen.RateLimit{
			Service: s.rest.RateLimit(), Enter: s.rest.EnterRPC, Ready: s.rest.Ready, MaxAge: s.config.GRPCMaxAge,
			Answers: s.rest.Answers(),
		})
	}
	if s.config.RESPListen != "" && err == nil {
		s.respAddr, err = s.listeners.RESP(ctx, func(addr net.Addr, state func(net.Conn, http.ConnState)) listen.Server {
			return resp.New(s.rest.RESP(listen.IsLoopback(addr), state))
		})
	}
	if s.config.AdminListen == "" || err != nil {
		return err
	}
	s.adminAddr, err = s.listeners.Admin(ctx, func(addr net.Addr) (_ http.Handler, err error) {
		s.admin, err = admin.New(admin.Config{
			Config: &s.config.Settings, Rules: s.administration, ReadBody: s.adminBodies.Text,
			InForce: s.rest.Limiter().Set, Store: s.config.Store, RateLimit: s.rest.RateLimit(),
			Activity: s.config.Activity, Addr: addr, Logger: s.config.Logger, Answers: s.rest.Answers(),
			Draining: s.listeners.Draining,
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
		if rateLimit := s.rest.RateLimit(); rateLimit != nil {
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
