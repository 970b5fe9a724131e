package redisstore

import (
	"context"

	"github.com/stint-go/stint/internal/watchdog"
)

// ready waits for a connection, so that a batch takes into the batch only those who still wait
// when it can leave.
func (br *batcher) ready() error {
	if br.store.conn.Ready(ended) == nil {
		return nil
	}
	br.mu.Lock()
	ctx := br.sendCtx
	br.mu.Unlock()
	var call watchdog.Call
	br.watchdog.Begin(&call)
	err := br.store.conn.Ready(ctx)
	switch {
	case err == nil:
		br.watchdog.Forget(&call)
	case ctx.Err() != nil:
		err = unavailable(context.Cause(ctx))
		br.watchdog.Forget(&call)
	default:
		br.watchdog.Lost(&call, err)
		err = unavailable(err)
	}
	return err
}

// ended is a context for who waits for nothing.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()
