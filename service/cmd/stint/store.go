package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/config"
)

// A backend is where states live: the memory of this process, or servers. Fields that a process's
// memory does not need are nil.
type backend struct {
	stint.Store
	// close ends the connections; states in memory end with it.
	close func()
	// ping reports whether the server answers.
	ping func(context.Context) error
	// ready waits until the server can decide.
	ready func(context.Context) error
	// advise says what is unwise about the servers' configuration, such as an eviction policy.
	advise func(context.Context) []string
	// servers are the single servers, for the doctor and for figures of each.
	servers func(context.Context) []redisstore.Server
	// primary is the address of the server that sentinels have named; "" without Sentinel. It asks nobody.
	primary func() string
	// instances is how many processes share the store; each counts with its heartbeats.
	instances func() int
	// health is nil too when the server is not asked for its health.
	health *promlimit.RedisCollector
	// figures are what the dashboard shows of the store.
	figures    func() activity.StoreFigures
	collectors []prometheus.Collector
	// tellFull logs what want of memory did, until its context ends. It is nil where servers hold the state.
	tellFull func(ctx context.Context, logger *slog.Logger)
}

// openBackend opens what the configuration names.
//
// A server is not asked for anything yet: connections are made in the background, so that a service
// starts without it. An error is a fault of the configuration.
func openBackend(loaded config.Config) (*backend, error) {
	c := loaded.Store
	if c.Memory() {
		store := memstore.New(memstore.Config{MaxBytes: c.MaxMemory, MaxHolds: c.MaxHolds})
		figures := func() activity.StoreFigures {
			s := store.Stats()
			return activity.StoreFigures{
				Scope:     activity.ScopeProcess,
				UsedBytes: s.Bytes,
				MaxBytes:  s.MaxBytes,
				Evictions: s.Evictions,
			}
		}
		return &backend{
			Store: store, close: func() {}, figures: figures,
			collectors: []prometheus.Collector{promlimit.NewStatsCollector(store.Stats)},
			tellFull:   func(ctx context.Context, logger *slog.Logger) { tellFull(ctx, logger, store.Stats) },
		}, nil
	}
	registry := prometheus.NewRegistry() // collects what the store observes, as one collector of the service's
	calls, err := promlimit.NewCalls(registry)
	if err != nil {
		return nil, err
	}
	conn, err := rueidis.Dial(connection(c))
	if errors.Is(err, stint.ErrInvalid) {
		return nil, misconfigured(err)
	}
	if err != nil {
		return nil, storeFault(c, err)
	}
	store, err := redisstore.New(conn, redisstore.Options{
		KeyPrefix: c.KeyPrefix, LogEncoding: redisstore.LogEncoding(c.LogEncoding),
		Partitions: c.Partitions, DenialCache: cmp.Or(c.DenialCache, -1), MaxHolds: c.MaxHolds,
		CountInstances: loaded.Instances == 0, OnCall: calls.Done,
	})
	if err != nil {
		conn.Close()
		return nil, misconfigured(err)
	}
	opened := &backend{
		Store: store, close: store.Close, ping: store.Ping, ready: store.Ready, advise: store.Advise, servers: store.Servers,
		instances: store.Instances, collectors: []prometheus.Collector{promlimit.NewStatsCollector(store.Stats), registry},
	}
	if named, is := conn.(interface{ Primary() string }); is {
		opened.primary = named.Primary
	}
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
		opened.collectors = append(opened.collectors, opened.health)
	}
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

// openStates opens where states live.
func (s *serving) openStates(context.Context) (end func(), err error) {
	if s.states, err = openBackend(s.config); err != nil {
		return nil, err
	}
	return s.states.close, nil
}

// watchStates asks the servers for their health, and tells of a memory that is full.
func (s *serving) watchStates(ctx context.Context) {
	if s.states.health != nil {
		s.states.health.Run(ctx)
	}
	if s.states.tellFull != nil {
		s.states.tellFull(ctx, s.logger)
	}
}

// openStore opens the store by which requests are decided, with failover, record and spans around the states, and waits
// until it can decide.
func (s *serving) openStore(ctx context.Context) (end func(), err error) {
	s.store, err = openStore(s.config, s.states, storeHooks{
		logger: s.logger, traces: s.traced, changed: s.recent.storeChanged, answered: s.told.log.Degraded,
	})
	if err != nil {
		return nil, err
	}
	s.store.look()
	if err := s.states.await(ctx); err != nil {
		s.store.close()
		return nil, err
	}
	return s.store.close, nil
}

// tellFull logs once a minute that states were dropped, or reserves denied, for want of memory.
func tellFull(ctx context.Context, logger *slog.Logger, read func() memstore.Stats) {
	for last := read(); sleep.For(ctx, time.Minute) == nil; {
		now := read()
		if dropped, denied := now.Evictions-last.Evictions, now.HoldsRefused-last.HoldsRefused; dropped+denied > 0 {
			logger.Warn("the memory for states is full: some are dropped, whose clients start anew, or reserves are denied",
				"dropped", dropped, "reserves_denied", denied, "store.max_memory", now.MaxBytes)
		}
		last = now
	}
}

