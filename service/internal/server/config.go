package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server/rls"
)

// An API says which callers may name keys, reset, settle and evaluate.
//
// The zero value lets nobody name a key. [DefaultConfig] has ExplicitKeys, which the tokens narrow.
type API struct {
	// ExplicitKeys lets requests name a key. When it is false, any key is refused
	// with 403 and every request is its client's own.
	ExplicitKeys bool
	// Tokens are bearer tokens, one of which is needed to name a key, to reset, to
	// settle and to evaluate. Default: none, which allows it on a loopback listener only.
	Tokens []string
	// Open allows it without tokens on any listener. Default: false.
	Open bool
	// UnknownAlgorithm says how a request is answered that names an algorithm that does not exist. Default:
	// RejectUnknown.
	UnknownAlgorithm UnknownAlgorithm
}

// An UnknownAlgorithm says how a request is answered that names an algorithm that does not exist.
// The zero value is RejectUnknown. FallBackOnUnknown is for clients of a service that did so; a
// name that is only mistyped is then decided by a limit that nobody meant.
type UnknownAlgorithm uint8

// The ways to treat the name of an algorithm that does not exist.
const (
	RejectUnknown     UnknownAlgorithm = iota // it is answered 400
	FallBackOnUnknown                         // TOKEN_BUCKET decides, and the log says so once a minute at most
)

// A Build says what is running. The zero value is a build of unknown origin.
type Build struct {
	Version string // such as v1.2.3; default: "unknown"
	Commit  string // the revision it was built from; default: "unknown"
}

