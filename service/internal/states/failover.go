package states

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
)

// adviceTimeout bounds asking a server how it is configured.
const adviceTimeout = 10 * time.Second

// newFailover makes a store that answers while the servers are unreachable, or this process overloaded, as the
// configuration says, and tells of changes of its state.
//
// back is called when the whole store can be reached again; the servers may be configured
// differently by then.
func newFailover(c config.Config, store stint.Store, b *Backend, h Hooks, back func()) (*failover.Store, error) {
	settings := failover.Config{
		Timeout: c.Store.Timeout, Mode: c.OnStoreFailure, AdmitOnOverload: c.OverloadAdmits(),
		ForPolicy: failureRules(c.OnStoreFailure),
		// a rule may be local
		Local:    memstore.New(memstore.Config{MaxBytes: c.Store.MaxMemory, MaxHolds: c.Store.MaxHolds}),
		Answered: h.Answered,
	}
	if c.Instances > 0 {
		settings.Instances = func() int { return c.Instances }
	}
	var protected atomic.Pointer[failover.Store] // nil while Protect makes it, when it has answered nobody
	changes := &changeLog{logger: h.Logger, primary: b.primary, answers: func() uint64 {
		if store := protected.Load(); store != nil {
			stats := store.Stats()
			return stats.Open + stats.Closed + stats.Local
		}
		return 0
	}}
	settings.StateChanged = func(change failover.Change) {
		if h.Changed != nil {
			h.Changed(change)
		}
		if changes.note(change) {
			back()
		}
	}
	made, err := failover.Protect(sharedBackend{store, b}, settings)
	if err != nil {
		return nil, err
	}
	protected.Store(made)
	return made, nil
}

// A sharedBackend is a backend as failover.Protect takes one, perhaps with traced calls.
type sharedBackend struct {
	stint.Store

	b *Backend
}

// Ready implements [failover.Shared].
func (s sharedBackend) Ready(ctx context.Context) error { return s.b.Await(ctx) }

// Instances implements [failover.Shared]. The memory is one process's.
func (s sharedBackend) Instances() int {
	if s.b.instances == nil {
		return 1
	}
	return s.b.instances()
}

// Close implements [failover.Shared]. Who opened the backend closes it.
func (sharedBackend) Close() {}

// failureRules says what rules say of the time when the store is unreachable, where standard holds
// for those that say nothing. It is asked once for a policy, when that is bound.
func failureRules(standard failover.Mode) func(*stint.Policy) (failover.PolicyOptions, bool) {
	return func(policy *stint.Policy) (failover.PolicyOptions, bool) {
		failure := rules.FailureOf(policy)
		if failure == (rules.Failure{}) {
			return failover.PolicyOptions{}, false
		}
		options := failover.PolicyOptions{Mode: standard, Timeout: failure.Timeout}
		if failure.Policy != "" {
			// Rules with anything else don't compile; the store would refuse it.
			mode, err := failover.ParseMode(string(failure.Policy))
			if err != nil {
				mode = failover.Closed
			}
			options.Mode = mode
		}
		return options, true
	}
}

// A changeLog writes one line when the store becomes unreachable and one when it can be reached
// again. Of a store in parts these are the first to go and the last to come back; what the others do
// is logged at debug.
type changeLog struct {
	logger *slog.Logger
	// answers is how many decisions modes have made until now, those that they refused included.
	answers func() uint64
	// primary is the address of the server that decides; "" or nil: it is not told.
	primary func() string

	mu          sync.Mutex
	unreachable int
	since       time.Time // when the first part became unreachable
	before      uint64    // the answers of modes until then
}

// note logs a change, and reports whether all of the store is back.
func (l *changeLog) note(change failover.Change) (back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if change.Up {
		l.unreachable--
		if l.unreachable == 0 {
			attributes := []any{"after", time.Since(l.since).Round(time.Millisecond), "decided_without", l.answers() - l.before}
			if l.primary != nil && l.primary() != "" {
				attributes = append(attributes, "primary", l.primary())
			}
			l.logger.Info("the store can be reached again", attributes...)
		} else {
			l.logger.Debug("a part of the store can be reached again", "shard", change.Shard)
		}
		return l.unreachable == 0
	}
	l.unreachable++
	cause := document.Redact(change.Cause.Error())
	if l.unreachable == 1 {
		l.since, l.before = time.Now(), l.answers()
		l.logger.Warn("the store is unreachable", "err", cause)
	} else {
		l.logger.Debug("a part of the store is unreachable", "shard", change.Shard, "err", cause)
	}
	return false
}

// adviser logs what is unwise about a server's configuration, each advice once. It asks the server each time that wake
// is called, in the background, until close is.
func adviser(advise func(context.Context) []string, logger *slog.Logger) (wake, closing func()) {
	wakes, told := make(chan struct{}, 1), map[string]bool{}
	closing = component.Run(context.Background(), func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-wakes:
			}
			bounded, cancel := context.WithTimeout(ctx, adviceTimeout)
			for _, advice := range advise(bounded) {
				if !told[advice] {
					// The same advice at each reconnect would hide the others.
					told[advice] = true
					logger.Warn(advice)
				}
			}
			cancel()
		}
	})
	wake = func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	}
	return wake, closing
}
