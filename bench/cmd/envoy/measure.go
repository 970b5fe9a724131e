package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/bench/internal/rawgrpc"
)

// How many ask at once before anything counts, and where calls are offered at a rate.
const (
	warmCallers    = 64
	offeredCallers = 512
)

// A caller asks one server over several connections.
type caller struct {
	connections []*rawgrpc.Conn
	calls       []*rawgrpc.Call // of each that asks
	requests    [][]byte
}

func dial(ctx context.Context, target string, o options) (*caller, error) {
	c := &caller{}
	for range o.connections {
		conn, err := rawgrpc.Dial(ctx, target, pb.RateLimitService_ShouldRateLimit_FullMethodName)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.connections = append(c.connections, conn)
	}
	for range max(warmCallers, offeredCallers, slices.Max(o.inFlight)) {
		c.calls = append(c.calls, rawgrpc.NewCall())
	}
	for key := range o.keys {
		message, err := proto.Marshal(request(key))
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.requests = append(c.requests, message)
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
	answer, err := c.connections[caller%len(c.connections)].Invoke(ctx, c.calls[caller], c.requests[key])
	switch {
	case err != nil:
		return loadgen.Failed
	case !admits(answer):
		return loadgen.Denied
	default:
		return loadgen.Admitted
	}
}

// admits reports whether an answer is OK, with the status of one descriptor.
func admits(answer []byte) bool {
	const overallCode, statuses = 1, 2 // the fields' numbers
	ok, found := false, 0
	for len(answer) > 0 {
		field, kind, n := protowire.ConsumeTag(answer)
		if n < 0 {
			return false
		}
		value := answer[n:]
		size := protowire.ConsumeFieldValue(field, kind, value)
		if size < 0 {
			return false
		}
		switch field {
		case overallCode:
			code, _ := protowire.ConsumeVarint(value)
			ok = code == uint64(pb.RateLimitResponse_OK)
		case statuses:
			found++
		default: // not looked at
		}
		answer = value[size:]
	}
	return ok && found == 1
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
		c, err := dial(ctx, e.target, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		callers[e.name] = c
		// Every client is known, and every server warm, before anything counts.
		warm := loadgen.Plan{Callers: warmCallers, Questions: 2 * o.keys, Ask: c.ask}
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
	plan := loadgen.Plan{Callers: offeredCallers, Rate: o.rate, Duration: o.duration}
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
