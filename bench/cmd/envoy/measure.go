package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/proc"
)

// A caller asks one server over several connections.
type caller struct {
	connections []*grpc.ClientConn
	clients     []pb.RateLimitServiceClient
	requests    []*pb.RateLimitRequest
}

func dial(target string, o options) (*caller, error) {
	c := &caller{}
	for range o.connections {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.connections = append(c.connections, conn)
		c.clients = append(c.clients, pb.NewRateLimitServiceClient(conn))
	}
	for key := range o.keys {
		c.requests = append(c.requests, request(key))
	}
	return c, nil
}

func (c *caller) close() (err error) {
	for _, conn := range c.connections {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// ask asks for one client after another, each caller in its own order.
func (c *caller) ask(ctx context.Context, caller, i int) loadgen.Answer {
	key := (caller*7919 + i*104_729) % len(c.requests)
	response, err := c.clients[caller%len(c.clients)].ShouldRateLimit(ctx, c.requests[key])
	switch {
	case err != nil:
		return loadgen.Failed
	case response.OverallCode != pb.RateLimitResponse_OK || len(response.Statuses) != 1:
		return loadgen.Denied
	default:
		return loadgen.Admitted
	}
}

// measure compares the servers on a store.
func measure(ctx context.Context, o options, store string) (err error) {
	entrants, stop, err := start(ctx, o, store)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	callers := map[string]*caller{}
	for _, e := range entrants {
		c, err := dial(e.target, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		callers[e.name] = c
		// Every client is known, and every server warm, before anything counts.
		warm := loadgen.Plan{Callers: 64, Questions: 2 * o.keys, Ask: c.ask}
		if _, err := loadgen.Run(ctx, warm); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	for _, inFlight := range o.inFlight {
		load := fmt.Sprintf("store=%s/in_flight=%d", store, inFlight)
		if err := race(ctx, o, entrants, callers, loadgen.Plan{Callers: inFlight, Duration: o.duration}, load); err != nil {
			return err
		}
	}
	if store == "memory" {
		return nil
	}
	plan := loadgen.Plan{Callers: 512, Rate: o.rate, Duration: o.duration}
	return race(ctx, o, entrants, callers, plan, fmt.Sprintf("store=%s/offered=%d", store, o.rate))
}

// race has all servers asked by turns.
func race(ctx context.Context, o options, entrants []entrant, callers map[string]*caller, plan loadgen.Plan, load string) error {
	rates, used, late := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for range o.rounds {
		for _, e := range entrants {
			plan.Ask = callers[e.name].ask
			before := proc.CPUTime([]int{e.server.ID()})
			result, err := loadgen.Run(ctx, plan)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			if bad := result.Answers[loadgen.Failed] + result.Answers[loadgen.Denied]; bad > 0 {
				return fmt.Errorf("%s: %d of %d answers are not what they have to be", e.name, bad, result.Count())
			}
			n := float64(result.Count())
			cpu := float64(proc.CPUTime([]int{e.server.ID()})-before) / n
			rate := n / result.Elapsed.Seconds()
			p99 := loadgen.Seconds(result.Latency, 0.99)
			rates[e.name], used[e.name] = append(rates[e.name], rate), append(used[e.name], cpu)
			late[e.name] = append(late[e.name], p99)
			fmt.Printf("BenchmarkEnvoy/%s/impl=%s 1 %.0f req/s %.0f cpu-ns/op %.0f p99-ns\n", load, e.name, rate, cpu, p99*1e9)
		}
	}
	for _, e := range entrants {
		fmt.Fprintf(os.Stderr, "%-30s %-19s %7.0f/s = %.2f of bare, %5.1f us of processor = %.2f of bare, p99 %v\n",
			load, e.name, median(rates[e.name]), median(rates[e.name])/median(rates["bare"]), median(used[e.name])/1e3,
			median(used[e.name])/median(used["bare"]), time.Duration(median(late[e.name])*1e9).Round(10*time.Microsecond))
	}
	return nil
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
