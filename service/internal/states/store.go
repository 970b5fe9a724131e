// Package states opens where the states of clients live, as the configuration says: the memory of this process, or
// servers; and puts before it what decides while they are unreachable, and what records decisions.
package states

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
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/redishealth"
)

// A Backend is where states live: the memory of this process, or servers. Fields that a process's
// memory does not need are nil.
type Backend struct {
	stint.Store
	// Close ends the connections; states in memory end with it.
	Close func()
	// Ping reports whether the server answers.
	Ping func(context.Context) error
	// ready waits until the server can decide.
	ready func(context.Context) error
	// advise says what is unwise about the servers' configuration, such as an eviction policy.
	advise func(context.Context) []string
	// Servers are the single servers, for the doctor and for figures of each.
	Servers func(context.Context) []redisconn.Server
	// Sentinels are the name that sentinels know the primary by, and the sentinels themselves; none without Sentinel.
	Sentinels func() (name string, servers []redisconn.Server)
	// primary is the address of the server that sentinels have named; "" without Sentinel. It asks nobody.
	primary func() string
	// instances is how many processes share the store; each counts with its heartbeats.
	instances func() int
	// health is nil too when the server is not asked for its health.
	health *redishealth.Collector
	// Figures are what the dashboard shows of the store.
	Figures    func() activity.StoreFigures
	collectors []prometheus.Collector
	// tellFull logs what want of memory did, until its context ends. It is nil where servers hold the state.
	tellFull func(ctx context.Context, logger *slog.Logger)
}

// Follow asks the servers for their health, and tells of a memory that is full, until ctx is done.
func (b *Backend) Follow(ctx context.Context, logger *slog.Logger) {
	if b.health != nil {
		b.health.Run(ctx)
	}
	if b.tellFull != nil {
		b.tellFull(ctx, logger)
	}
}

