package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/server"
)

// A follower puts rules in force as their source has them.
type follower struct {
	logger  *slog.Logger
	place   string // where the rules are
	refused prometheus.Counter
	known   atomic.Bool // whether any were in force
}

func newFollower(logger *slog.Logger) *follower {
	return &follower{logger: logger, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rate_limiter_rules_refused_total",
		Help: "Times that rules were not taken over: something was wrong with them, or they could not be read.",
	})}
}

// firstRules bounds the wait for the first rules, which may be kept in a server that is away.
const firstRules = 2 * time.Second

// start puts the first rules in force and follows their source until the returned function is
// called. It returns an error when that can't be followed; when the rules are merely not known
// in time, it leaves them to come.
func (f *follower) start(ctx context.Context, source *ruleSource, s *server.Server) (stop func(), err error) {
	f.place = source.place
	ctx, cancel := context.WithCancel(ctx)
	first, ended := make(chan struct{}), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- source.Follow(ctx, func(set *rules.Set) {
			if f.take(s, set) {
				close(first)
			}
		}, f.refuse)
	}()
	stop = func() {
		cancel()
		<-done
	}
	wait, waited := context.WithTimeout(ctx, firstRules)
	defer waited()
	select {
	case <-first:
	case <-wait.Done():
		if ctx.Err() == nil {
			f.logger.Warn("the rules are not known yet", "from", f.place)
		}
	case err := <-ended:
		cancel()
		return func() {}, misconfigured(err)
	}
	return stop, nil
}

// take puts a set in force, and reports whether it is the first.
func (f *follower) take(s *server.Server, set *rules.Set) (first bool) {
	changes := s.SwapRules(set)
	if f.known.Swap(true) {
		if !changes.None() {
			f.logger.Info("rules changed", "came", changes.Came, "went", changes.Went, "changed", changes.Changed)
		}
		return false
	}
	if set.Len() > 0 {
		f.logger.Info("rules are in force", "from", f.place, "rules", set.Len())
	}
	return true
}

// refuse counts and tells what could not be taken over.
func (f *follower) refuse(err error) {
	f.refused.Inc()
	f.logger.Error("rules are not taken over; those from before stay", "from", f.place, "err", config.Redact(err.Error()))
}
