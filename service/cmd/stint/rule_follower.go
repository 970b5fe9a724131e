package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/rulesource"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// newRuleFollower makes a follower of rules that puts them in force by swap. A set that has faults, or can't be read,
// leaves the rules in force as they are.
func (s *serving) newRuleFollower() *follow.Follower[*rules.Set] {
	return follow.New(follow.Options[*rules.Set]{
		Refusals: prometheus.CounterOpts{
			Name: "rate_limiter_rules_refused_total",
			Help: "Times that rules were refused: they had faults, or could not be read.",
		},
		Current: prometheus.GaugeOpts{
			Name: "rate_limiter_rules_current",
			Help: "1 while the rules in force are the newest; 0 while newer ones were refused or could not be read, " +
				"and before any were read.",
		},
		Attributes: []any{"from", s.source.Place}, Logger: s.logger, Level: slog.LevelError,
		Put: func(set *rules.Set) error {
			s.changes = s.server.SwapRules(set)
			return nil
		},
		Text: func(reason error, inForce bool) (text string, attributes []any) {
			if text = "the new rules are refused; "; follow.IsUnreachable(reason) {
				text = "the rules' source is unreachable; "
			}
			if errors.Is(reason, rulestore.ErrCredentials) {
				attributes = []any{"check", s.source.Credentials}
			}
			if inForce {
				return text + "the current rules stay in force", attributes
			}
			return text + "no rules are in force yet", attributes
		},
		Again: func(over error, first bool) string {
			switch {
			case first:
				return ""
			case follow.IsUnreachable(over):
				return "the rules' source is reachable again"
			default:
				return "new rules are accepted again"
			}
		},
	})
}

// takeRules takes a set of the source over. The log tells a change from the first set.
func (s *serving) takeRules(set *rules.Set, cache rulesource.Cache) {
	first, over := !s.rules.IsRead(), s.rules.Reason()
	_ = s.rules.Take(set, nil) // a set that compiles is never refused
	switch c := s.changes; {
	case first && (over != nil || set.Len() > 0):
		s.logger.Info("rules are in force", "from", s.source.Place, "rules", set.Len())
	case !first && !c.None():
		s.logger.Info("rules changed", "added", c.Added, "removed", c.Removed, "changed", c.Changed)
	}
	if cache == "" {
		return
	}
	if err := cache.Write(set); err != nil {
		s.logger.Warn("rules_cache can't be written", "err", err)
	}
}

// openRules opens the source of the service's rules.
func (s *serving) openRules(context.Context) (end func(), err error) {
	if s.source, err = rulesource.Open(s.config, s.reload, s.logger); err != nil {
		return nil, misconfigured(err)
	}
	return s.source.Close, nil
}

// firstRules bounds the wait for the first rules, which may be kept in a server that is
// unreachable. The service must not hang at its start because the server with the rules is gone.
const firstRules = 2 * time.Second

// followRules puts the first rules in force and follows their source. It returns an error when that can't be
// followed; when the rules are merely not known in time, it begins with those of the cache, or leaves
// them to come.
//
// The first set is awaited for firstRules at most. Then the service listens; whether it is ready
// without rules is the server's to say.
func (s *serving) followRules(ctx context.Context) (end func(), err error) {
	first, ended := make(chan struct{}), make(chan error, 1)
	read, cache := sync.OnceFunc(func() { close(first) }), rulesource.Cache(s.config.RulesCache)
	// fallBack runs once, for a source that refuses or for one that is slow.
	fallBack := sync.OnceFunc(func() { s.standIn(cache) })
	stop := component.Run(ctx, func(ctx context.Context) {
		ended <- s.source.Follow(ctx, func(set *rules.Set) {
			s.takeRules(set, cache)
			read()
		}, func(err error) {
			s.rules.Refuse(err)
			fallBack()
		})
	})
	wait, waited := context.WithTimeout(ctx, firstRules)
	defer waited()
	select {
	case <-first:
	case <-wait.Done():
		if ctx.Err() == nil && !s.rules.IsRead() {
			s.logger.Warn("the rules could not be read yet", "from", s.source.Place)
			fallBack()
		}
	case err := <-ended:
		stop()
		return nil, misconfigured(err)
	}
	return stop, nil
}

// standIn puts the rules of the cache in force, unless the source's are known by now.
func (s *serving) standIn(cache rulesource.Cache) {
	if cache == "" {
		return
	}
	stands, err := s.rules.Stand(func() (*rules.Set, error) { return cache.Read(s.source.Options) })
	switch {
	case err != nil:
		s.logger.Warn("rules_cache can't be read", "err", err)
	case stands:
		s.logger.Warn("rules of rules_cache are in force until their source can be read; they may be old",
			"from", s.source.Place, "rules", s.rules.Value().Len())
	}
}
