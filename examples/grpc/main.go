// Command grpc is a gRPC service with limits by rules: unary calls and the messages of streams,
// by user, and all calls together. Run it from the module's root:
//
//	go run ./examples/grpc
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"

	"google.golang.org/grpc"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "grpc:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done, or calls a service that runs.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("grpc", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:8082", "`HOST:PORT` to listen on, or to call")
	path := flags.String("rules", "examples/grpc/rules.yaml", "`PATH` of the rules")
	user := flags.String("call", "", "call the service as this `USER` until it refuses")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *user != "" {
		return call(ctx, *address, *user, out)
	}
	return serve(ctx, *address, *path, out)
}

// serve puts the rules of a file before the translator, by interceptors: streams are limited where
// they start, and message by message.
func serve(ctx context.Context, address, path string, out io.Writer) error {
	set, err := file.ReadSet(path, rules.Options{})
	if err != nil {
		return err
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		return err
	}
	limits, err := grpclimit.New(grpclimit.Config{
		Rules:    limiter,
		Messages: true,
		// Here clients say who they are; a service that has to know asks their certificate or token.
		Describe: func(_ context.Context, _ string, r *rules.Request) error {
			r.User = r.Header.Get("User")
			return nil
		},
	})
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limits.UnaryServerInterceptor()),
		grpc.StreamInterceptor(limits.StreamServerInterceptor()),
	)
	server.RegisterService(translator(), nil)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "listening on %s, %d rules\n", listener.Addr(), set.Len()); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, server.Stop)()
	return server.Serve(listener)
}
