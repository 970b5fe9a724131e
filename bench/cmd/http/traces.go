package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/proc"
)

// measureTraces compares the service on memory with 1 % of its traces recorded, and sent by OTLP to a receiver that
// throws them away, with the same without traces: by the processor time of a check, since the receiver and wrk share
// the machine.
func measureTraces(ctx context.Context, args []string) (err error) {
	var o options
	flags := newFlags(&o, "traces", 3*time.Second, 64)
	cli.Number(flags, &o.threads, "threads", 2, 1, 64, "threads of wrk")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	receiver, err := startSelf(ctx, "-gate", "bare", "-handler", "small")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, receiver.Stop()) }()
	if o.stint, err = filepath.Abs(o.stint); err != nil {
		return err
	}
	var entrants []entrant
	for _, variant := range []struct{ name, exporter string }{{"off", "none"}, {"on", "otlp"}} {
		server, startErr := proc.Start(
			ctx, map[string]string{"stint.yaml": "defaults:\n  token_bucket: {capacity: 1000000000, refill: 1000000000/1s}\n"}, "env",
			"OTEL_TRACES_EXPORTER="+variant.exporter, "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+receiver.Addr,
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
			o.stint, "serve", "--store", "memory://", "--config", "stint.yaml", "--listen", proc.Addr,
		)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		entrants = append(entrants, entrant{variant.name, server})
	}
	used, err := race(ctx, o, entrants, checkPath, "BenchmarkTraces/impl=%s", false)
	if err != nil {
		return err
	}
	var shares []float64 // of each round
	for i, off := range used["off"] {
		shares = append(shares, off/used["on"][i])
	}
	slices.Sort(shares)
	fmt.Fprintf(os.Stderr, "checks per CPU second with 1 %% of traces, of those without: median %.1f %% of %d rounds (%.1f to %.1f)\n",
		100*shares[len(shares)/2], len(shares), 100*shares[0], 100*shares[len(shares)-1])
	return nil
}
