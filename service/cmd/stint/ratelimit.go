package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/dropin"
)

// dropInName is the name of the reference service's program, github.com/envoyproxy/ratelimit.
// Called by it, this one behaves as it does.
const dropInName = "ratelimit"

// rateLimitCommand is `stint ratelimit`: serve, with the settings translated from the reference
// service's variables.
func rateLimitCommand(p process) *cobra.Command {
	command := newCommand(dropInName)
	command.RunE = func(command *cobra.Command, _ []string) error {
		d, loaded, err := dropin.Read(p.Env, p.variables())
		if err != nil {
			return misused("%v", err)
		}
		reload := func() (config.Config, error) {
			_, loaded, err := dropin.Read(p.Env, p.variables())
			return loaded, err
		}
		p.Env = d.Env
		return serve(command.Context(), p, loaded, reload, serveOptions{dropIn: d})
	}
	return command
}

// furtherConnections is how many connections each of the listeners for metrics and the configuration serves at once;
// others wait.
const furtherConnections = 64

// openDebug logs what the environment has no effect on, and opens the listener for debugging.
func (s *serving) openDebug(ctx context.Context) (end func(), err error) {
	s.logger.Warn("this is stint in the place of Envoy's reference rate limit service; there are no statsd, "+
		"memcached and pprof, "+
		"and metrics have the names of that service's own mapping", "no_effect", s.dropIn.Ignored)
	debug := http.NewServeMux()
	debug.HandleFunc("GET /stats", s.serveMetrics)
	debug.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(s.server.RateLimit().Dump())) // a client that is gone has no use for the error
	})
	return s.openOne(ctx, "debug", s.dropIn.Debug, debug)
}

// openMetrics opens the listener for Prometheus, if the environment asks for one.
func (s *serving) openMetrics(ctx context.Context) (end func(), err error) {
	if s.dropIn.Metrics == "" {
		return nil, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+s.dropIn.MetricsPath, s.serveMetrics)
	return s.openOne(ctx, "metrics", s.dropIn.Metrics, mux)
}

// serveMetrics answers as the REST API's listener does.
func (s *serving) serveMetrics(w http.ResponseWriter, r *http.Request) {
	r.URL.Path = apipath.Metrics
	s.server.Handler().ServeHTTP(w, r)
}

// openOne opens a further listener.
func (s *serving) openOne(ctx context.Context, service, address string, handler http.Handler) (end func(), err error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s.logger.Info("listening", "service", service, "addr", ln.Addr().String())
	own := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
	stop := component.Run(ctx, func(context.Context) {
		if err := own.Serve(netutil.LimitListener(ln, furtherConnections)); !errors.Is(err, http.ErrServerClosed) {
			s.logger.Error("a listener has ended", "addr", address, "err", err)
		}
	})
	return func() {
		_ = own.Close()
		stop()
	}, nil
}
