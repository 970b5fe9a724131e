// Command service compares the requests per second of "stint serve" on the memory
// store with those of a bare net/http handler that writes the same bytes, both
// driven by wrk, by turns. It prints benchstat's format.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/stint-go/stint/bench/internal/answer"
	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/bench/internal/wrk"
)

// path is the check that wrk repeats.
const path = "/api/v1/rate-limit/check?key=user:42&algorithm=TOKEN_BUCKET"

// A scenario is a configuration under which every answer is the same.
type scenario struct {
	name   string
	status int
	bucket string // the default token bucket
}

var scenarios = []scenario{
	{"admitted", 200, "{capacity: 1000000000, refill: 1000000000/1s}"},
	{"denied", 429, "{capacity: 1, refill: 1/24h}"},
}

type options struct {
	stint, bare string
	rounds      int
	load        wrk.Load
}

func main() {
	var o options
	flag.StringVar(&o.stint, "stint", "results/bin/stint", "the stint binary")
	flag.StringVar(&o.bare, "bare", "results/bin/bare", "the binary of the bare handler")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each of the two is measured")
	flag.DurationVar(&o.load.Duration, "duration", 5*time.Second, "length of one measurement, whole seconds")
	flag.IntVar(&o.load.Connections, "connections", 64, "connections of wrk")
	flag.IntVar(&o.load.Threads, "threads", 2, "threads of wrk")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1) //nolint:gocritic // nothing left to undo
	}
}

func run(ctx context.Context, o options) error {
	if o.rounds < 1 || o.load.Duration < time.Second {
		return fmt.Errorf("rounds is %d and duration is %v; allowed: 1 or more and 1s or more", o.rounds, o.load.Duration)
	}
	for _, s := range scenarios {
		if err := compare(ctx, o, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func compare(ctx context.Context, o options, s scenario) (err error) {
	dir, err := os.MkdirTemp("", "stint-bench-service-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	config := filepath.Join(dir, "stint.yaml")
	text := "defaults:\n  token_bucket: " + s.bucket + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	service, err := proc.StartServer(ctx, o.stint, "serve", "--listen", "127.0.0.1:0", "--store", "memory://", "--config", config)
	if err != nil {
		return err
	}
	defer stopping(service, &err)
	if _, err := answer.Fetch(ctx, service.Addr, path); err != nil { // spends the single permit
		return err
	}
	bare, err := proc.StartServer(ctx, o.bare, "-listen", "127.0.0.1:0", "-like", "http://"+service.Addr+path)
	if err != nil {
		return err
	}
	defer stopping(bare, &err)
	if err := sameBytes(ctx, service.Addr, bare.Addr, s.status); err != nil {
		return err
	}
	addrs := map[string]string{"bare": bare.Addr, "stint": service.Addr}
	order := []string{"bare", "stint"}
	for range o.rounds {
		for _, impl := range order {
			m, err := o.load.Run(ctx, "http://"+addrs[impl]+path)
			if err != nil {
				return err
			}
			if refused := m.Refused; (s.status == 429) != (refused == m.Requests) || (s.status == 200) != (refused == 0) {
				return fmt.Errorf("%s: %d of %d answers were not 2xx, want status %d only", impl, refused, m.Requests, s.status)
			}
			fmt.Fprintf(os.Stdout, "BenchmarkService/impl=%s/path=%s-%d %d %.0f ns/op %.0f req/s\n",
				impl, s.name, runtime.GOMAXPROCS(0), m.Requests, 1e9/m.Rate, m.Rate)
		}
		order[0], order[1] = order[1], order[0] // neither always goes first
	}
	return nil
}

func stopping(p *proc.Process, err *error) {
	if stopErr := p.Stop(); *err == nil {
		*err = stopErr
	}
}

func sameBytes(ctx context.Context, service, bare string, status int) error {
	a, err := answer.Fetch(ctx, service, path)
	if err != nil {
		return err
	}
	b, err := answer.Fetch(ctx, bare, path)
	if err != nil {
		return err
	}
	if a.Status != status {
		return fmt.Errorf("stint answered %d, want %d: %s", a.Status, status, a.Body)
	}
	if err := answer.SameShape(a, b); err != nil {
		return fmt.Errorf("stint and bare do not write the same: %w", err)
	}
	return nil
}