// A Config says what a [Server] is made of. [DefaultConfig] returns one with every
// default filled in; only Store has none.
//
// The fields stand in groups: listeners, what decides, who asks, who is told, and bounds. Durations
// of 0 and sizes of 0 stand for the defaults that each field names; below 0 is a fault. A Config is
// copied by [New] and not changed afterwards; what may change while a server runs is put in by
// SwapRules and SwapLimits.
type Config struct {
	// Listen is the address of the REST API, metrics and health, as host:port; port
	// 0 picks a free one. Default: "", which is 127.0.0.1:8080.
	Listen string
	// GRPCListen is the address of Envoy's rate limit service over gRPC, in the same form, or unix: and the path of a
	// socket; one that a killed process has left is removed. Default: "", which is none.
	GRPCListen string
	// GRPCTLS is what GRPCListen speaks TLS with. Default: none.
	GRPCTLS TLS
	// GRPCClientName is a name of which each client's certificate must have one, of a host, an address or a URI.
	// Default: "", any name. Only with GRPCTLS.ClientCAFile.
	GRPCClientName string
	// GRPCMaxAge is how long a connection of GRPCListen is kept before its client is asked to make
	// another one. Default: 0, as long as the client likes. Its calls may take an hour to end. A limit
	// spreads clients of a load balancer again that has got more servers.
	GRPCMaxAge time.Duration
	// RateLimit says how that service decides. Its Store, Observe, Enter and Logger are the server's. It has no
	// configuration of domains until [Server.RateLimit] is given one.
	RateLimit rls.Config
	// RateLimitLoads is how many configurations there have to have been for the server to be ready: 0
	// or 1. With 0 Envoy gets answers of a service that does not know its domains yet, which limit
	// nothing.
	RateLimitLoads int
	// DomainsRefused says what of the newest domains is not in force; "" is nothing. Default: nil, nothing ever is.
	DomainsRefused func() string
	// OpenJSON lets anybody ask the rate limit service over HTTP, as over gRPC. Default: false, it needs what it
	// needs to name a key.
	OpenJSON bool
	// RESPListen is the address of the Redis protocol, in the same form. Default: "", which is none.
	RESPListen string
	// RESPTLS is what RESPListen speaks TLS with. Default: none.
	RESPTLS TLS
	// InProcess says that Store decides in this process, and keeps no keys: the Redis protocol takes of it one by one.
	// Default: false, it asks for several at once.
	InProcess bool
	// AdminListen is the address of the administration of rules and of the profiler, in the same
	// form. Default: "", which is none.
	AdminListen string
	// AdminTokens are bearer tokens, one of which every request to the admin listener
	// needs. Default: none, which Run takes for a loopback address only.
	AdminTokens []AdminToken

	// TLS is what Listen speaks TLS with. Default: none, plain HTTP.
	TLS TLS
	// AdminTLS is the same for AdminListen, and taken from nowhere else. Default: none.
	AdminTLS TLS

	// Store decides. It must not be nil. What it fails to decide is answered 503, so a store that may
	// be unreachable belongs into one of package failover, which bounds each call in time and admits,
	// or decides by itself, what is to be. The caller closes it after Run returns. It is called by
	// many goroutines at once.
	Store stint.Store
	// StoreHealth reports whether the store can be reached; it is asked by the health
	// endpoints, with a deadline of a second. Default: nil, the store is always there.
	StoreHealth func(context.Context) error
	// HealthDetails are facts for operators about the store and the rules, by component and name, such as {"store":
	// {"on_store_failure": "open"}}. The health endpoints show them to callers with the right to name keys that ask for
	// them by ?details=true. Default: nil, none.
	HealthDetails func() map[string]map[string]any
	// Clustered says that the store has several partitions, which no operation on shared limits can span. The log then
	// names rules that need one. Default: false.
	Clustered bool
	// StoreRequired makes the server not ready while the store can't be reached, as checks are not
	// answered then. Default: false, health tells of the store, and the server stays ready. True suits
	// a store whose failures deny everything: another process may do better.
	StoreRequired bool

	// Limits are what checks decide by; [Server.SwapLimits] puts others in their place.
	Limits
	// LimitsRefused reports whether newer limits than those in force were refused. Default: nil, they
	// never are.
	LimitsRefused func() bool

	// Rules are what evaluate and forward-auth decide by; [Server.SwapRules] puts others in their
	// place. A rule holds no request for longer than WriteTimeout leaves after BodyTimeout, or
	// half of it if that is more. Default: nil, none.
	Rules *rules.Set
	// RejectAmbiguousPaths answers 400 to evaluate and forward-auth when programs take the request's
	// path apart in different ways, as enforce.Config has it. Default: false, the rules of all its
	// variants hold.
	RejectAmbiguousPaths bool
	// DenyByDefault denies evaluations and forward-auth of requests for which no rule holds, as
	// enforce.Config has it. Default: false. True finds the paths that no rule was made for.
	DenyByDefault bool
	// Manager edits rules for the admin listener. The server does not follow it: the program that runs it
	// has Manager.Follow hand each set to [Server.SwapRules]. Default: nil, rules are read-only.
	Manager *rulestore.Manager
	// RulesFrom says where rules come from that can't be edited here, for the error of an edit, such as "the
	// file /etc/stint/rules.yaml". Default: "", which is "the configuration".
	RulesFrom string

	// RulesState says how the rules in force are known, which may be kept in a server that is
	// unreachable. The server is not ready while they are RulesUnknown. Default: nil, they are
	// RulesCurrent.
	RulesState func() RulesState
	// RulesRequired answers 503 to evaluate and forward-auth while the rules are RulesUnknown.
	// Default: false, they are admitted and marked as degraded. True suits services that would rather
	// fail than let a request by that a rule might have banned.
	RulesRequired bool

	// Identity says where forward-auth finds the user, the API key and attributes. Default: nowhere.
	Identity Identity

	// ClientIP says how a client's address is found. Its IPv6Prefix is that of Rules' and Manager's
	// options. Default: the peer's address.
	ClientIP clientip.Config
	// Headers are the rate limit header fields of a check's response. Default: 0,
	// none; DefaultConfig has all of them.
	Headers httplimit.Fields
	// API says which callers may name keys, reset, settle and evaluate.
	API API

	// Activity is told of every decision, and shown on the admin listener. The program that runs the server runs it.
	// Default: nil, none.
	Activity *activity.Recorder
	// Observers are told of every check and evaluation that was decided, before it is answered, and
	// then of what each rule in shadow would have decided. Metrics and Activity are told anyway.
	// Default: none. They are called by the goroutine that answers, so they must be quick and safe for
	// concurrent use.
	Observers []stint.Observer
	// Collectors are further metrics to serve, such as the store's. Default: none.
	Collectors []prometheus.Collector
	// Middleware stands before the handler of Listen, such as one that traces requests. Default: nil,
	// none.
	Middleware func(http.Handler) http.Handler
	// MetricLabels are labels that every metric has, such as application. Default: none.
	MetricLabels map[string]string
	// Logger receives a line per listener and per recovered panic. Default: nil, slog.Default.
	Logger *slog.Logger
	// Build is what /actuator/info tells.
	Build Build

	// ReadHeaderTimeout bounds the time until a connection's first request has its head; a later
	// request's counts as idle time. Default: 0, which is 5 seconds. It bounds how long a client that
	// sends nothing may keep a connection from others.
	ReadHeaderTimeout time.Duration
	// BodyTimeout bounds the reading of a request's body. Default: 0, which is 10 seconds. It is a
	// bound on all of the body, not on each read, so that a client can't prolong it by a byte now and
	// then.
	BodyTimeout time.Duration
	// WriteTimeout bounds a request from its head to the end of the response. Default: 0, which is 30
	// seconds. Profiles of the admin listener have none. What rules let requests wait has to fit into
	// it; see Rules.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection is kept between requests. Default: 0, which is 2 minutes.
	// It should be longer than that of a proxy in front, which may otherwise send a request on a
	// connection that is being closed.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds a request's head; one that is longer is answered 431.
	// Default: 0, which is 64 KiB.
	MaxHeaderBytes int
	// MaxBodyBytes bounds a request's body; one that is longer is answered 413.
	// Default: 0, which is 1 MiB.
	MaxBodyBytes int64
	// MaxBodyMemory bounds the memory of all bodies that are read, or whose requests are under way, in
	// bytes. Of it one client may use as much as is left: one alone half. Further requests with a body
	// are answered 503 with Retry-After. With HTTP/2, a request's head counts with its body. Default:
	// 0, which is 64 MiB, or the least that may be set if that is more: 4 times MaxBodyBytes, 16 times
	// MaxHeaderBytes and 32 KiB together. Bodies on the admin listener, of callers who were
	// authorised, may use 32 MiB besides.
	MaxBodyMemory int64
	// MaxStreams bounds the requests under way on one connection of HTTP/2. Default: 0, which is 100.
	// Many small requests of one connection are decided at once, so it also bounds what one connection
	// can ask for.
	MaxStreams int
	// MaxConnections bounds the open connections of the service's listener. When they are that many, a
	// new one takes the place of those that have waited longest between two requests or, for a while,
	// for their first head; it is refused when all of them are about a request. The process's bound on
	// open files lowers it. Default: 0, which is 16384. The admin listener admits 256.
	MaxConnections int
	// MaxConnectionsPerPeer bounds the open connections of one address, or of one IPv6
	// network as in ClientIP; further ones are refused. Trusted proxies are exempt.
	// Default: 0, no bound, since one address may be a load balancer's. Of the admin listener one
	// address has this many, 128 at most, on which no request was authorised yet.
	MaxConnectionsPerPeer int
	// MaxOperations bounds the operations that are read, decided and answered at once. What comes on
	// top waits for its turn, up to 100 ms, which are fair between clients; then it is answered 503.
	// Default: 0, which is 1024 for each processor. It bounds the
	// memory that a moment of overload costs, and how long what is decided takes.
	MaxOperations int
	// MetricsAge is how old the metrics may be that are served: they are gathered once in that time,
	// for all who ask. Default: 0, which is one second; less than 0: gathered for each request. It
	// keeps many scrapers from costing many times as much.
	MetricsAge time.Duration
	// OverloadAdmits says that a check for which there is no time is not answered 503, but
	// handed to Store with a context that has ended because of stint.ErrOverloaded; package failover
	// then admits it, if its configuration says so. Default: false.
	OverloadAdmits bool
	// DrainDelay is how long, when asked to stop, the server still accepts connections while it
	// reports itself not ready, so that load balancers notice. Default: 0. It should be longer than
	// the interval of the load balancers' health checks.
	DrainDelay time.Duration
	// DrainKeepAlive is how long, after DrainDelay, connections without a request are kept for their
	// next one, whose answer ends them. A client that sends one later may get none. Default: 0, they are
	// closed at once; DefaultConfig has 2 seconds.
	DrainKeepAlive time.Duration
	// DrainTimeout bounds the wait for requests in flight, DrainKeepAlive included. Default: 0, which
	// is 30 seconds. The platform must not kill the process before DrainDelay and DrainTimeout are
	// over.
	DrainTimeout time.Duration
}

