package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stint-go/stint/bench/internal/cli"
)

// measureMiddleware drives every handler behind every gate, by turns.
func measureMiddleware(ctx context.Context, args []string) error {
	var o options
	flags := newFlags(&o, "middleware", 5*time.Second, 64)
	cli.Number(flags, &o.threads, "threads", 2, 1, 64, "threads of wrk")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	for _, handler := range slices.Sorted(maps.Keys(handlers)) {
		if err := compareGates(ctx, o, handler); err != nil {
			return fmt.Errorf("%s: %w", handler, err)
		}
	}
	return nil
}

func compareGates(ctx context.Context, o options, handler string) (err error) {
	var entrants []entrant
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		server, startErr := startSelf(ctx, "-gate", gate, "-handler", handler)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		entrants = append(entrants, entrant{gate, server})
	}
	_, err = race(ctx, o, entrants, "/items/42", "BenchmarkMiddleware/handler="+handler+"/impl=%s", false)
	return err
}
