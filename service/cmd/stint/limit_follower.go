package main

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// A limitFollower puts policies and defaults in force as the configuration's file has them. All
// other settings are those of the start: a change of one is logged once, as it needs a restart. One
// goroutine follows; only refusal is read by others.
type limitFollower struct {
	// start has the settings of the start.
	start config.Config
	// config is what the limits in force are of.
	config config.Config
	// others are settings that were told to need a restart.
	others []string
	// reload reads all sources again, flags and environment included.
	reload  func() (config.Config, error)
	logger  *slog.Logger
	refused prometheus.Counter
	// refusal is why newer limits are not in force, nil if they are.
	refusal atomic.Pointer[string]
}

// newLimitFollower makes one with the limits that were loaded in force.
func newLimitFollower(loaded config.Config, reload func() (config.Config, error), logger *slog.Logger) *limitFollower {
	return &limitFollower{
		start: loaded, config: loaded, reload: reload, logger: logger,
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_limits_refused_total",
			Help: "Times that policies and defaults were refused: the configuration had faults, or could not be read.",
		}),
	}
}

// collectors are the limit follower's metrics.
func (f *limitFollower) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.refused, currentGauge(
		"rate_limiter_limits_current",
		"1 while policies and defaults in force are the newest; 0 while newer ones were refused or could not be read.",
		func() bool { return !f.isRefused() },
	)}
}

// followLimits follows the configuration's file until ctx is done.
func (s *serving) followLimits(ctx context.Context) {
	if s.config.File != "" {
		file.Follow(ctx, s.config.File, s.logger, func() error { return s.limits.read(s.server) }, s.limits.refuse)
	}
}

// read puts the limits of the file in force. Limits that are unchanged keep their clients' states;
// a changed one adopts them, as a store does with any new version of a limit.
func (f *limitFollower) read(s *server.Server) error {
	loaded, err := f.reload()
	if err == nil {
		err = s.SwapLimits(server.Limits{Defaults: loaded.Defaults, Policies: loaded.Policies})
	}
	if err != nil {
		return err
	}
	if f.refusal.Swap(nil) != nil {
		f.logger.Info("new policies and defaults are accepted again", "from", f.config.File)
	}
	if others := config.Differing(f.start, loaded); !slices.Equal(others, f.others) {
		f.others = others
		if len(others) > 0 {
			f.logger.Warn(
				"these settings are read at the start only: restart the service to have them in force", "settings", others,
			)
		}
	}
	before := f.config
	f.config = loaded
	var added, removed, changed []string
	for name, limits := range loaded.Policies {
		if old, found := before.Policies[name]; !found {
			added = append(added, name)
		} else if !slices.Equal(old, limits) {
			changed = append(changed, name)
		}
	}
	for name := range before.Policies {
		if _, found := loaded.Policies[name]; !found {
			removed = append(removed, name)
		}
	}
	for algorithm, limit := range loaded.Defaults {
		if before.Defaults[algorithm] != limit {
			changed = append(changed, "the default "+algorithm.String())
		}
	}
	if len(added)+len(removed)+len(changed) > 0 {
		f.logger.Info("policies changed", "added", sorted(added), "removed", sorted(removed), "changed", sorted(changed))
	}
	return nil
}

// sorted makes lines of the log the same for the same change, whatever the order of a map.
func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// refuse counts and logs what could not be taken over.
func (f *limitFollower) refuse(err error) {
	f.refused.Inc()
	reason := document.Redact(prefix.Trim(err.Error()))
	f.refusal.Store(&reason)
	f.logger.Error(
		"the new configuration is refused; the current limits stay in force", "from", f.config.File,
		"err", reason,
	)
}

// isRefused reports whether the file has limits that are not in force.
func (f *limitFollower) isRefused() bool { return f.refusal.Load() != nil }

// details are facts for operators about the policies and defaults in force.
func (f *limitFollower) details() map[string]any {
	if reason := f.refusal.Load(); reason != nil {
		return map[string]any{"state": "refused", "reason": *reason}
	}
	return map[string]any{"state": "current"}
}

// configuredRules are those of the configuration's own file. They are followed if there is one that
// can be read again.
type configuredRules struct {
	config config.Config
	reload func() (config.Config, error)
	logger *slog.Logger
}

// Follow implements [rules.Source].
func (c configuredRules) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	var current *rules.Set
	compile := func(loaded config.Config) error {
		options := rules.Options{Previous: current, IPv6Prefix: loaded.ClientIP.IPv6Prefix}
		set, err := file.Compile(loaded.Rules, loaded.RulesAt, options)
		if err == nil {
			current = set
			take(set)
		}
		return err
	}
	if err := compile(c.config); err != nil {
		return misconfigured(err)
	}
	if c.reload == nil || c.config.File == "" {
		<-ctx.Done()
		return nil
	}
	file.Follow(ctx, c.config.File, c.logger, func() error {
		loaded, err := c.reload()
		if err == nil {
			err = compile(loaded)
		}
		return err
	}, refused)
	return nil
}
