package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/rest"
)

// newLimitFollower makes a follower of the configuration's file that puts its policies and defaults in force. Limits
// that are unchanged keep their clients' states; a changed one adopts them, as a store does with any new version of a
// limit. All other settings are those of the start: a change of one is logged once, as it needs a restart.
func (s *serving) newLimitFollower() *follow.Follower[config.Config] {
	var f *follow.Follower[config.Config]
	var needRestart []string // settings that were told
	f = follow.New(follow.Options[config.Config]{
		Refusals: prometheus.CounterOpts{
			Name: "rate_limiter_limits_refused_total",
			Help: "Times that policies and defaults were refused: the configuration had faults, or could not be read.",
		},
		Current: prometheus.GaugeOpts{
			Name: "rate_limiter_limits_current",
			Help: "1 while policies and defaults in force are the newest; 0 while newer ones were refused or could not be read.",
		},
		First: &s.config, Attributes: []any{"from", s.config.File}, Logger: s.logger, Level: slog.LevelError,
		Put: func(loaded config.Config) error {
			if err := s.server.SwapLimits(rest.Limits{Defaults: loaded.Defaults, Policies: loaded.Policies}); err != nil {
				return err
			}
			if others := config.Differing(s.config, loaded); !slices.Equal(others, needRestart) {
				if needRestart = others; len(others) > 0 {
					s.logger.Warn("these settings are read at the start only: restart the service to have them in force",
						"settings", others)
				}
			}
			tellLimits(f.Value(), loaded, s.logger)
			return nil
		},
		Text: func(error, bool) (string, []any) {
			return "the new configuration is refused; the current limits stay in force", nil
		},
		Again: func(error, bool) string { return "new policies and defaults are accepted again" },
	})
	return f
}

// tellLimits logs what differs between two configurations of limits.
func tellLimits(before, after config.Config, logger *slog.Logger) {
	var added, removed, changed []string
	for name, limits := range after.Policies {
		if old, found := before.Policies[name]; !found {
			added = append(added, name)
		} else if !slices.Equal(old, limits) {
			changed = append(changed, name)
		}
	}
	for name := range before.Policies {
		if _, found := after.Policies[name]; !found {
			removed = append(removed, name)
		}
	}
	for algorithm, limit := range after.Defaults {
		if before.Defaults[algorithm] != limit {
			changed = append(changed, "the default "+algorithm.String())
		}
	}
	// Lines of the log are the same for the same change, whatever the order of a map.
	sorted := func(names []string) []string { return slices.Sorted(slices.Values(names)) }
	if len(added)+len(removed)+len(changed) > 0 {
		logger.Info("policies changed", "added", sorted(added), "removed", sorted(removed), "changed", sorted(changed))
	}
}

// followLimits follows the configuration's file until ctx is done.
func (s *serving) followLimits(ctx context.Context) {
	if s.config.File == "" {
		return
	}
	rulefile.Follow(ctx, s.config.File, s.logger, func() error {
		loaded, err := s.reload()
		if err == nil {
			err = s.limits.Take(loaded, nil)
		}
		return err
	}, s.limits.Refuse)
}
