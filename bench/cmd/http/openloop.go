package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/proc"
)

// openLoopLimit is what every client has, and openLoopPolicy the same for the servers: with a request in 2.5 s, some are
// denied. A store that fails must not look like an admission.
const (
	openLoopLimit  = "token_bucket:2:1/4s"
	openLoopPolicy = "on_store_failure: closed\npolicies: {api: [{algorithm: token_bucket, capacity: 2, refill: 1/4s}]}\n"
)

func measureOpenLoop(ctx context.Context, args []string) error {
	var o options
	flags := newFlags(&o, "openloop", 10*time.Second, 200)
	cli.Numbers(flags, &o.processes, "processes", []int{1, 4}, 1, 64, "numbers of processes")
	cli.Number(flags, &o.rate, "rate", 4000, 1, 1_000_000, "checks offered per second, to all processes together")
	cli.Number(flags, &o.warmUp, "warm-up", 2*time.Second, 0, time.Hour, "length of the run before it, at the same rate")
	cli.Number(flags, &o.clients, "clients", 10_000, 1, 5_000_000, "distinct keys")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	for range o.rounds {
		for _, n := range o.processes {
			if err := offer(ctx, o, n); err != nil {
				return fmt.Errorf("%d processes: %w", n, err)
			}
		}
	}
	return nil
}

// offer measures n new processes on a new Redis.
func offer(ctx context.Context, o options, n int) (err error) {
	redis, err := proc.StartRedis(ctx, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	var servers []*proc.Process
	for range n {
		server, startErr := startStint(ctx, o, "redis://"+redis.Addr, openLoopPolicy)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		servers = append(servers, server)
	}
	if o.warmUp > 0 {
		if _, err := benchAll(ctx, o, servers, o.warmUp); err != nil {
			return err
		}
	}
	f, err := benchAll(ctx, o, servers, o.duration)
	if err != nil {
		return err
	}
	micros := func(percentile string) float64 { return f.Latency[percentile] / 1e6 }
	fmt.Fprintf(os.Stdout, "BenchmarkOpenLoop/processes=%d-%d %d %.0f req/s %.6f p50-sec %.6f p99-sec %.6f p999-sec %.6f max-sec %d errors %d differ\n",
		n, runtime.GOMAXPROCS(0), f.Decisions, f.PerSecond, micros("p50"), micros("p99"), micros("p99.9"), micros("p100"), f.Failed, f.differ())
	fmt.Fprintf(os.Stderr, "%d process(es): %d admitted, %d denied, %d failed\n", n, f.Admitted, f.Denied, f.Failed)
	return nil
}

// figures are what `stint bench --json` says of a target.
type figures struct {
	Decisions, Admitted, Denied, Failed int64
	PerSecond                           float64
	Latency                             map[string]float64 `json:"latencyMicros"`
	Findings                            struct{ AdmittedBeyond, DeniedTooMuch int64 }
}

func (f *figures) differ() int64 { return f.Findings.AdmittedBeyond + f.Findings.DeniedTooMuch }

// add adds what another `stint bench` found at the same time: of latencies, the longer one.
func (f *figures) add(other *figures) {
	f.Decisions += other.Decisions
	f.Admitted += other.Admitted
	f.Denied += other.Denied
	f.Failed += other.Failed
	f.PerSecond += other.PerSecond
	f.Findings.AdmittedBeyond += other.Findings.AdmittedBeyond
	f.Findings.DeniedTooMuch += other.Findings.DeniedTooMuch
	if f.Latency == nil {
		f.Latency = map[string]float64{}
	}
	for percentile, micros := range other.Latency {
		f.Latency[percentile] = max(f.Latency[percentile], micros)
	}
}

// benchAll has a `stint bench` for each server, all at the same time, offer its share of the load.
func benchAll(ctx context.Context, o options, servers []*proc.Process, length time.Duration) (sum figures, err error) {
	n, found, faults := len(servers), make([]figures, len(servers)), make([]error, len(servers))
	var all sync.WaitGroup
	for i, server := range servers {
		all.Go(func() {
			found[i], faults[i] = benchOne(ctx, o.stint,
				"--target", "rest", "--server", "http://"+server.Addr, "--policy", "api", "--limit", openLoopLimit,
				"--rate", fmt.Sprintf("%d/%ds", o.rate, n), "--callers", fmt.Sprint((o.connections+n-1)/n),
				"--keys", fmt.Sprint((o.clients+n-1)/n), "--for", length.String())
		})
	}
	all.Wait()
	for i := range found {
		sum.add(&found[i])
	}
	return sum, errors.Join(faults...)
}

// benchOne runs `stint bench`.
func benchOne(ctx context.Context, stint string, args ...string) (f figures, err error) {
	command := exec.CommandContext(ctx, stint, append([]string{"bench", "--json"}, args...)...)
	command.Stderr = os.Stderr
	out, ended := command.Output()
	var report struct{ Targets []figures }
	if err := json.Unmarshal(out, &report); err != nil || len(report.Targets) != 1 {
		return f, fmt.Errorf("%s: %w", command, errors.Join(ended, err))
	}
	return report.Targets[0], nil // it ends with 1 if decisions differ, which the figures say
}
