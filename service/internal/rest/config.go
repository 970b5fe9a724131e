package rest

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// A Build says what is running. The zero value is a build of unknown origin.
type Build struct {
	Version string // such as v1.2.3; default: "unknown"
	Commit  string // the revision it was built from; default: "unknown"
}

// Settings are [config.Config].
type Settings = config.Config

// A Config says what a [Service] is made of: the settings that were read, and the parts that the program made of them.
// Only Store has no default. It is not changed afterwards; what may change while a service runs is put in by SwapRules
// and SwapLimits.
type Config struct {
	// Settings are those of the program, as [config.Load] has checked them. Of a size of 0 whose default follows from
	// others, such as HTTP.MaxBodyMemory, New makes that. AdminListen may be "", which is no admin listener.
	Settings

	// Build is what /actuator/info tells.
	Build Build
	// Store decides. It must not be nil. What it fails to decide is answered 503, so a store that may
	// be unreachable belongs into one of package failover, which bounds each call in time and admits,
	// or decides by itself, what is to be. The caller closes it after the server has stopped. It is called by
	// many goroutines at once.
	Store stint.Store
	// StoreHealth reports whether the store can be reached; it is asked by the health
	// endpoints, with a deadline of a second. Default: nil, the store is always there.
	StoreHealth func(context.Context) error
	// StoreRequired makes the server not ready while the store can't be reached, as checks are not
	// answered then. Default: false, health tells of the store, and the server stays ready. True suits
	// a store whose failures deny everything: another process may do better.
	StoreRequired bool
	// InProcess says that Store decides in this process, and keeps no keys: the Redis protocol takes of it one by one.
	// Default: false, it asks for several at once.
	InProcess bool
	// HealthDetails are facts for operators about the store and the rules, by component and name, such as {"store":
	// {"on_store_failure": "open"}}. The health endpoints show them to callers with the right to name keys that ask for
	// them by ?details=true. Default: nil, none.
	HealthDetails func() map[string]map[string]any

	// Rules are what evaluate and forward-auth decide by; [Service.SwapRules] puts others in their
	// place. A rule holds no request for longer than WriteTimeout leaves after BodyTimeout, or
	// half of it if that is more. Default: nil, none.
	Rules *rules.Set
	// Manager edits rules for the admin listener; its revision in force is what activity names. The service does not
	// follow it: the program has Manager.Follow hand each set to [Service.SwapRules]. Default: nil, rules are read-only.
	Manager *rulestore.Manager
	// RulesState says how the rules in force are known, which may be kept in a server that is
	// unreachable. The server is not ready while they are [follow.Unknown]. Default: nil, they are
	// [follow.Current].
	RulesState func() follow.State
	// LimitsRefused reports whether newer limits than those in force were refused. Default: nil, they
	// never are.
	LimitsRefused func() bool

	// RateLimitLoads is how many configurations there have to have been for the server to be ready: 0
	// or 1. With 0 Envoy gets answers of a service that does not know its domains yet, which limit
	// nothing.
	RateLimitLoads int
	// DomainsRefused says what of the newest domains is not in force; "" is nothing. Default: nil, nothing ever is.
	DomainsRefused func() string
	// OpenJSON lets anybody ask the rate limit service over HTTP, as over gRPC. Default: false, it needs what it
	// needs to name a key.
	OpenJSON bool

	// Activity is told of every decision, and shown on the admin listener. The program that runs the server runs it.
	// Default: nil, none.
	Activity *activity.Recorder
	// Observers are told of every check and evaluation that was decided, before it is answered, and
	// then of what each rule in shadow would have decided. Metrics and Activity are told anyway.
	// Default: none. They are called by the goroutine that answers, so they must be quick and safe for
	// concurrent use.
	Observers []stint.Observer
	// MetricsAge is how old the metrics may be that are served: they are gathered once in that time,
	// for all who ask. Default: 0, which is one second; less than 0: gathered for each request. It
	// keeps many scrapers from costing many times as much.
	MetricsAge time.Duration
	// Logger receives a line per listener and per recovered panic. Default: nil, slog.Default.
	Logger *slog.Logger
}

// WithDefaults returns the configuration with what is missing filled in. Only what is 0 is filled
// in, so that Validate sees what was given.
func (c Config) WithDefaults() Config {
	c.Build.Version = cmp.Or(c.Build.Version, "unknown")
	c.Build.Commit = cmp.Or(c.Build.Commit, "unknown")
	c.HTTP.MaxBodyMemory = cmp.Or(c.HTTP.MaxBodyMemory, max(capacity.DefaultBodyMemory, c.HTTP.LeastBodyMemory()))
	c.HTTP.MaxOperations = cmp.Or(c.HTTP.MaxOperations, 1024*runtime.GOMAXPROCS(0))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Identity = c.Identity.Canonical()
	return c
}

// Validate reports everything that is wrong with the configuration, joined. The
// parameters carry the names of the configuration file.
func (c Config) Validate() error {
	var faults []error
	if c.Store == nil {
		faults = append(faults, stint.Invalid("store", "nil", "a store such as memstore.New makes"))
	}
	_, err := newTargets(&c, Limits{c.Defaults, c.Policies})
	return prefix.Join(append(faults, c.Settings.Validate(), err)...)
}

// Limits are what names in a check stand for.
type Limits struct {
	// Defaults are the limits that an algorithm's name stands for. Missing ones are
	// taken from [config.DefaultLimits].
	Defaults map[stint.Algorithm]stint.Limit
	// Policies are the limits that a policy's name stands for. Their state is never
	// shared with the defaults', with another policy's or with a rule's. Default: none.
	Policies map[string][]stint.Limit
}
