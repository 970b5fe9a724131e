package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/logqueue"
	"github.com/stint-go/stint/service/internal/server"
)

// serve runs the service until ctx is done.
func serve(ctx context.Context, p process, loaded config.Config, demo bool) error {
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end; lines are lost then
	queue := logqueue.New(p.Err, lostLine(loaded.Log))
	defer flush(queue)
	logger := newLogger(queue, loaded.Log)
	defer logHangups(logger)()
	token := ""
	if demo {
		var err error
		if token, err = demonstrable(&loaded); err != nil {
			return err
		}
	}
	store, err := openStore(loaded)
	if err != nil {
		return err
	}
	defer func() { store.Close() }() // which withFailover changes
	if store.activity, err = startActivity(ctx, loaded, store.figures); err != nil {
		return err
	}
	if store.activity != nil {
		defer store.activity.end()
	}
	observer, err := newObserver(loaded, store, logger)
	if err != nil {
		return err
	}
	endObserver := observer.run(ctx)
	defer endObserver()
	store.answered = observer.log.Degraded
	traced, err := startTraces(ctx, p, logger)
	if err != nil {
		return err
	}
	defer traced.close()
	if !loaded.Store.Memory() {
		store.Store = traced.calls(store.Store)
	}
	if err := store.withFailover(loaded, logger); err != nil {
		return err
	}
	endRecord, err := store.record(loaded)
	if err != nil {
		return err
	}
	defer endRecord()
	store.Watch()
	if err := store.await(ctx); err != nil {
		return err
	}
	service := serverConfig(loaded, store)
	service.Logger, service.Observers = logger, observer.observers()
	service.Store, service.Middleware = traced.decisions(service.Store), traced.middleware()
	followed := newRuleFollower(logger, rulesCache(loaded.RulesCache))
	source, err := openRules(loaded, logger)
	if err != nil {
		return err
	}
	defer source.close()
	service.HealthDetails = func() map[string]map[string]any {
		return map[string]map[string]any{"store": store.details(loaded), "rules": followed.details(source.place)}
	}
	service.RulesState, service.Manager, service.RulesFrom = followed.known, source.manager, source.place
	service.Collectors = append(service.Collectors, followed.collectors()...)
	service.Collectors = append(service.Collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rate_limiter_log_lines_lost_total",
		Help: "Lines of the log that could not be written.",
	}, func() float64 { return float64(queue.Lost()) }))
	if !loaded.AdminAsked && inUse(ctx, service.AdminListen) {
		logger.Warn(
			"no admin listener: another program listens on its default address; choose one with --admin-listen",
			"addr", service.AdminListen,
		)
		service.AdminListen = ""
	}
	if store.activity != nil {
		service.Activity = store.activity.Recorder
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
	announceStore(loaded, logger)
	if store.health != nil {
		defer background(ctx, store.health.Run)()
	}
	stop, err := followed.start(ctx, source, s)
	if err != nil {
		return err
	}
	defer stop()
	if demo {
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

// details are facts about the store for operators.
func (o *openedStore) details(c config.Config) map[string]any {
	facts := map[string]any{
		"url":              document.RedactURL(c.Store.URL),
		"on_store_failure": c.OnStoreFailure.String(),
		"on_overload":      c.OnOverload.String(),
	}
	if c.Store.Memory() {
		return facts
	}
	mode, _, _ := strings.Cut(c.Store.URL, "://")
	facts["mode"], facts["key_prefix"] = map[string]string{"redis": "single", "unix": "single", "redis-sentinel": "sentinel", "redis-cluster": "cluster"}[strings.Replace(mode, "rediss", "redis", 1)], c.Store.KeyPrefix
	if c.Instances == 0 {
		facts["instances"] = o.instances()
	}
	if o.unreachable != nil {
		facts["unreachable_parts"] = o.unreachable()
	}
	return facts
}

// logHangups logs that SIGHUP has no effect, until the returned function is called. Many services reload their files
// on SIGHUP, so it must not end this one.
func logHangups(logger *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			logger.Warn("SIGHUP changes nothing: rules, certificates and passwords are reloaded without it; other settings are read at the start only")
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
	}
}

// inUse reports whether somebody listens at the address, such as another stint of
// this machine.
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

// An openedStore is a store with what the service wants to know of it.
type openedStore struct {
	stint.Store
	activity *activityRecorder // nil: traffic is not recorded
	// answered is told of each answer in the store's place; nil: nobody is.
	answered   func(key string, allowed bool, cause error)
	Close      func()
	Health     func(context.Context) error // nil: always well
	ready      func(context.Context) error // nil: always ready
	Collectors []prometheus.Collector
	// Watch finds out, in the background, whether the server is there, and whether its
	// configuration is wise.
	Watch func()

	health    *promlimit.RedisCollector // nil: the server is not asked for its health
	advise    func(context.Context) []string
	instances func() int // how many processes share the store
	figures   func() activity.StoreFigures
	// unreachable is how many of the store's parts can't be reached; nil: they are not watched.
	unreachable func() int
}

// openStore opens the store that the configuration names.
func openStore(loaded config.Config) (*openedStore, error) {
	c := loaded.Store
	if c.Memory() {
		store := memstore.New(memstore.Config{MaxBytes: c.MaxMemory})
		stats := promlimit.NewStatsCollector(func() promlimit.StoreStats {
			s := store.Stats()
			return promlimit.StoreStats{
				States:    s.Clients,
				Bytes:     s.Bytes,
				MaxBytes:  s.MaxBytes,
				Evictions: s.Evictions,
				Reclaimed: s.Reclaimed,
			}
		})
		figures := func() activity.StoreFigures {
			s := store.Stats()
			return activity.StoreFigures{
				Scope:     activity.ScopeProcess,
				UsedBytes: s.Bytes,
				MaxBytes:  s.MaxBytes,
				Evictions: s.Evictions,
			}
		}
		nothing := func() {}
		return &openedStore{
			Store:      store,
			Close:      nothing,
			Watch:      nothing,
			Collectors: []prometheus.Collector{stats},
			figures:    figures,
		}, nil
	}
	registry := prometheus.NewRegistry() // collects what the store observes, as one collector of the service's
	calls, err := promlimit.NewCalls(registry)
	if err != nil {
		return nil, err
	}
	opened := &openedStore{}
	store, err := rueidis.Open(connection(c), redisstore.Options{
		KeyPrefix: c.KeyPrefix, LogEncoding: redisstore.LogEncoding(c.LogEncoding),
		Partitions: c.Partitions, DenialCache: cmp.Or(c.DenialCache, -1),
		CountInstances: loaded.Instances == 0, OnCall: calls.Done,
	})
	if errors.Is(err, stint.ErrInvalid) {
		return nil, misconfigured(err)
	}
	if err != nil {
		return nil, storeFault(c, err)
	}
	stats := promlimit.NewStatsCollector(func() promlimit.SharedStats {
		s := store.Stats()
		return promlimit.SharedStats{
			Calls: s.Batches, Operations: s.Operations, DenialHits: s.DenialHits, DenialsKept: s.DenialsKept,
			Announcing: s.Announcing, Leases: s.Leases, Queued: s.Queued, InFlight: s.InFlight,
			ScriptLoads: s.ScriptLoads,
		}
	})
	opened.Store, opened.Close, opened.Health, opened.ready = store, store.Close, store.Ping, store.Ready
	opened.Collectors = []prometheus.Collector{stats, registry}
	if loaded.Metrics.StoreHealth > 0 {
		opened.health = promlimit.NewRedisCollector(promlimit.RedisConfig{
			Interval: loaded.Metrics.StoreHealth,
			Nodes: func(ctx context.Context) ([]promlimit.RedisNode, error) {
				var nodes []promlimit.RedisNode
				for _, server := range store.Servers(ctx) {
					nodes = append(nodes, promlimit.RedisNode{Name: server.Name, Ask: server.Ask})
				}
				return nodes, nil
			},
		})
		opened.Collectors = append(opened.Collectors, opened.health)
	}
	opened.advise, opened.instances = store.Advise, store.Instances
	opened.figures = func() activity.StoreFigures {
		s := store.Stats()
		f := activity.StoreFigures{
			Scope:      activity.ScopeAll,
			Calls:      s.Batches,
			Operations: s.Operations,
			DenialHits: s.DenialHits,
		}
		if opened.health != nil {
			m := opened.health.Memory()
			f.UsedBytes, f.MaxBytes, f.Evictions = m.Used, m.Max, m.Evicted
		}
		return f
	}
	return opened, nil
}

// startWait is the longest that the service waits for its store before it listens.
const startWait = 3 * time.Second

// await waits until the store is ready for its first decision, or known to be unreachable, which the
// log says then. It fails if the store's options and its servers name different layouts.
func (o *openedStore) await(ctx context.Context) error {
	if o.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := o.ready(ctx); errors.Is(err, stint.ErrInvalid) {
		return misconfigured(err)
	}
	return nil
}

// connection is how the configured store is reached.
func connection(c config.Store) rueidis.Connection {
	return rueidis.Connection{
		URL:                  c.URL,
		Username:             c.Username,
		Password:             c.Password,
		PasswordFile:         c.PasswordFile,
		SentinelUsername:     c.SentinelUsername,
		SentinelPassword:     c.SentinelPassword,
		SentinelPasswordFile: c.SentinelPasswordFile,
		TLS:                  rueidis.TLSFiles(c.TLS),
	}
}

// storeFault is a failure of the configured store, without the secrets of its URL.
func storeFault(c config.Store, err error) error {
	text := strings.ReplaceAll(err.Error(), c.URL, document.RedactURL(c.URL))
	return exit{exitUnreachable, "store " + document.RedactURL(c.URL) + ": " + document.Redact(text)}
}

// serverConfig is the service's part of the configuration.
func serverConfig(c config.Config, store *openedStore) server.Config {
	s := server.DefaultConfig()
	s.Listen, s.AdminListen, s.AdminTokens = c.Listen, c.AdminListen, c.Admin.Tokens
	s.TLS, s.AdminTLS = server.TLS(c.TLS), server.TLS(c.AdminTLS)
	s.Store, s.StoreHealth, s.Collectors = store.Store, store.Health, store.Collectors
	s.StoreRequired, s.RulesRequired = c.OnStoreFailure == failover.Closed, c.OnStoreFailure != failover.Open
	s.Defaults, s.Policies = c.Defaults, c.Policies
	s.ClientIP, s.Headers = clientip.Config(c.ClientIP), c.Headers.Fields()
	s.API = server.API{ExplicitKeys: c.API.ExplicitKeys, Tokens: c.API.Tokens, Open: c.API.Open}
	if c.API.UnknownFallsBack {
		s.API.UnknownAlgorithm = server.FallBackOnUnknown
	}
	s.Identity, s.RejectAmbiguousPaths = server.Identity(c.Identity), c.RejectAmbiguousPaths
	s.DenyByDefault = c.DenyByDefault
	s.ReadHeaderTimeout, s.BodyTimeout, s.WriteTimeout, s.IdleTimeout = c.HTTP.ReadHeaderTimeout, c.HTTP.BodyTimeout, c.HTTP.WriteTimeout, c.HTTP.IdleTimeout
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
