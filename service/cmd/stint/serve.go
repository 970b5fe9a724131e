package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/logqueue"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// serveOptions are what besides its configuration says how the service runs. The zero value is as
// `stint serve` does.
type serveOptions struct {
	// demo has rules and traffic made up, for a look at the dashboard (demo.go).
	demo bool
	// dropIn is nil unless the service is in the place of Envoy's reference one.
	dropIn *dropIn
}

// followDomains follows the domains of Envoy's rate limit service where they are, until the returned
// function is called.
func (o *serveOptions) followDomains(
	ctx context.Context,
	loaded config.Config,
	follower *domainFollower,
	service *rls.Service,
) (stop func(), err error) {
	if loaded.Envoy.XDS.Server != "" {
		var more xds.Config
		if o.dropIn != nil {
			more = o.dropIn.xds
		}
		return follower.followPlane(ctx, more, service)
	}
	from := file.Texts{Path: loaded.Envoy.Config}
	if o.dropIn != nil {
		from.All, from.Hidden = true, o.dropIn.hidden
	}
	return follower.followFiles(ctx, from, service, o.dropIn == nil)
}

// serve runs the service until ctx is done. It reads the configuration again by reload when its
// file changes.
//
// The order is that of dependencies, and the ends are deferred in reverse: the log first, since
// everything may write to it; states before what observes them; rules and limits before the
// listeners accept, so that no request is decided without them; and the log's rest is written last.
//
// A fault of the configuration that only shows here, such as an address that is taken, has the exit
// code of wrong usage; a store that can't be reached has none, since the service starts without it.
func serve(
	ctx context.Context,
	p process,
	loaded config.Config,
	reload func() (config.Config, error),
	options serveOptions,
) error {
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end; lines are lost then
	queue := logqueue.New(p.Err, lostLine(loaded.Log))
	defer flush(queue)
	logger := newLogger(queue, loaded.Log)
	defer logHangups(logger)()
	// The demonstration needs a token for its own edits, and may change the configuration.
	token := ""
	if options.demo {
		var err error
		if token, err = demonstrable(&loaded); err != nil {
			return err
		}
	}
	// States, and what is told of decisions: activity, alerts, the log, spans.
	states, err := openBackend(loaded)
	if err != nil {
		return err
	}
	defer states.close()
	recent, err := startActivity(ctx, loaded, states.figures)
	if err != nil {
		return err
	}
	defer recent.end()
	observer, err := newObserver(loaded, recent.conn, logger)
	if err != nil {
		return err
	}
	endObserver := observer.run(ctx)
	defer endObserver()
	traced, err := startTraces(ctx, p, logger)
	if err != nil {
		return err
	}
	defer traced.close()
	// The store by which requests are decided, with failover, record and spans around the states.
	store, err := openStore(loaded, states, storeHooks{
		logger: logger, traces: traced, changed: recent.storeChanged, answered: observer.log.Degraded,
	})
	if err != nil {
		return err
	}
	defer store.close()
	store.look()
	if err := states.await(ctx); err != nil {
		return err
	}
	// The service itself, with its observers.
	service := serverConfig(loaded, store)
	service.Logger, service.Observers, service.Activity = logger, observer.observers(), recent.Recorder
	service.Middleware = traced.middleware()
	if loaded.Envoy.XDS.Server != "" {
		service.RateLimitLoads = 1 // a file is read before requests come, a control plane may answer later
	}
	if d := options.dropIn; d != nil {
		service.OpenJSON, service.GRPCMaxAge, service.RateLimitLoads = true, d.maxAge, 1
		service.StoreRequired = service.StoreRequired && !d.healthy
		if d.forced {
			service.RateLimitLoads = 0
		}
	}
	// Rules, policies and defaults are followed; how they are known is part of the health.
	followed := newRuleFollower(logger, rulesCache(loaded.RulesCache))
	source, err := openRules(loaded, reload, logger)
	if err != nil {
		return err
	}
	defer source.close()
	limits := newLimitFollower(loaded, reload, logger)
	service.LimitsRefused = limits.isRefused
	envoy := newDomainFollower(loaded.Envoy, logger)
	service.DomainsRefused = envoy.refused
	service.HealthDetails = func() map[string]map[string]any {
		details := map[string]map[string]any{
			"store": store.details(), "rules": followed.details(source.place), "limits": limits.details(),
		}
		if loaded.GRPCListen != "" {
			details["domains"] = envoy.details()
		}
		return details
	}
	service.RulesState, service.Manager, service.RulesFrom = followed.known, source.manager, source.place
	service.Collectors = slices.Concat(service.Collectors, observer.collectors, followed.collectors(), limits.collectors())
	service.Collectors = append(service.Collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rate_limiter_log_lines_lost_total",
		Help: "Lines of the log that could not be written.",
	}, func() float64 { return float64(queue.Lost()) }))
	// A second service on one machine may do without the admin listener that nobody asked for.
	if !loaded.AdminAsked && inUse(ctx, service.AdminListen) {
		logger.Warn(
			"no admin listener: another program listens on its default address; choose one with --admin-listen",
			"addr", service.AdminListen,
		)
		service.AdminListen = ""
	}
	s, err := server.New(service)
	if err != nil {
		return misconfigured(err)
	}
	endMetrics, err := startMetrics(ctx, p, s.Gatherer(), logger)
	if err != nil {
		return err
	}
	defer endMetrics()
	// From here on things run; listeners accept only in s.Run.
	announceStore(loaded, logger)
	if states.health != nil {
		defer background(ctx, states.health.Run)()
	}
	if states.tellFull != nil {
		defer background(ctx, func(ctx context.Context) { states.tellFull(ctx, logger) })()
	}
	stop, err := followed.start(ctx, source, s)
	if err != nil {
		return err
	}
	defer stop()
	defer background(ctx, func(ctx context.Context) { limits.run(ctx, s) })()
	stopDomains, err := options.followDomains(ctx, loaded, envoy, s.RateLimit())
	if err != nil {
		return err
	}
	defer stopDomains()
	if options.dropIn != nil {
		stop, err := options.dropIn.start(ctx, s, logger)
		if err != nil {
			return err
		}
		defer stop()
	}
	if options.demo {
		if err := startDemo(ctx, loaded, token, source.manager, s, logger); err != nil {
			return err
		}
	}
	err = s.Run(ctx)
	switch {
	case errors.Is(err, stint.ErrInvalid):
		return misconfigured(err)
	case err != nil:
		return failed(err)
	}
	endObserver() // it may log what was lost
	logger.Info("stopped")
	return nil
}

