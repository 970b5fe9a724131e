// Command middleware compares the requests per second of a handler with and without the
// net/http middleware before it, driven by wrk, by turns. It prints benchstat's format.
//
// It starts itself anew for each server: -serve names what that one does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/bench/internal/wrk"
)

type options struct {
	serve, handler string
	rounds         int
	load           wrk.Load
}

func main() {
	var o options
	flag.StringVar(&o.serve, "serve", "", "serve by these limits rather than measure: "+names(gates))
	flag.StringVar(&o.handler, "handler", "small", "what -serve serves: "+names(handlers))
	flag.IntVar(&o.rounds, "rounds", 5, "how often each of them is measured")
	flag.DurationVar(&o.load.Duration, "duration", 5*time.Second, "length of one measurement, whole seconds")
	flag.IntVar(&o.load.Connections, "connections", 64, "connections of wrk")
	flag.IntVar(&o.load.Threads, "threads", 2, "threads of wrk")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	do := measure
	if o.serve != "" {
		do = serve
	}
	if err := do(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "middleware:", err)
		os.Exit(1) //nolint:gocritic // nothing left to undo
	}
}

// measure drives every handler behind every gate, by turns.
func measure(ctx context.Context, o options) error {
	if o.rounds < 1 || o.load.Duration < time.Second {
		return fmt.Errorf("rounds is %d and duration is %v; allowed: 1 or more and 1s or more", o.rounds, o.load.Duration)
	}
	for _, handler := range handlers {
		if err := compare(ctx, o, handler.name); err != nil {
			return fmt.Errorf("%s: %w", handler.name, err)
		}
	}
	return nil
}

func compare(ctx context.Context, o options, handler string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	addrs := map[string]string{}
	for _, gate := range gates {
		server, startErr := proc.StartServer(ctx, self, "-serve", gate.name, "-handler", handler)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		addrs[gate.name] = server.Addr
	}
	for round := range o.rounds {
		for i := range gates {
			gate := gates[(i+round)%len(gates)].name // none always goes first
			m, err := o.load.Run(ctx, "http://"+addrs[gate]+"/items/42")
			if err != nil {
				return err
			}
			if m.Refused > 0 {
				return fmt.Errorf("%s: %d of %d requests were refused", gate, m.Refused, m.Requests)
			}
			fmt.Fprintf(os.Stdout, "BenchmarkMiddleware/handler=%s/impl=%s-%d %d %.0f ns/op %.0f req/s\n",
				handler, gate, runtime.GOMAXPROCS(0), m.Requests, 1e9/m.Rate, m.Rate)
		}
	}
	return nil
}
