// Command api is an HTTP API with limits by rules: logins by address, reading and writing by
// user, and everything together. Run it from the module's root:
//
//	go run ./examples/api
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done. It says where on out.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8081", "`HOST:PORT` to listen on")
	from := flags.String("rules", "examples/api/rules.yaml", "`PATH` of the rules")
	redis := flags.String("redis", "",
		"`URL` of a Redis to keep the state in, for several processes; by default it is kept in this one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(out, nil))

	// Where the state lives.
	var store stint.Store = memstore.New(memstore.Config{})
	if *redis != "" {
		shared, err := rueidis.Open(rueidis.Config{URL: *redis})
		if err != nil {
			return err
		}
		defer shared.Close()
		ready, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := shared.Ready(ready); err != nil { // else the first request pays for connecting and loading scripts
			logger.Warn("the store admits until it reaches Redis", "error", err)
		}
		store = shared
	}

	// What decides, by rules that are followed.
	limiter, err := enforce.New(enforce.Config{Store: store})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	inForce := make(chan struct{}, 1)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		take := func(set *rules.Set) {
			limiter.Swap(set)
			logger.Info("rules in force", "rules", set.Len())
			select {
			case inForce <- struct{}{}:
			default:
			}
		}
		refused := func(err error) { logger.Error("the rules from before stay", "err", err) }
		if err := (file.Source{Path: *from}).Follow(ctx, take, refused); err != nil {
			cancel(err)
		}
	}()
	defer func() { <-followed }()
	defer cancel(nil)
	select {
	case <-inForce:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	// The API, with the limits before it.
	api := newNotes()
	limit, err := httplimit.New(httplimit.Config{
		Rules: limiter,
		Describe: func(r *http.Request, q *rules.Request) error {
			q.User = api.user(r)
			return nil
		},
		Decided: func(r *http.Request, v *enforce.Verdict) {
			if !v.Allowed {
				logger.Info("denied", "method", r.Method, "path", r.URL.Path, "rule", v.Rule.ID, "reason", v.Reason())
			}
		},
	})
	if err != nil {
		return err
	}
	return serve(ctx, *listen, limit.Wrap(api.handler()), logger)
}

// serve listens until ctx is done.
func serve(ctx context.Context, address string, handler http.Handler, logger *slog.Logger) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	logger.Info("listening", "addr", listener.Addr().String())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(last)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
