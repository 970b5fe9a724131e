package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/server"
)

// A follower puts rules in force as their source has them, and knows whether they are.
type follower struct {
	logger  *slog.Logger
	place   string // where the rules are
	refused prometheus.Counter
	current prometheus.Gauge
	known   atomic.Bool // whether any were in force

	mu     sync.Mutex
	behind behind
}

// behind is why the rules in force are not those that the source has, as far as is known: any of
// several reasons, 0 for none.
type behind uint8

const (
	// bySource: what the source has was refused, or could not be read.
	bySource behind = 1 << iota
	// byEdits: edits past the service are not taken over.
	byEdits
)

func newFollower(logger *slog.Logger) *follower {
	return &follower{
		logger: logger,
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_rules_refused_total",
			Help: "Times that rules were not taken over: something was wrong with them, or they could not be read.",
		}),
		current: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rate_limiter_rules_current",
			Help: "1 while the rules in force are those that their source has, as far as is known; 0 while newer ones were refused or could not be read, and before any are known.",
		}),
	}
}

// collectors are the follower's metrics.
func (f *follower) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.refused, f.current}
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
		}, func(err error) { f.refuse(bySource, err) })
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
	first = !f.known.Swap(true)
	over := f.mend(bySource)
	switch {
	case first && (over || set.Len() > 0):
		f.logger.Info("rules are in force", "from", f.place, "rules", set.Len())
	case first:
	case !changes.None():
		f.logger.Info("rules changed", "came", changes.Came, "went", changes.Went, "changed", changes.Changed)
	}
	if over && !first {
		f.tellOver()
	}
	return first
}

// refuse counts and tells what could not be taken over, and why the rules are behind then.
func (f *follower) refuse(why behind, err error) {
	f.mu.Lock()
	f.behind |= why
	f.current.Set(0)
	f.mu.Unlock()
	f.refused.Inc()
	text := "rules are not taken over; those from before stay"
	if !f.known.Load() {
		text = "rules are not taken over; none are in force yet"
	}
	f.logger.Error(text, "from", f.place, "err", config.Redact(err.Error()))
}

// mend takes one reason away, and reports whether the rules are those of their source again.
func (f *follower) mend(why behind) (over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	over = f.behind == why && f.known.Load()
	f.behind &^= why
	if f.behind == 0 && f.known.Load() {
		f.current.Set(1)
	}
	return over
}

// tellOver says that the rules in force are those of their source again.
func (f *follower) tellOver() { f.logger.Info("rules are taken over again", "from", f.place) }

// edits is what hears of edits past the service.
func (f *follower) edits() edits {
	return edits{
		refused: func(err error) { f.refuse(byEdits, err) },
		mended: func() {
			if f.mend(byEdits) {
				f.tellOver()
			}
		},
	}
}