// announceStore logs where state lives and what decides while that can't be reached.
func announceStore(c config.Config, logger *slog.Logger) {
	if c.Store.Memory() {
		logger.Info(
			"store", "url", c.Store.URL, "shared", false,
			"note", "state lives in this process alone and ends with it; --store names a Redis that processes share",
		)
		return
	}
	logger.Info(
		"store", "url", document.RedactURL(c.Store.URL), "shared", true, "key_prefix", c.Store.KeyPrefix,
		"on_store_failure", c.OnStoreFailure.String(),
	)
}

// logHangups logs that SIGHUP has no effect, until the returned function is called. Many services reload their files
// on SIGHUP, so it must not end this one.
func logHangups(logger *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			logger.Warn("SIGHUP changes nothing: rules, policies, defaults, certificates and passwords are reloaded without " +
				"it; other settings are read at the start only")
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
	}
}

// inUse reports whether somebody listens at the address, such as another stint of this machine.
// Another program may take the address between this look and the listener's own; then the start
// fails.
func inUse(ctx context.Context, address string) bool {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	return ln.Close() != nil
}

// flushTimeout bounds the wait for a log that nobody reads.
const flushTimeout = 2 * time.Second

// flush writes what is left of the log.
func flush(queue *logqueue.Queue) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	_ = queue.Close(ctx) // nobody is left to tell
}