// DefaultConfig returns the configuration of a service on loopback that lacks nothing but a store.
func DefaultConfig() Config {
	return Config{
		Headers: httplimit.AllFields, API: API{ExplicitKeys: true}, DrainKeepAlive: 2 * time.Second,
	}.withDefaults()
}

// DefaultLimits returns the limits that the algorithms' names stand for when the configuration says
// nothing else: 100 permits, refilled or drained at 10 per second, or per 60 seconds.
func DefaultLimits() map[stint.Algorithm]stint.Limit {
	// The numbers are those of the REST API's contract: clients may rely on them without configuring
	// anything.
	const permits, window = 100, 60 * time.Second
	limits := map[stint.Algorithm]stint.Limit{}
	for _, limit := range []stint.Limit{
		stint.TokenBucket(permits, stint.PerSecond(10)),
		stint.LeakyBucket(permits, stint.PerSecond(10)),
		stint.FixedWindow(permits, window),
		stint.SlidingWindowLog(permits, window),
		stint.SlidingWindowCounter(permits, window),
	} {
		limits[limit.Algorithm] = limit
	}
	return limits
}

// withDefaults returns the configuration with what is missing filled in. Only what is 0 is filled
// in, so that Validate sees what was given.
func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:8080")
	c.Build.Version = cmp.Or(c.Build.Version, "unknown")
	c.Build.Commit = cmp.Or(c.Build.Commit, "unknown")
	c.ReadHeaderTimeout = cmp.Or(c.ReadHeaderTimeout, 5*time.Second)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, 10*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 2*time.Minute)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 64<<10)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 1<<20)
	c.MaxBodyMemory = cmp.Or(
		c.MaxBodyMemory,
		max(defaultBodyMemory, leastBodyMemory(c.MaxBodyBytes, int64(c.MaxHeaderBytes))),
	)
	c.MaxStreams = cmp.Or(c.MaxStreams, 100)
	c.MaxConnections = cmp.Or(c.MaxConnections, 16384)
	c.MaxOperations = cmp.Or(c.MaxOperations, 1024*runtime.GOMAXPROCS(0))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Identity = c.Identity.canonical()
	c.Limits = c.Limits.withDefaults()
	return c
}

