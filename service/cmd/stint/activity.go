package main

import (
	"context"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/states"
)

// An activityRecorder records the recent traffic of the service.
type activityRecorder struct {
	// Recorder is nil where nobody could see it: without an admin listener and other processes.
	*activity.Recorder

	conn redisconn.Conn // nil: states live in the process
}

// startActivity starts to record. It has a connection of its own: what is recorded never queues before decisions.
func (s *serving) startActivity(ctx context.Context) (end func(), err error) {
	c := s.config
	if s.recent = new(activityRecorder); c.AdminListen == "" && c.Store.Memory() {
		return nil, nil
	}
	scheme := "http://"
	if c.TLS.CertFile != "" {
		scheme = "https://"
	}
	settings := activity.Config{
		Process:      activity.Process{Version: build().Version, API: scheme + c.Listen},
		KeyPrefix:    c.Store.KeyPrefix,
		StoreFigures: s.states.Figures,
	}
	hangUp := func() {}
	if !c.Store.Memory() {
		conn, err := rueidis.Dial(states.Connection(c.Store))
		if err != nil {
			return nil, unreachable(states.Unreachable(c.Store, err))
		}
		s.recent.conn, settings.Eval, hangUp = conn, evalOn(conn), conn.Close
	}
	s.recent.Recorder = activity.New(settings)
	stop := component.Run(ctx, s.recent.Run)
	return func() {
		stop()
		hangUp()
	}, nil
}

// evalOn runs a script on the connection, if it is up: what is recorded while Redis is away is not
// worth waiting for.
func evalOn(conn redisconn.Conn) activity.Eval {
	return func(ctx context.Context, source, key string, args []string) (string, error) {
		if err := conn.Ready(ctx); err != nil {
			return "", err
		}
		return conn.Eval(ctx, redisconn.NewScript(source), []string{key}, args)
	}
}

// storeChanged notes a change of the store's state. The cause is shown to holders of a token, and
// so is cleaned of addresses and passwords.
func (r *activityRecorder) storeChanged(change failover.Change) {
	if r.Recorder == nil {
		return
	}
	cause := ""
	if !change.Up {
		cause = prefix.Trim(document.Redact(change.Cause.Error()))
	}
	r.StoreChanged(change.Shard, cause)
}
