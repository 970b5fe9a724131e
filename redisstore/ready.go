package redisstore

import (
	"context"

	"github.com/stint-go/stint/internal/watchdog"
)

// ready waits for a connection, so that a flight takes on board only those who still wait
// when it can leave.
func (l *lane) ready() error {
	if l.store.conn.Ready(ended) == nil {
		return nil
	}
	l.mu.Lock()
	ctx := l.calls
	l.mu.Unlock()
	var call watchdog.Call
	l.watchdog.Begin(&call)
	err := l.store.conn.Ready(ctx)
	switch {
	case err == nil:
		l.watchdog.Forget(&call)
	case ctx.Err() != nil:
		err = unavailable(context.Cause(ctx))
		l.watchdog.Forget(&call)
	default:
		l.watchdog.Lost(&call, err)
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
