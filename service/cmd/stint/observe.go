package main

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/service/internal/alerts"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/decisionlog"
)

// alertLinger is how long alerts that wait are still sent when the service ends.
const alertLinger = 2 * time.Second

// An observer tells the log and the webhook of decisions. Both are told of every decision that
// passes the service, however it was asked for, and neither holds it up: what they can't keep up
// with is summarized or dropped, and counted.
type observer struct {
	log    *decisionlog.Log
	alerts *alerts.Sender // nil: none

	loud bool // whether decisions are logged

	collectors []prometheus.Collector
}

// newObserver makes an observer. Alerts are claimed by a connection to the store's Redis, or nil.
func newObserver(c config.Config, conn redisconn.Conn, logger *slog.Logger) (*observer, error) {
	o := &observer{
		log: decisionlog.New(
			decisionlog.Config{Logger: logger, Denials: c.Log.Denials, ShowClients: c.Log.PlainClients, Secret: c.Log.Key},
		),
		loud: c.Log.Denials || c.Log.Level <= slog.LevelDebug,
	}
	if c.Alerts.URL == "" {
		return o, nil
	}
	settings := alerts.Config{
		URL:         c.Alerts.URL,
		Denials:     c.Alerts.Denials,
		NearLimit:   int64(c.Alerts.NearLimit),
		HashClients: c.Alerts.HashClients,
		Timeout:     c.Alerts.Timeout,
		MaxQueue:    c.Alerts.MaxQueue,
		MaxBatch:    c.Alerts.MaxBatch,
		MaxTries:    c.Alerts.MaxTries,
		Linger:      alertLinger,
		Logger:      logger,
	}
	if c.Alerts.Secret != "" {
		settings.Secret = []byte(c.Alerts.Secret)
	}
	if conn != nil {
		settings.Claim = claimOn(conn, c.Store)
	}
	var err error
	if o.alerts, err = alerts.New(settings); err != nil {
		return nil, misconfigured(err)
	}
	o.collectors = append(o.collectors, promlimit.NewStatsCollector(o.alerts.Stats))
	return o, nil
}

// claimOn claims names in Redis, within the time that the store has for a call. Of the processes
// that share a Redis, the one that sets the name first sends the alert. The name expires by itself,
// so that a process that dies claims nothing for ever.
func claimOn(conn redisconn.Conn, c config.Store) func(context.Context, string, time.Duration) (bool, error) {
	return func(ctx context.Context, name string, life time.Duration) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		if err := conn.Ready(ctx); err != nil {
			return false, err
		}
		reply, err := conn.Do(ctx, "SET", c.KeyPrefix+":"+name, "1", "NX", "PX", strconv.FormatInt(life.Milliseconds(), 10))
		return reply != "", err
	}
}

// startObservers makes the observer, summarizes degraded answers and sends alerts.
func (s *serving) startObservers(ctx context.Context) (end func(), err error) {
	if s.told, err = newObserver(s.config, s.recent.conn, s.logger); err != nil {
		return nil, err
	}
	runs := []func(context.Context){s.told.log.Run}
	if s.told.alerts != nil {
		runs = append(runs, s.told.alerts.Run)
	}
	return component.Run(ctx, runs...), nil
}

// observers are those whom the service tells of decisions.
func (o *observer) observers() (list []stint.Observer) {
	if o.loud {
		list = append(list, o.log.Observe)
	}
	if o.alerts != nil {
		list = append(list, o.alerts.Observe)
	}
	return list
}