// lostLine makes the line that stands for lost ones, in the log's own form.
func lostLine(log config.Log) func(lost int64) []byte {
	log.Level = slog.LevelWarn // it is written whatever the level
	return func(lost int64) []byte {
		var line bytes.Buffer
		newLogger(&line, log).Warn("lines of the log were lost", "lines", lost)
		return line.Bytes()
	}
}

// newLogger makes the log in the configured form. Errors lose their prefix `stint:`, which says
// nothing in this program's own log.
func newLogger(out io.Writer, log config.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: log.Level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "err" || a.Key == "cause" || a.Key == "detail" {
			a.Value = slog.StringValue(prefix.Trim(a.Value.String()))
		}
		return a
	}}
	if log.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// serverConfig is the service's part of the configuration.
//
// Nothing is checked: [server.New] does, and names the parameter by its name in the configuration.
func serverConfig(c config.Config, store *openedStore) server.Config {
	s := server.DefaultConfig()
	s.Listen, s.AdminListen, s.AdminTokens = c.Listen, c.AdminListen, c.Admin.Tokens
	s.TLS, s.AdminTLS = server.TLS(c.TLS), server.TLS(c.AdminTLS)
	s.RESPListen, s.RESPTLS = c.RESPListen, server.TLS(c.RESPTLS)
	s.GRPCListen, s.GRPCTLS, s.GRPCClientName = c.GRPCListen, c.GRPCTLS.TLS(), c.GRPCTLS.ClientName
	s.RateLimit = rateLimitConfig(c.Envoy)
	s.Store, s.StoreHealth, s.Collectors = store, store.health, store.collectors
	s.Clustered = c.Store.Clustered()
	_, s.InProcess = store.Store.(*memstore.Store)
	s.StoreRequired, s.RulesRequired = c.OnStoreFailure == failover.Closed, c.OnStoreFailure != failover.Open
	s.Defaults, s.Policies = c.Defaults, c.Policies
	s.ClientIP, s.Headers = clientip.Config(c.ClientIP), c.Headers.Fields()
	s.API = server.API{ExplicitKeys: c.API.ExplicitKeys, Tokens: c.API.Tokens, Open: c.API.Open}
	if c.API.UnknownFallsBack {
		s.API.UnknownAlgorithm = server.FallBackOnUnknown
	}
	s.Identity, s.RejectAmbiguousPaths = server.Identity(c.Identity), c.RejectAmbiguousPaths
	s.DenyByDefault = c.DenyByDefault
	s.ReadHeaderTimeout, s.BodyTimeout, s.WriteTimeout, s.IdleTimeout = c.HTTP.ReadHeaderTimeout, c.HTTP.BodyTimeout,
		c.HTTP.WriteTimeout, c.HTTP.IdleTimeout
	s.MaxHeaderBytes, s.MaxBodyBytes = int(c.HTTP.MaxHeaderBytes), c.HTTP.MaxBodyBytes
	s.MaxBodyMemory, s.MaxStreams = c.HTTP.MaxBodyMemory, c.HTTP.MaxStreams
	s.MaxConnections, s.MaxConnectionsPerPeer = c.HTTP.MaxConnections, c.HTTP.MaxConnectionsPerPeer
	s.MaxOperations, s.OverloadAdmits = c.HTTP.MaxOperations, c.OnOverload == failover.Admit
	s.DrainDelay, s.DrainKeepAlive, s.DrainTimeout = c.Drain.Delay, c.Drain.KeepAlive, c.Drain.Timeout
	s.Build, s.MetricLabels = build(), c.Metrics.Labels
	return s
}

// misconfigured is a fault that only what is configured could tell.
func misconfigured(err error) error {
	return exit{exitUsage, document.Redact(err.Error())}
}
