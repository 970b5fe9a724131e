package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/promlimit"
)

// A keeper asks the store, bounds each call in time, and notices when the store
// goes away and when it is back.
type keeper struct {
	store   stint.Store
	timeout time.Duration
	logger  *slog.Logger
	metrics *promlimit.Metrics
	now     func() time.Time

	away   atomic.Bool
	failed atomic.Int64 // when the last call failed, in Unix nanoseconds
}

// errGone answers a client that has hung up; nobody reads it.
var errGone = &failure{status: http.StatusServiceUnavailable, detail: "the client has gone"}

// decide carries out one operation. An error is the caller's fault (ErrInvalid),
// errGone, or wraps ErrUnavailable.
func (k *keeper) decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := k.call(ctx, op)
	if err == nil && !k.away.Load() {
		return d, nil
	}
	return d, k.judge(ctx, err)
}

func (k *keeper) call(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if k.timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, k.timeout)
		defer cancel()
		ctx = bounded
	}
	return k.store.Decide(ctx, op)
}

// decideAll carries out the operations in order, each alone. It returns the first
// error, as decide does; the results hold what each came to.
func (k *keeper) decideAll(ctx context.Context, ops []stint.Op, results []stint.Result) error {
	bounded := ctx
	if k.timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, k.timeout)
		defer cancel()
	}
	k.store.DecideAll(bounded, ops, results)
	var first error
	for i := range results {
		results[i].Err = k.judge(ctx, results[i].Err)
		if first == nil {
			first = results[i].Err
		}
	}
	return first
}

// judge turns what the store returned into one of decide's errors. ctx is the
// request's, not the bounded one.
func (k *keeper) judge(ctx context.Context, err error) error {
	switch {
	case err == nil:
		k.noteSuccess()
		return nil
	case errors.Is(err, stint.ErrInvalid):
		return err
	case ctx.Err() != nil:
		return errGone
	}
	k.metrics.StoreFailed()
	k.failed.Store(k.now().UnixNano())
	if k.away.CompareAndSwap(false, true) {
		k.logger.Warn("the store is away", "err", err)
	}
	return stint.ErrUnavailable
}

// noteSuccess takes the store for back once no call has failed for a second, so
// that a store that fails now and then fills no log.
func (k *keeper) noteSuccess() {
	if !k.away.Load() || k.now().UnixNano()-k.failed.Load() < int64(time.Second) {
		return
	}
	if k.away.CompareAndSwap(true, false) {
		k.logger.Info("the store is back")
	}
}
