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
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/domainsource"
	"github.com/stint-go/stint/service/internal/dropin"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/logqueue"
	"github.com/stint-go/stint/service/internal/rest"
	"github.com/stint-go/stint/service/internal/rulesource"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/service/internal/states"
	"github.com/stint-go/stint/service/internal/telemetry"
)

// serveOptions are what besides its configuration says how the service runs. The zero value is as
// `stint serve` does.
type serveOptions struct {
	// demo has rules and traffic made up, for a look at the dashboard (demo.go).
	demo bool
	// dropIn is nil unless the service is in the place of Envoy's reference one.
	dropIn *dropin.DropIn
}

// A serving is the service as a list of parts, with what they have of each other: each start sets its own fields.
type serving struct {
	serveOptions

	process process
	config  config.Config
	// reload reads the configuration again when its file changes.
	reload func() (config.Config, error)
	logger *slog.Logger
	// lost is how many lines of the log could not be written.
	lost func() int64
	list *component.List
	// token is the admin token that the demonstration made for its own edits; "" is none.
	token string

	states  *states.Backend
	recent  *activityRecorder
	told    *observer
	traced  *telemetry.Traces
	store   *states.Store
	source  *rulesource.Source
	rules   *follow.Follower[*rules.Set]
	changes rulediff.Changes // that the last set of rules made
	limits  *follow.Follower[config.Config]
	domains *domainsource.Follower
	server  *server.Server
}

// serve runs the service until ctx is done. It reads the configuration again by reload when its
// file changes.
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
	s := &serving{serveOptions: options, process: p, config: loaded, reload: reload, logger: logger, lost: queue.Lost}
	if s.demo {
		var err error
		if s.token, err = demonstrable(&s.config); err != nil {
			return err
		}
	}
	return s.run(ctx)
}

// run starts the parts, and stops them when ctx is done or a listener fails. The log and the exit code tell how it
// went.
func (s *serving) run(ctx context.Context) (err error) {
	if s.list, err = component.New(s.logger, s.parts()...); err != nil {
		return err
	}
	if err = s.list.Start(ctx); err != nil {
		return notStarted(err)
	}
	err = errors.Join(s.server.Wait(ctx), s.list.Stop(context.WithoutCancel(ctx)))
	if err == nil {
		s.logger.Info("stopped")
	}
	return err
}

// notStarted is a failure to start, with the exit code of its cause. Its last line names the part that failed.
func notStarted(err error) error {
	known := exit{exitFailed, err.Error()}
	if part, ok := errors.AsType[*component.StartError](err); ok {
		known.text = part.Err.Error()
		_ = errors.As(part.Err, &known) // of another error it stays
		known.text += "\nthe service did not start: its part " + part.Part + " failed"
	}
	return known
}

// parts are the service's, in the order of dependencies: states before what observes them; rules and limits before the
// listeners accept, so that no request is decided without them. What tells of decisions ends after those who decide.
func (s *serving) parts() []component.Part {
	parts := []component.Part{
		component.Made("states", s.openStates),
		component.Made("activity", s.startActivity, "states"),
		component.Made("observers", s.startObservers, "activity"),
		component.Made("traces", s.startTraces),
		component.Made("store", s.openStore, "states", "activity", "observers", "traces"),
		component.Made("source of rules", s.openRules),
		component.Made("server", s.newServer, "store", "observers", "traces", "source of rules"),
		component.Made("sender of metrics", s.startMetrics, "server"),
		component.Background("watch of states", func(ctx context.Context) { s.states.Follow(ctx, s.logger) }, "states"),
		component.Made("rules", s.followRules, "server", "source of rules"),
		component.Background("limits", s.followLimits, "server"),
		component.Made("domains", s.followDomains, "server"),
	}
	if s.dropIn != nil {
		parts = append(parts, component.Made("listener for debugging", s.openDebug, "server"),
			component.Made("listener for metrics", s.openMetrics, "server"))
	}
	parts = append(parts, component.Part{
		Name: "listeners", Needs: []string{"server", "rules", "limits", "domains"}, Start: s.listen,
		Stop: func(ctx context.Context) error { return s.server.Stop(ctx) },
	})
	if s.demo {
		parts = append(parts, component.Made("demo", s.startDemo, "listeners", "source of rules"))
	}
	return parts
}