// longestWait is how long a rule may hold a request so that it is answered in time. A body may take
// BodyTimeout before the rules are asked. What is left of WriteTimeout is for the wait, or half of
// it if BodyTimeout leaves less.
func (c *Config) longestWait() time.Duration {
	return max(c.WriteTimeout-c.BodyTimeout, c.WriteTimeout/2)
}

// Validate reports everything that is wrong with the configuration, joined. The
// parameters carry the names of the configuration file.
func (c Config) Validate() error {
	var faults []error
	add := func(param string, value any, allowed string) {
		faults = append(faults, stint.Invalid(param, value, allowed))
	}
	if c.Store == nil {
		add("store", "nil", "a store such as memstore.New makes")
	}
	if c.Headers&^httplimit.AllFields != 0 {
		add("headers", uint8(c.Headers), "x_ratelimit, ietf and retry_after")
	}
	for _, d := range []struct {
		param string
		value time.Duration
	}{
		{"http.read_header_timeout", c.ReadHeaderTimeout},
		{"http.body_timeout", c.BodyTimeout},
		{"http.write_timeout", c.WriteTimeout},
		{"http.idle_timeout", c.IdleTimeout},
		{"drain.delay", c.DrainDelay},
		{"drain.keep_alive", c.DrainKeepAlive},
		{"drain.timeout", c.DrainTimeout},
	} {
		if d.value < 0 {
			add(d.param, d.value, "0 or more")
		}
	}
	for _, n := range []struct {
		param string
		value int64
	}{
		{"http.max_header_size", int64(c.MaxHeaderBytes)},
		{"http.max_body_size", c.MaxBodyBytes},
		{"http.max_streams", int64(c.MaxStreams)},
		{"http.max_connections", int64(c.MaxConnections)},
		{"http.max_connections_per_peer", int64(c.MaxConnectionsPerPeer)},
		{"http.max_operations", int64(c.MaxOperations)},
	} {
		if n.value < 0 {
			add(n.param, n.value, "0 or more")
		}
	}
	if least := leastBodyMemory(c.MaxBodyBytes, int64(c.MaxHeaderBytes)); c.MaxBodyMemory < least {
		add(
			"http.max_body_memory", c.MaxBodyMemory,
			fmt.Sprintf("at least %d: 4 times http.max_body_size, 16 times http.max_header_size and 32KiB together", least),
		)
	}
	for _, token := range c.API.Tokens {
		if !IsBearerToken(token) {
			add("api.tokens_file", fmt.Sprintf("a token of %d bytes", len(token)), tokenForm)
		}
	}
	faults = append(faults, validateAdminTokens(c.AdminTokens)...)
	faults = append(faults, c.TLS.validate("tls"), c.AdminTLS.validate("admin_tls"), c.GRPCTLS.validate("grpc_tls"),
		c.RESPTLS.validate("resp_tls"), c.ClientIP.Validate(), c.Identity.Validate())
	return prefix.Join(append(faults, c.validate()...)...)
}

