package main

import (
	"context"
	"log/slog"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
)

// survive lets the store answer while its server is away, as the configuration says. A
// store in the process is never away.
func (o *openedStore) survive(c config.Config, logger *slog.Logger) error {
	if c.Store.Memory() {
		return nil
	}
	settings := failover.Config{
		Store: o.Store, Timeout: c.Store.Timeout, Mode: c.OnStoreFailure,
		Instances: func() int { return c.Instances },
	}
	parts, sharded := o.Store.(failover.Sharded)
	sharded = sharded && parts.Shards() > 1
	settings.Hooks.StateChanged = func(change failover.Change) { logChange(logger, change, sharded) }
	if c.OnStoreFailure == failover.Local {
		settings.Local = memstore.New(memstore.Config{MaxBytes: c.Store.MaxMemory})
	}
	store, err := failover.New(settings)
	if err != nil {
		return misconfigured(err)
	}
	closeServer, ping := o.Close, o.Health
	o.Store = store
	o.Close = func() {
		store.Close()
		closeServer()
	}
	// A server that is known to be away is not asked, which would cost a deadline.
	o.Health = func(ctx context.Context) error {
		if outages := store.Down(); outages != nil {
			return stint.ErrUnavailable
		}
		ctx, cancel := context.WithTimeout(ctx, c.Store.Timeout)
		defer cancel()
		return ping(ctx)
	}
	o.Collectors = append(o.Collectors, promlimit.NewFailoverCollector(func() promlimit.FailoverStats {
		s := store.Stats()
		return promlimit.FailoverStats{
			Open: s.Open, Closed: s.Closed, Local: s.Local, Timeouts: s.Timeouts, Errors: s.Errors,
			Probes: s.Probes, Charged: s.Charged, Dropped: s.Dropped, Shards: s.Shards, Away: s.Away,
		}
	}))
	return nil
}

// logChange writes the one line that the log has of each change.
func logChange(logger *slog.Logger, change failover.Change, sharded bool) {
	var args []any
	if sharded {
		args = append(args, "shard", change.Shard)
	}
	if change.To == failover.Up {
		logger.Info("the store is back", args...)
		return
	}
	logger.Warn("the store is away", append(args, "err", config.Redact(change.Cause.Error()))...)
}
