// Package load offers requests to HTTP servers at a fixed rate, whatever they
// answer and when: an open loop.
package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Plan is what to offer.
type Plan struct {
	// Targets are the servers' addresses, HOST:PORT. Request i goes to target i
	// modulo their number.
	Targets []string
	// Path returns the path and query of request i. It is called by several
	// goroutines.
	Path func(i int) string
	// Rate is the number of requests offered per second, of all targets together.
	Rate int
	// Requests is the number of requests offered in all.
	Requests int
	// Conns is the number of connections to each target, all kept alive. A
	// connection carries one request at a time, so Conns times the number of targets
	// bounds how many are under way; a request that finds none free is sent late,
	// and its latency counts from when it was due.
	Conns int
	// Timeout bounds one exchange, from sending on.
	Timeout time.Duration
}

// A Sample is one request and its answer.
type Sample struct {
	Status  int           // 0 when there was no answer
	Latency time.Duration // from when the request was due until its answer was read
	Lag     time.Duration // how much later than due it was sent
}

// Run offers the plan's requests and returns one sample for each, in order. It
// returns early, with an error, only when the plan is wrong, the context ends or
// a first connection cannot be made.
func Run(ctx context.Context, plan Plan) ([]Sample, error) {
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	samples := make([]Sample, plan.Requests)
	var clients []*client
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	for range plan.Conns {
		for _, target := range plan.Targets {
			c := &client{target: target, timeout: plan.Timeout}
			if err := c.dial(ctx); err != nil {
				return nil, err
			}
			clients = append(clients, c)
		}
	}
	next := make([]atomic.Int64, len(plan.Targets)) // the next request of each target
	start := time.Now().Add(10 * time.Millisecond)
	var workers sync.WaitGroup
	for w, c := range clients {
		target := w % len(plan.Targets)
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next[target].Add(1)-1)*len(plan.Targets) + target
				if i >= plan.Requests {
					return
				}
				path := plan.Path(i)
				due := start.Add(time.Duration(i) * time.Second / time.Duration(plan.Rate))
				time.Sleep(time.Until(due))
				lag := time.Since(due)
				status := c.get(ctx, path)
				samples[i] = Sample{Status: status, Latency: time.Since(due), Lag: lag}
			}
		})
	}
	workers.Wait()
	return samples, ctx.Err()
}

// Quantile is the q-quantile of what value takes from the samples: the least
// value that at least that share of them does not exceed. It is 0 of no samples.
func Quantile(samples []Sample, q float64, value func(Sample) time.Duration) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	values := make([]time.Duration, len(samples))
	for i, s := range samples {
		values[i] = value(s)
	}
	slices.Sort(values)
	rank := int(q * float64(len(values)))
	if float64(rank) < q*float64(len(values)) {
		rank++
	}
	return values[min(max(rank-1, 0), len(values)-1)]
}

// Validate reports the first thing wrong with the plan.
func (p Plan) Validate() error {
	switch {
	case len(p.Targets) == 0:
		return fmt.Errorf("targets is empty; allowed: at least one HOST:PORT")
	case p.Path == nil:
		return fmt.Errorf("path is nil; allowed: a function")
	case p.Rate < 1:
		return fmt.Errorf("rate is %d; allowed: 1 or more", p.Rate)
	case p.Requests < 1:
		return fmt.Errorf("requests is %d; allowed: 1 or more", p.Requests)
	case p.Conns < 1:
		return fmt.Errorf("conns is %d; allowed: 1 or more", p.Conns)
	case p.Timeout <= 0:
		return fmt.Errorf("timeout is %v; allowed: more than 0", p.Timeout)
	}
	return nil
}