// Limits are what names in a check stand for.
type Limits struct {
	// Defaults are the limits that an algorithm's name stands for. Missing ones are
	// taken from DefaultLimits.
	Defaults map[stint.Algorithm]stint.Limit
	// Policies are the limits that a policy's name stands for. Their state is never
	// shared with the defaults', with another policy's or with a rule's. Default: none.
	Policies map[string][]stint.Limit
}

// withDefaults fills in what is missing.
func (l Limits) withDefaults() Limits {
	all := DefaultLimits()
	maps.Copy(all, l.Defaults)
	l.Defaults = all
	return l
}

// validate reports all faults, sorted by name, so that the same configuration has the same error.
func (l Limits) validate() (faults []error) {
	for _, algorithm := range slices.Sorted(maps.Keys(l.Defaults)) {
		if limit := l.Defaults[algorithm]; limit.Algorithm != algorithm {
			faults = append(faults, stint.Invalid("defaults", limit.Algorithm, "a limit of algorithm "+algorithm.String()))
		} else if err := limit.Validate(); err != nil {
			faults = append(faults, prefix.Errorf("defaults: %s: %w", algorithm, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Policies)) {
		if name == "" {
			faults = append(faults, stint.Invalid("policies", name, "a name of at least one character"))
			continue
		}
		if _, err := stint.NewPolicy(policyPrefix+name, l.Policies[name]...); err != nil {
			faults = append(faults, prefix.Errorf("policies: %s: %w", name, err))
		}
	}
	return faults
}

// A RulesState says how the rules in force are known. The zero value is RulesUnknown.
//
//	RulesUnknown -> RulesCached -> RulesCurrent <-> RulesRefused, RulesUnreachable
type RulesState int32

// The states of the rules.
const (
	RulesUnknown     RulesState = iota // they were never read, and there are none
	RulesCached                        // they are from a cache, and may be old
	RulesCurrent                       // they are those of their source
	RulesRefused                       // their source has newer ones, which were refused
	RulesUnreachable                   // their source is unreachable, and may have newer ones
)
