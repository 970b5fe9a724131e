// Command stint limits rates: it runs the service, and asks one from the command
// line. Its documentation is `stint help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(untilStopped(), os.Args[1:], process{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Environ: os.Environ}))
}

// untilStopped returns a context that ends with the first SIGTERM or SIGINT. The
// second one ends the process at once, as if nobody listened for it.
func untilStopped() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx
}
