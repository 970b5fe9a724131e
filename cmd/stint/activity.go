package main

import (
	"context"

	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/server/activity"
)

// watched is what the service remembers of its traffic, nil where nobody could see it: without an admin listener and
// other processes.
type watched struct {
	*activity.Recorder

	conn redisstore.Conn // nil: states live in the process
	end  func()
}

// newWatched begins to remember. Its end is to be called when no requests come any more.
func newWatched(ctx context.Context, c config.Config, figures func() activity.StoreFigures) (*watched, error) {
	if c.AdminListen == "" && c.Store.Memory() {
		return nil, nil //nolint:nilnil // as its type says
	}
	scheme := "http://"
	if c.TLS.CertFile != "" {
		scheme = "https://"
	}
	settings := activity.Config{Process: activity.Process{Version: build().Version, API: scheme + c.Listen}, KeyPrefix: c.Store.KeyPrefix, StoreFigures: figures}
	w, hangUp := &watched{}, func() {}
	if !c.Store.Memory() {
		conn, err := rueidis.Dial(connection(c.Store))
		if err != nil {
			return nil, storeFault(c.Store, err)
		}
		w.conn, settings.Eval, hangUp = conn, evalOn(conn), conn.Close
	}
	w.Recorder = activity.New(settings)
	stop := background(ctx, w.Run)
	w.end = func() {
		stop()
		hangUp()
	}
	return w, nil
}

func evalOn(conn redisstore.Conn) activity.Eval {
	return func(ctx context.Context, source, key string, args []string) (string, error) {
		if err := conn.Ready(ctx); err != nil {
			return "", err
		}
		return conn.Eval(ctx, redisstore.NewScript(source), []string{key}, args)
	}
}

// storeChanged notes a change of the store's state.
func (w *watched) storeChanged(change failover.Change) {
	if w == nil {
		return
	}
	cause := ""
	if !change.Up {
		cause = prefix.Trim(document.Redact(change.Cause.Error()))
	}
	w.StoreChanged(change.Shard, cause)
}
