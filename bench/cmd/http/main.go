// Command http measures stint over HTTP and prints benchstat's format:
//
//	http service     requests per second of "stint serve" on memory beside those of a
//	                 net/http handler that writes the same bytes
//	http middleware  requests per second of a handler with and without the middleware
//	http traces      processor time of a check of "stint serve" on memory with 1 % of
//	                 traces recorded, and with none
//	http openloop    latency at a fixed rate of one and of four processes of "stint
//	                 serve" on one Redis, each decision verified, by "stint bench"
//
// "http serve" is one of the servers that these measure; they start it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/proc"
)

func main() { cli.Main("http", run) }

func run(ctx context.Context, args []string) error {
	measure := ""
	if len(args) > 0 {
		measure, args = args[0], args[1:]
	}
	switch measure {
	case "service":
		return measureService(ctx, args)
	case "middleware":
		return measureMiddleware(ctx, args)
	case "traces":
		return measureTraces(ctx, args)
	case "openloop":
		return measureOpenLoop(ctx, args)
	case "serve":
		return serve(ctx, args)
	default:
		return fmt.Errorf("the first argument is %q; allowed: service, middleware, traces, openloop, serve", measure)
	}
}

// options are those of all measurements; not each has all.
type options struct {
	stint    string
	rounds   int
	duration time.Duration

	// Of wrk.
	connections, threads int

	// Of the open loop.
	processes []int
	rate      int
	warmUp    time.Duration
	clients   int
}

// newFlags has the flags that all measurements have.
func newFlags(o *options, name string, duration time.Duration, connections int) *flag.FlagSet {
	flags := flag.NewFlagSet("http "+name, flag.ContinueOnError)
	flags.StringVar(&o.stint, "stint", "results/bin/stint", "the stint binary")
	cli.Number(flags, &o.rounds, "rounds", 5, 1, 1000, "how often each is measured, by turns")
	cli.Number(
		flags, &o.duration, "duration", duration, time.Second, time.Hour,
		"length of one measurement, for wrk whole seconds",
	)
	cli.Number(flags, &o.connections, "connections", connections, 1, 10_000, "connections in all")
	return flags
}

// startSelf starts this program as a server.
func startSelf(ctx context.Context, args ...string) (*proc.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return proc.Start(ctx, nil, self, append([]string{"serve", "-listen", proc.Addr}, args...)...)
}
