// Command central is an API whose limits a central service decides, by rules that are kept in MongoDB: it has no
// limits of its own, and asks before each request. Run all of it from the module's root:
//
//	examples/central/run
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
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "central:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("central", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8084", "the `HOST:PORT` of the API")
	url := flags.String("service", "http://127.0.0.1:8080", "the `URL` of stint")
	path := flags.String("token-file", "", "`PATH` of the token that stint knows this program by")
	if err := flags.Parse(args); err != nil {
		return err
	}
	token, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	// Longer than the 100 ms that stint gives its own store, so that its answer still arrives.
	service, err := client.Open(*url, client.Options{
		Token: strings.TrimSpace(string(token)), Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	defer service.Close()
	limit, err := httplimit.New(httplimit.Config{Rules: admitting{service.Rules()}, Describe: describe})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "found\n") })
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	server := http.Server{Handler: limit.Wrap(mux), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// describe says who sends a request, and on which plan. Here the password is the plan; a program that has to know
// checks the password, and looks the plan up.
func describe(r *http.Request, q *rules.Request) error {
	user, plan, _ := r.BasicAuth()
	q.User, q.Attributes = user, map[string]string{"plan": plan}
	return nil
}

// admitting admits what stint can't decide, since it can't be reached or is too busy: this API rather has too much
// to do than nothing. Without it such requests are answered 503.
type admitting struct{ enforce.Decider }

// Decide implements [enforce.Decider].
func (a admitting) Decide(ctx context.Context, r *rules.Request, v *enforce.Verdict) error {
	return admitUndecided(v, a.Decider.Decide(ctx, r, v))
}

// DecideNow implements [enforce.Decider].
func (a admitting) DecideNow(ctx context.Context, r *rules.Request, v *enforce.Verdict) error {
	return admitUndecided(v, a.Decider.DecideNow(ctx, r, v))
}

func admitUndecided(v *enforce.Verdict, err error) error {
	if !errors.Is(err, stint.ErrUnavailable) && !errors.Is(err, stint.ErrOverloaded) {
		return err
	}
	slog.Warn("admitted without a decision", "err", err)
	*v = enforce.Verdict{OnHold: v.OnHold, Allowed: true}
	return nil
}