// newServer makes the server of what the parts before it made.
func (s *serving) newServer(ctx context.Context) (func(), error) {
	_, inProcess := s.store.Store.(*memstore.Store)
	c := server.Config{
		Config: rest.Config{
			Settings: s.config, Build: build(), Logger: s.logger,
			Store: s.store, StoreHealth: s.store.Health, StoreRequired: s.config.OnStoreFailure == failover.Closed,
			InProcess: inProcess, Manager: s.source.Manager, HealthDetails: s.details,
			Observers: s.told.observers(), Activity: s.recent.Recorder,
		},
		RulesPlace: s.source.Place, RulesForgotten: s.source.Forgotten,
		Middleware: s.traced.Middleware(), Trace: s.traced.Recorded(),
	}
	if s.config.Envoy.XDS.Server != "" {
		c.RateLimitLoads = 1 // a file is read before requests come, a control plane may answer later
	}
	if d := s.dropIn; d != nil {
		c.OpenJSON, c.GRPCMaxAge, c.RateLimitLoads = true, d.MaxAge, 1
		c.StoreRequired = c.StoreRequired && !d.Healthy
		if d.Forced {
			c.RateLimitLoads = 0
		}
	}
	s.rules, s.limits, s.domains = s.newRuleFollower(), s.newLimitFollower(), domainsource.New(s.config.Envoy, s.logger)
	c.LimitsRefused = func() bool { return s.limits.Reason() != nil }
	c.DomainsRefused, c.RulesState = s.domains.Refused, s.rules.State
	c.Collectors = slices.Concat(s.store.Collectors, s.told.collectors, s.rules.Collectors(), s.limits.Collectors())
	c.Collectors = append(c.Collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rate_limiter_log_lines_lost_total",
		Help: "Lines of the log that could not be written.",
	}, func() float64 { return float64(s.lost()) }))
	// A second service on one machine may do without the admin listener that nobody asked for.
	if !s.config.AdminAsked && inUse(ctx, c.AdminListen) {
		s.logger.Warn(
			"no admin listener: another program listens on its default address; choose one with --admin-listen",
			"addr", c.AdminListen,
		)
		c.AdminListen = ""
	}
	var err error
	if s.server, err = server.New(c); err != nil {
		return nil, misconfigured(err)
	}
	announceStore(s.config, s.logger)
	return nil, nil
}

// startTraces reads whether traces are sent.
func (s *serving) startTraces(ctx context.Context) (end func(), err error) {
	if s.traced, err = telemetry.StartTraces(ctx, s.process.env, s.logger); err != nil {
		return nil, misconfigured(err)
	}
	return s.traced.End, nil
}

// startMetrics has metrics sent, if the environment says so.
func (s *serving) startMetrics(ctx context.Context) (end func(), err error) {
	if end, err = telemetry.StartMetrics(ctx, s.process.env, s.server.Gatherer(), s.logger); err != nil {
		return nil, misconfigured(err)
	}
	return end, nil
}

// followDomains follows the domains of Envoy's rate limit service where they are.
func (s *serving) followDomains(ctx context.Context) (end func(), err error) {
	d, rateLimit := cmp.Or(s.dropIn, &dropin.DropIn{}), s.server.RateLimit()
	if s.config.Envoy.XDS.Server != "" {
		end, err = s.domains.FollowPlane(ctx, d.XDS, rateLimit)
	} else {
		from := rulefile.Texts{Path: s.config.Envoy.Config, All: s.dropIn != nil, Hidden: d.Hidden}
		end, err = s.domains.FollowFiles(ctx, from, rateLimit, s.dropIn == nil)
	}
	if err != nil {
		return nil, misconfigured(err)
	}
	return end, nil
}

// details are facts for operators about the parts, and about what they follow.
func (s *serving) details() map[string]map[string]any {
	details := map[string]map[string]any{
		"store": s.store.Details(), "rules": s.rules.Details(), "limits": s.limits.Details(),
		"parts": s.list.States(),
	}
	details["rules"]["from"] = s.source.Place
	if s.config.GRPCListen != "" {
		details["domains"] = s.domains.Details()
	}
	return details
}

// listen has the server listen, the last of what requests need.
func (s *serving) listen(ctx context.Context) error {
	err := s.server.Start(ctx)
	if errors.Is(err, stint.ErrInvalid) {
		return misconfigured(err)
	}
	return err
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

// misconfigured is a fault that only what is configured could tell.
func misconfigured(err error) error {
	return exit{exitUsage, document.Redact(err.Error())}
}