// startWait is the longest that the service waits for its store before it listens.
const startWait = 3 * time.Second

// await waits until the store is ready for its first decision, or known to be unreachable, which the
// log says then. It fails if the store's options and its servers name different layouts.
func (b *backend) await(ctx context.Context) error {
	if b.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := b.ready(ctx); errors.Is(err, stint.ErrInvalid) {
		return misconfigured(err)
	}
	return nil
}

// storeHooks are what a store tells others. The zero value tells nobody; a logger is needed.
type storeHooks struct {
	// logger must not be nil; traces may be off.
	logger *slog.Logger
	traces *traces
	// changed is called at each change of the store's state, in order.
	changed func(failover.Change)
	// answered is called for each answer that a failure policy gave in the store's place.
	answered func(key string, allowed bool, cause error)
}

// An openedStore is the store by which a process decides: a backend with all that stands before it.
type openedStore struct {
	stint.Store
	close func()
	// health is nil for a store that is always well.
	health func(context.Context) error
	// look asks in the background whether the server is there, and wisely configured.
	look func()
	// details are facts for operators.
	details    func() map[string]any
	collectors []prometheus.Collector
}

// openStore makes the store of a configuration. From the outside in, each layer wraps the next:
//
//	spans of decisions -> record -> failover -> spans of calls -> backend
//
// The record is outside failover so that it has the answers that clients got, degraded ones
// included. Memory has no calls, and is never unreachable, so that it needs failover only to admit
// under overload. What openStore started is closed in reverse order. The caller closes the backend
// after it.
func openStore(c config.Config, b *backend, h storeHooks) (*openedStore, error) {
	o := &openedStore{Store: b.Store, health: b.ping, look: func() {}, collectors: b.collectors}
	var down func() int
	closing := []func(){}
	o.close = func() {
		for i := len(closing); i > 0; i-- {
			closing[i-1]()
		}
	}
	if !c.Store.Memory() {
		o.Store = h.traces.calls(b.Store)
	}
	if !c.Store.Memory() || c.OnOverload != failover.Reject { // the memory is never unreachable
		wakeAdviser := func() {}
		if b.advise != nil {
			var closeAdviser func()
			wakeAdviser, closeAdviser = adviser(b.advise, h.logger)
			closing = append(closing, closeAdviser)
		}
		failing, err := newFailover(c, o.Store, b, h, wakeAdviser)
		if err != nil {
			o.close()
			return nil, err
		}
		closing = append(closing, failing.Close)
		o.Store = failing
		if !c.Store.Memory() {
			o.collectors = append(o.collectors, promlimit.NewStatsCollector(failing.Stats))
			down = func() int { return len(failing.Down()) }
			o.health = healthOf(failing, b.ping, c.Store.Timeout)
			o.look = func() {
				failing.Probe()
				wakeAdviser()
			}
		}
	}
	o.details = func() map[string]any { return detailsOf(c, b, down) }
	recorded, err := startRecord(c, o.Store)
	if err != nil {
		o.close()
		return nil, err
	}
	closing = append(closing, recorded.end)
	o.collectors = append(o.collectors, recorded.collectors...)
	o.Store = h.traces.decisions(recorded.Store)
	return o, nil
}

// healthOf asks a server whether it answers, but not one that is known to be unreachable: that would take until the
// deadline.
func healthOf(
	store *failover.Store, ping func(context.Context) error, timeout time.Duration,
) func(context.Context) error {
	return func(ctx context.Context) error {
		if outages := store.Down(); outages != nil {
			return stint.ErrUnavailable
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return ping(ctx)
	}
}

// detailsOf are facts about a store for operators. down is how many of its parts can't be reached.
func detailsOf(c config.Config, b *backend, down func() int) map[string]any {
	facts := map[string]any{
		"url":              document.RedactURL(c.Store.URL),
		"on_store_failure": c.OnStoreFailure.String(),
		"on_overload":      c.OnOverload.String(),
	}
	if c.Store.Memory() {
		return facts
	}
	mode, _, _ := strings.Cut(c.Store.URL, "://")
	facts["key_prefix"] = c.Store.KeyPrefix
	facts["mode"] = map[string]string{
		"redis": "single", "unix": "single", "redis-sentinel": "sentinel", "redis-cluster": "cluster",
	}[strings.Replace(mode, "rediss", "redis", 1)]
	if c.Instances == 0 {
		facts["instances"] = b.instances()
	}
	facts["unreachable_parts"] = down()
	return facts
}

// connection is how the configured store is reached.
func connection(c config.Store) rueidis.Config {
	return rueidis.Config{
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