// Open opens what the configuration names.
//
// A server is not asked for anything yet: connections are made in the background, so that a service
// starts without it. An error is a fault of the configuration.
func Open(loaded config.Config) (*Backend, error) {
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
		return &Backend{
			Store: store, Close: func() {}, Figures: figures,
			collectors: []prometheus.Collector{promlimit.NewStatsCollector(store.Stats)},
			tellFull:   func(ctx context.Context, logger *slog.Logger) { tellFull(ctx, logger, store.Stats) },
		}, nil
	}
	registry := prometheus.NewRegistry() // collects what the store observes, as one collector of the service's
	calls, err := promlimit.NewCalls(registry)
	if err != nil {
		return nil, err
	}
	conn, err := rueidis.Dial(Connection(c))
	if errors.Is(err, stint.ErrInvalid) {
		return nil, err
	}
	if err != nil {
		return nil, Unreachable(c, err)
	}
	store, err := redisstore.New(conn, redisstore.Options{
		KeyPrefix: c.KeyPrefix, LogEncoding: redisstore.LogEncoding(c.LogEncoding),
		Partitions: c.Partitions, DenialCache: cmp.Or(c.DenialCache, -1), MaxHolds: c.MaxHolds,
		CountInstances: loaded.Instances == 0, OnCall: calls.Done,
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	opened := &Backend{
		Store: store, Close: store.Close, Ping: store.Ping, ready: store.Ready, advise: store.Advise, Servers: store.Servers,
		instances: store.Instances, collectors: []prometheus.Collector{promlimit.NewStatsCollector(store.Stats), registry},
	}
	if named, is := conn.(interface {
		Primary() string
		Sentinels() (string, []redisconn.Server)
	}); is {
		opened.primary, opened.Sentinels = named.Primary, named.Sentinels
	}
	if loaded.Metrics.StoreHealth > 0 {
		opened.health = redishealth.New(redishealth.Config{
			Interval: loaded.Metrics.StoreHealth,
			Nodes: func(ctx context.Context) ([]redishealth.Node, error) {
				var nodes []redishealth.Node
				for _, server := range store.Servers(ctx) {
					nodes = append(nodes, redishealth.Node{Name: server.Name, Ask: server.Ask})
				}
				return nodes, nil
			},
		})
		opened.collectors = append(opened.collectors, opened.health)
	}
	opened.Figures = func() activity.StoreFigures {
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

// Await waits until the store is ready for its first decision, or known to be unreachable, which the
// log says then. It fails if the store's options and its servers name different layouts.
func (b *Backend) Await(ctx context.Context) error {
	if b.ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := b.ready(ctx); errors.Is(err, stint.ErrInvalid) {
		return err
	}
	return nil
}

// Hooks are what a store tells others. Of the zero value nobody is told; a logger is needed.
type Hooks struct {
	// Logger must not be nil.
	Logger *slog.Logger
	// Calls and Decisions wrap a store in spans of its calls, and of what it decides; nil: without spans.
	Calls, Decisions func(stint.Store) stint.Store
	// Changed is called at each change of the store's state, in order.
	Changed func(failover.Change)
	// Answered is called for each answer that a failure policy gave in the store's place.
	Answered func(key string, allowed bool, cause error)
}

// An Store is the store by which a process decides: a backend with all that stands before it.
type Store struct {
	stint.Store
	// Close stops what OpenStore started. The backend is closed after it.
	Close func()
	// Health reports what is wrong; nil for a store that is always well.
	Health func(context.Context) error
	// Look asks in the background whether the server is there, and wisely configured.
	Look func()
	// Details are facts for operators.
	Details func() map[string]any
	// Collectors are the metrics of the store.
	Collectors []prometheus.Collector
}

// OpenStore makes the store of a configuration. From the outside in, each layer wraps the next:
//
//	spans of decisions -> record -> failover -> spans of calls -> backend
//
// The record is outside failover so that it has the answers that clients got, degraded ones
// included. Memory has no calls, and is never unreachable, so that it needs failover only to admit
// under overload. What OpenStore started is closed in reverse order. The caller closes the backend
// after it.
func OpenStore(c config.Config, b *Backend, h Hooks) (*Store, error) {
	o := &Store{Store: b.Store, Health: b.Ping, Look: func() {}, Collectors: b.collectors}
	var down func() int
	closing := []func(){}
	o.Close = func() {
		for i := len(closing); i > 0; i-- {
			closing[i-1]()
		}
	}
	if !c.Store.Memory() {
		o.Store = traced(h.Calls, b.Store)
	}
	if !c.Store.Memory() || c.OverloadAdmits() { // the memory is never unreachable
		wakeAdviser := func() {}
		if b.advise != nil {
			var closeAdviser func()
			wakeAdviser, closeAdviser = adviser(b.advise, h.Logger)
			closing = append(closing, closeAdviser)
		}
		failing, err := newFailover(c, o.Store, b, h, wakeAdviser)
		if err != nil {
			o.Close()
			return nil, err
		}
		closing = append(closing, failing.Close)
		o.Store = failing
		if !c.Store.Memory() {
			o.Collectors = append(o.Collectors, promlimit.NewStatsCollector(failing.Stats))
			down = func() int { return len(failing.Down()) }
			o.Health = healthOf(failing, b.Ping, c.Store.Timeout)
			o.Look = func() {
				failing.Probe()
				wakeAdviser()
			}
		}
	}
	o.Details = func() map[string]any { return detailsOf(c, b, down) }
	recorded, err := startRecord(c, o.Store)
	if err != nil {
		o.Close()
		return nil, err
	}
	closing = append(closing, recorded.end)
	o.Collectors = append(o.Collectors, recorded.collectors...)
	o.Store = traced(h.Decisions, recorded.Store)
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
func detailsOf(c config.Config, b *Backend, down func() int) map[string]any {
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

// Connection is how the configured store is reached.
func Connection(c config.Store) rueidis.Config {
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

// An UnreachableError says that the configured store does not answer, without the secrets of its URL.
type UnreachableError struct{ text string }

// Error implements error.
func (e *UnreachableError) Error() string { return e.text }

// Unreachable is the error of a store that did not answer with err.
func Unreachable(c config.Store, err error) error {
	text := strings.ReplaceAll(err.Error(), c.URL, document.RedactURL(c.URL))
	return &UnreachableError{"store " + document.RedactURL(c.URL) + ": " + document.Redact(text)}
}

// traced is a store with spans, if there are some.
func traced(spans func(stint.Store) stint.Store, store stint.Store) stint.Store {
	if spans == nil {
		return store
	}
	return spans(store)
}
