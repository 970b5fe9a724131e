package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/proc"
)

// The traffic is mostly ordinary: many clients under the default token bucket. One
// request in ten is exact: it asks for one of five keys, each under a limit of
// another algorithm that neither refills nor turns while the run lasts, so that
// exactly the limit must be admitted, whichever process is asked.
const exactEvery = 10

// exact lists the five policies, with a limit's parameters other than its size.
var exact = []struct{ policy, algorithm, size, pace string }{
	{"exact-token-bucket", "token_bucket", "capacity", "refill: 1/24h"},
	{"exact-leaky-bucket", "leaky_bucket", "capacity", "leak: 1/24h"},
	{"exact-fixed-window", "fixed_window", "limit", "window: 8784h"},
	{"exact-sliding-window-log", "sliding_window_log", "limit", "window: 8784h"},
	{"exact-sliding-window-counter", "sliding_window_counter", "limit", "window: 8784h"},
}

func measureOpenLoop(ctx context.Context, args []string) error {
	var o options
	flags := newFlags(&o, "openloop", 10*time.Second, 200)
	cli.Numbers(flags, &o.processes, "processes", []int{1, 4}, 1, 64, "numbers of processes")
	cli.Number(flags, &o.rate, "rate", 10_000, 1, 1_000_000, "checks offered per second, to all processes together")
	cli.Number(flags, &o.warmUp, "warm-up", 2*time.Second, 0, time.Hour, "length of the run before it, at the same rate")
	cli.Number(flags, &o.clients, "clients", 10_000, 1, 100_000_000, "distinct keys")
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
		server, startErr := startStint(ctx, o, "redis://"+redis.Addr, o.config())
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		servers = append(servers, server)
	}
	// A connection carries one request at a time. Request i goes to process i modulo n.
	clients, each := make([]*fasthttp.HostClient, n), (o.connections+n-1)/n
	for i, server := range servers {
		clients[i] = newClient(server.Addr, each)
		defer clients[i].CloseIdleConnections()
	}
	plan := loadgen.Plan{Callers: n * each, Groups: n, Rate: o.rate}
	if plan.Duration = o.warmUp; plan.Duration > 0 {
		plan.Ask = (&tally{}).ask(clients, o.ordinary)
		if _, err := loadgen.Run(ctx, plan); err != nil {
			return err
		}
	}
	t := &tally{limit: int64(o.exactLimit())}
	plan.Duration, plan.Ask = o.duration, t.ask(clients, o.mixed)
	r, err := loadgen.Run(ctx, plan)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "BenchmarkOpenLoop/processes=%d-%d %d %.0f ns/op %.0f req/s %.6f p50-sec %.6f p99-sec %.6f p999-sec %.6f max-sec %.6f lag-p99-sec %d errors %d inexact\n",
		n, runtime.GOMAXPROCS(0), r.Count(), r.Latency.Mean(), float64(r.Count())/r.Elapsed.Seconds(),
		loadgen.Seconds(r.Latency, 0.5), loadgen.Seconds(r.Latency, 0.99), loadgen.Seconds(r.Latency, 0.999), loadgen.Seconds(r.Latency, 1),
		loadgen.Seconds(r.Lag, 0.99), r.Answers[loadgen.Failed], t.inexact())
	fmt.Fprintf(os.Stderr, "%d process(es): %d admitted, %d denied, %d failed\n",
		n, r.Answers[loadgen.Admitted], r.Answers[loadgen.Denied], r.Answers[loadgen.Failed])
	return nil
}

// exactLimit is the size of the exact limits: half of what is asked of each, at
// most 500.
func (o options) exactLimit() int {
	asked := int(float64(o.rate)*o.duration.Seconds()) / exactEvery / len(exact)
	return min(max(asked/2, 1), 500)
}

// config is the servers' configuration. A store that fails must not look like an
// admission.
func (o options) config() string {
	var b strings.Builder
	b.WriteString("on_store_failure: closed\n" +
		"defaults:\n  token_bucket: {capacity: 100, refill: 10/s}\npolicies:\n")
	for _, e := range exact {
		fmt.Fprintf(&b, "  %s:\n    - {algorithm: %s, %s: %d, %s}\n", e.policy, e.algorithm, e.size, o.exactLimit(), e.pace)
	}
	return b.String()
}

// ordinary is the path of request i when all are ordinary. The keys are visited in
// a scattered order, each about equally often.
func (o options) ordinary(i int) string {
	const stride = 7919 // a prime, so that no client is left out unless it divides their number
	return fmt.Sprintf("/api/v1/rate-limit/check?key=user:%d&algorithm=TOKEN_BUCKET", i*stride%o.clients)
}

// mixed is the path of request i of a measurement.
func (o options) mixed(i int) string {
	if e, ok := exactOf(i); ok {
		return "/api/v1/rate-limit/check?key=shared&policy=" + exact[e].policy
	}
	return o.ordinary(i)
}

// exactOf says under which exact limit request i falls, if any. Requests go to the
// processes in turn; the exact ones drift over them by one per round of the five.
func exactOf(i int) (int, bool) {
	block := i / exactEvery
	if i%exactEvery != block/len(exact)%exactEvery {
		return 0, false
	}
	return block % len(exact), true
}

// A tally is what was admitted under each exact limit.
type tally struct {
	limit    int64
	admitted [5]atomic.Int64 // as many as exact has
}

// ask returns the question of the load generator.
func (t *tally) ask(
	clients []*fasthttp.HostClient,
	path func(i int) string,
) func(context.Context, int, int) loadgen.Answer {
	return func(_ context.Context, _, i int) loadgen.Answer {
		status := 0
		_ = get(clients[i%len(clients)], path(i), func(r *fasthttp.Response) { status = r.StatusCode() })
		return t.note(i, status)
	}
}

// note notes the status of the answer to request i; 0 and all others but 200 and 429 are failures.
func (t *tally) note(i, status int) loadgen.Answer {
	switch status {
	case 200:
		if e, ok := exactOf(i); ok {
			t.admitted[e].Add(1)
		}
		return loadgen.Admitted
	case 429:
		return loadgen.Denied
	default:
		return loadgen.Failed
	}
}

// inexact is by how many permits the exact limits were missed, in all.
func (t *tally) inexact() (missed int64) {
	for e := range t.admitted {
		n := t.admitted[e].Load()
		missed += max(n-t.limit, t.limit-n)
	}
	return missed
}
