package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// A ruleFollower puts rules in force as their source has them, and knows whether they are. A set
// that has faults, or can't be read, leaves the rules in force as they are; metrics and the health
// say so.
//
// Its state is one of server's RulesStates:
//
//	unknown -> cached        at the start, from rules_cache
//	unknown, cached -> current   the first set of the source itself
//	current <-> refused      newer rules have faults
//	current <-> unreachable  the source does not answer
//
// It is safe for concurrent use.
type ruleFollower struct {
	logger *slog.Logger
	// place says where the rules are, without secrets.
	place string
	// credentials names the settings with the user and password for place, for a log line that says
	// what to check.
	credentials string
	// cache has the last rules read.
	cache   rulesCache
	refused prometheus.Counter
	// state is a server.RulesState, read at each scrape without mu.
	state atomic.Int32

	// mu is held while rules are put in force.
	mu sync.Mutex
	// reason is why the source's rules were not put in force since the last ones were taken; nil: they
	// were.
	reason error
}

// newRuleFollower makes one for which no rules are known. [ruleFollower.start] begins.
func newRuleFollower(logger *slog.Logger, cache rulesCache) *ruleFollower {
	return &ruleFollower{
		logger: logger, cache: cache,
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_rules_refused_total",
			Help: "Times that rules were refused: they had faults, or could not be read.",
		}),
	}
}

// collectors are the rule follower's metrics.
func (f *ruleFollower) collectors() []prometheus.Collector {
	return []prometheus.Collector{f.refused, currentGauge(
		"rate_limiter_rules_current",
		"1 while the rules in force are the newest; 0 while newer ones were refused or could not be read, "+
			"and before any were read.",
		func() bool { return f.known() == server.RulesCurrent },
	)}
}

// currentGauge is 1 while what is in force is current, else 0. An alert on it finds rules that were
// edited and do not hold.
func currentGauge(name, help string, current func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
		if current() {
			return 1
		}
		return 0
	})
}

// known says how the rules in force are known.
func (f *ruleFollower) known() server.RulesState { return server.RulesState(f.state.Load()) }

// isRead reports whether rules of the source itself were put in force.
func (f *ruleFollower) isRead() bool {
	state := f.known()
	return state != server.RulesUnknown && state != server.RulesCached
}

// details are facts about the rules for operators.
func (f *ruleFollower) details(place string) map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	facts := map[string]any{"from": place, "state": map[server.RulesState]string{
		server.RulesUnknown: "unknown", server.RulesCached: "cached", server.RulesCurrent: "current",
		server.RulesRefused: "refused", server.RulesUnreachable: "unreachable",
	}[f.known()]}
	if f.reason != nil {
		facts["reason"] = document.Redact(prefix.Trim(f.reason.Error()))
	}
	return facts
}

// firstRules bounds the wait for the first rules, which may be kept in a server that is
// unreachable. The service must not hang at its start because the server with the rules is gone.
const firstRules = 2 * time.Second

// start puts the first rules in force and follows their source until the returned function is
// called. It returns an error when that can't be followed; when the rules are merely not known
// in time, it begins with those of the cache, or leaves them to come.
//
// The first set is awaited for firstRules at most. Then the service listens; whether it is ready
// without rules is the server's to say (RulesRequired).
func (f *ruleFollower) start(ctx context.Context, source *ruleSource, s *server.Server) (stop func(), err error) {
	f.place, f.credentials = source.place, source.credentials
	// fallBack runs once, for a source that refuses or for one that is slow.
	first, ended := make(chan struct{}), make(chan error, 1)
	fallBack := sync.OnceFunc(func() { f.applyCached(s, source.options) })
	stop = component.Run(ctx, func(ctx context.Context) {
		ended <- source.Follow(ctx, func(set *rules.Set) {
			if f.apply(s, set) {
				close(first)
			}
		}, func(err error) {
			f.refuse(err)
			fallBack()
		})
	})
	wait, waited := context.WithTimeout(ctx, firstRules)
	defer waited()
	select {
	case <-first:
	case <-wait.Done():
		if ctx.Err() == nil && !f.isRead() {
			f.logger.Warn("the rules could not be read yet", "from", f.place)
			fallBack()
		}
	case err := <-ended:
		stop()
		return nil, misconfigured(err)
	}
	return stop, nil
}

// apply puts a set in force, and reports whether it is the first of the source. The log tells a
// change from the first set, and says when a fault is over.
func (f *ruleFollower) apply(s *server.Server, set *rules.Set) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changes := s.SwapRules(set)
	first = !f.isRead()
	over := f.reason
	f.reason = nil
	f.state.Store(int32(server.RulesCurrent))
	switch {
	case first && (over != nil || set.Len() > 0):
		f.logger.Info("rules are in force", "from", f.place, "rules", set.Len())
	case first:
	case !changes.None():
		f.logger.Info("rules changed", "added", changes.Added, "removed", changes.Removed, "changed", changes.Changed)
	}
	switch {
	case over == nil || first:
	case isUnreachable(over):
		f.logger.Info("the rules' source is reachable again", "from", f.place)
	default:
		f.logger.Info("new rules are accepted again", "from", f.place)
	}
	if err := f.cache.write(set); err != nil {
		f.logger.Warn("rules_cache can't be written", "err", err)
	}
	return first
}

// applyCached puts the rules of the cache in force, unless the source's are known by now.
func (f *ruleFollower) applyCached(s *server.Server, options rules.Options) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cache == "" || f.known() != server.RulesUnknown {
		return
	}
	set, err := f.cache.read(options)
	if err != nil {
		f.logger.Warn("rules_cache can't be read", "err", err)
		return
	}
	s.SwapRules(set)
	f.state.Store(int32(server.RulesCached))
	f.logger.Warn(
		"rules of rules_cache are in force until their source can be read; they may be old", "from", f.place,
		"rules", set.Len(),
	)
}

// refuse counts and logs what could not be taken over.
func (f *ruleFollower) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reason = err
	f.refused.Inc()
	state, text := server.RulesRefused, "the new rules are refused; "
	if isUnreachable(err) {
		state, text = server.RulesUnreachable, "the rules' source is unreachable; "
	}
	if f.isRead() {
		f.state.Store(int32(state))
	}
	if f.known() == server.RulesUnknown {
		text += "no rules are in force yet"
	} else {
		text += "the current rules stay in force"
	}
	attributes := []any{"from", f.place, "err", document.Redact(err.Error())}
	if errors.Is(err, rulestore.ErrCredentials) {
		attributes = append(attributes, "check", f.credentials)
	}
	f.logger.Error(text, attributes...)
}

// isUnreachable reports whether an error of the source says nothing of its rules.
func isUnreachable(err error) bool {
	return errors.Is(err, stint.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// A rulesCache is the path of a file with the last rules that were read; "" is none.
type rulesCache string

// write puts rules into the file, whole or not at all. Only the service's user may read it, as
// rules can name API keys. The file is replaced by a rename, so that a crash leaves the old one or
// the new one.
func (c rulesCache) write(set *rules.Set) error {
	if c == "" {
		return nil
	}
	text, err := rulestore.Encode(set.Rules())
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(string(c)), filepath.Base(string(c))+".*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), string(c))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the error says what is wrong
	}
	return err
}

// read returns the rules of the file. They are compiled again, since another version may have
// written them.
func (c rulesCache) read(options rules.Options) (*rules.Set, error) {
	text, err := os.ReadFile(string(c))
	if err != nil {
		return nil, err
	}
	list, err := rulestore.Decode(string(c), text)
	if err != nil {
		return nil, err
	}
	return rules.Compile(list, options)
}
