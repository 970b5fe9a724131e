// Command openloop offers checks at a fixed rate to one and to four processes of
// "stint serve" on one Redis, which it starts, and prints in benchstat's format the
// quantiles of the latency, counted from when each request was due, and whether the
// processes together admitted exactly what the limits allow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/bench/internal/load"
	"github.com/stint-go/stint/bench/internal/proc"
)

type options struct {
	stint     string
	targets   string
	processes string
	rate      int
	duration  time.Duration
	warmUp    time.Duration
	conns     int
	clients   int
	rounds    int
}

func main() {
	var o options
	flag.StringVar(&o.stint, "stint", "results/bin/stint", "the stint binary")
	flag.StringVar(&o.targets, "targets", "", "comma-separated HOST:PORT of servers that run already, instead of starting any; they must know the policies of -print-config")
	flag.StringVar(&o.processes, "processes", "1,4", "comma-separated numbers of processes to measure")
	flag.IntVar(&o.rate, "rate", 10_000, "checks offered per second, to all processes together")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "length of one measurement")
	flag.DurationVar(&o.warmUp, "warm-up", 2*time.Second, "length of the run before it, at the same rate")
	flag.IntVar(&o.conns, "connections", 200, "connections to all processes together")
	flag.IntVar(&o.clients, "clients", 10_000, "distinct keys")
	flag.IntVar(&o.rounds, "rounds", 1, "how often each number of processes is measured")
	printConfig := flag.Bool("print-config", false, "print the servers' configuration and end")
	flag.Parse()
	if *printConfig {
		fmt.Fprint(os.Stdout, config(o))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "openloop:", err)
		os.Exit(1) //nolint:gocritic // nothing left to undo
	}
}

func run(ctx context.Context, o options) error {
	if o.targets != "" {
		targets := strings.Split(o.targets, ",")
		return measure(ctx, o, targets)
	}
	for range o.rounds {
		for _, text := range strings.Split(o.processes, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("processes is %q; allowed: numbers from 1 on, comma-separated", o.processes)
			}
			if err := startAndMeasure(ctx, o, n); err != nil {
				return fmt.Errorf("%d processes: %w", n, err)
			}
		}
	}
	return nil
}

// startAndMeasure measures n new processes on a new Redis.
func startAndMeasure(ctx context.Context, o options, n int) (err error) {
	dir, err := os.MkdirTemp("", "stint-bench-openloop-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "stint.yaml")
	if err := os.WriteFile(file, []byte(config(o)), 0o600); err != nil {
		return err
	}
	redis, err := proc.StartRedis(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	var targets []string
	for range n {
		p, err := proc.StartServer(ctx, o.stint, "serve", "--listen", "127.0.0.1:0",
			"--store", "redis://"+redis.Addr, "--config", file)
		if err != nil {
			return err
		}
		defer func() { _ = p.Stop() }()
		targets = append(targets, p.Addr)
	}
	return measure(ctx, o, targets)
}

func measure(ctx context.Context, o options, targets []string) error {
	plan := load.Plan{
		Targets:  targets,
		Path:     o.ordinary,
		Rate:     o.rate,
		Requests: requests(o.rate, o.warmUp),
		Conns:    (o.conns + len(targets) - 1) / len(targets),
		Timeout:  5 * time.Second,
	}
	if plan.Requests > 0 {
		if _, err := load.Run(ctx, plan); err != nil {
			return err
		}
	}
	plan.Path, plan.Requests = o.mixed, requests(o.rate, o.duration)
	start := time.Now()
	samples, err := load.Run(ctx, plan)
	if err != nil {
		return err
	}
	report(os.Stdout, o, len(targets), samples, time.Since(start))
	return nil
}

func requests(rate int, d time.Duration) int {
	return int(float64(rate) * d.Seconds())
}

// report writes the line for benchstat, and what lies behind it to standard error.
func report(w io.Writer, o options, processes int, samples []load.Sample, took time.Duration) {
	t := count(o, samples)
	latency := func(s load.Sample) time.Duration { return s.Latency }
	lag := func(s load.Sample) time.Duration { return s.Lag }
	quantile := func(q float64) float64 { return load.Quantile(samples, q, latency).Seconds() }
	fmt.Fprintf(w, "BenchmarkOpenLoop/processes=%d-%d %d %d ns/op %.0f req/s %.6f p50-sec %.6f p99-sec %.6f p999-sec %.6f max-sec %.6f lag-p99-sec %d errors %d inexact\n",
		processes, runtime.GOMAXPROCS(0), len(samples), mean(samples).Nanoseconds(), float64(len(samples))/took.Seconds(),
		quantile(0.5), quantile(0.99), quantile(0.999), quantile(1), load.Quantile(samples, 0.99, lag).Seconds(),
		t.errors, t.inexact())
	fmt.Fprintf(os.Stderr, "%d process(es): statuses %v; admitted under the exact limits %v, want %d each\n",
		processes, t.statuses, t.admitted, t.limit)
}

func mean(samples []load.Sample) time.Duration {
	var sum time.Duration
	for _, s := range samples {
		sum += s.Latency
	}
	return sum / time.Duration(max(len(samples), 1))
}
