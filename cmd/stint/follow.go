package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/server"
)

// rulesOf compiles the rules that the configuration names.
func rulesOf(loaded config.Config) (set *rules.Set, err error) {
	if loaded.RulesFrom != "" {
		set, err = readRules(loaded.RulesFrom)
	} else {
		set, err = file.Compile(loaded.Rules, loaded.RulesAt, rules.Options{})
	}
	if err != nil {
		return nil, misconfigured(err)
	}
	return set, nil
}

// A follower puts rules in force as their files change.
type follower struct {
	path    string
	set     *rules.Set // in force
	logger  *slog.Logger
	refused prometheus.Counter
}

func newFollower(path string, set *rules.Set, logger *slog.Logger) *follower {
	return &follower{path: path, set: set, logger: logger, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rate_limiter_rules_refused_total",
		Help: "Sets of rules that were not taken over, as something was wrong with them.",
	})}
}

// start follows the files, if there are any, until the returned function is called.
func (f *follower) start(ctx context.Context, s *server.Server) (stop func()) {
	if f.path == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := file.Watch(ctx, f.path, file.Options{
			Apply: func(list []rules.Rule, positions []notation.Position) error {
				return f.apply(list, positions, s)
			},
			Refused: func(error) { f.refused.Inc() },
			Logger:  f.logger,
		})
		if err != nil {
			f.refused.Inc()
			f.logger.Error("rules are not followed; those in force stay", "path", f.path, "err", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// apply puts rules in force, all of them or none.
func (f *follower) apply(list []rules.Rule, positions []notation.Position, s *server.Server) error {
	set, err := file.Compile(list, positions, rules.Options{Previous: f.set})
	if err != nil {
		return err
	}
	f.set = set
	if changes := s.SwapRules(set); !changes.None() {
		f.logger.Info("rules changed", "came", changes.Came, "went", changes.Went, "changed", changes.Changed)
	}
	return nil
}
