package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

const (
	logEntries = 1000
	logClients = 200
)

// perDay is a quota whose buckets outlive the filling.
var perDay = redislimit.Quota{Permits: 100, Refill: 100, Period: 24 * time.Hour}

// turnAfter is how long after the first write to a generation another one is begun: at
// least the longest life of a bucket, with its debt, and less than two of that.
const turnAfter = 3 * 24 * time.Hour

// measureMemory prints how many bytes Redis uses per client and per entry of a log.
func (b *bench) measureMemory(ctx context.Context, deployment *deployment) error {
	bucket := stint.TokenBucket(perDay.Permits, stint.Per(perDay.Refill, perDay.Period))
	buckets := func(generations int) string {
		return fmt.Sprintf("state=token_bucket/generations=%d/clients=%d", generations, b.clients)
	}
	logs := func(window string) string {
		return fmt.Sprintf("state=sliding_log/entries=%d/window=%s", logEntries, window)
	}
	other := func(algorithm string) string { return fmt.Sprintf("state=%s/clients=%d", algorithm, b.clients) }
	few := min(b.clients, logClients)
	for _, m := range []struct {
		impl, state, unit string
		limit             stint.Limit // of stint
		clients, fills    int
		pause             time.Duration // between the fills
	}{
		{redislimit.Stint, buckets(1), "B/client", bucket, b.clients, 1, 0},
		// Every client is written in one generation and again in the next, while both are kept.
		{redislimit.Stint, buckets(2), "B/client", bucket, b.clients, 2, turnAfter},
		{redislimit.RedisRate, buckets(1), "B/client", bucket, b.clients, 1, 0},
		// The other algorithms whose state has one size.
		{redislimit.Stint, other("leaky_bucket"), "B/client", stint.LeakyBucket(perDay.Permits, stint.Per(perDay.Refill, perDay.Period)), b.clients, 1, 0},
		{redislimit.Stint, other("fixed_window"), "B/client", stint.FixedWindow(perDay.Permits, perDay.Period), b.clients, 1, 0},
		{redislimit.Stint, other("sliding_window_counter"), "B/client", stint.SlidingWindowCounter(perDay.Permits, perDay.Period), b.clients, 1, 0},
		// Logs are filled to the last entry, spread over the window.
		{redislimit.Stint, logs("1m"), "B/entry", stint.SlidingWindowLog(logEntries, time.Minute), few, logEntries, time.Minute / logEntries},
		{redislimit.Stint, logs("1h"), "B/entry", stint.SlidingWindowLog(logEntries, time.Hour), few, logEntries, time.Hour / logEntries},
	} {
		if !b.only.MatchString("load=memory/" + m.state + "/impl=" + m.impl) {
			continue
		}
		start := time.Now()
		var now atomic.Int64 // what the store's decisions go by
		now.Store(start.UnixMicro())
		newSubject := func(o redislimit.Options) (*redislimit.Subject, error) {
			if m.impl == redislimit.RedisRate {
				return redislimit.NewRedisRate(ctx, o, []redislimit.Quota{perDay})
			}
			o.Now = func() stint.Instant { return stint.Instant(now.Load()) }
			return redislimit.NewStintOf(ctx, o, []stint.Limit{m.limit})
		}
		bytes, err := growth(ctx, deployment, newSubject, func(s *redislimit.Subject) error {
			clients := make([]string, m.clients)
			for i := range clients {
				clients[i] = name(1, i)
			}
			for i := range m.fills {
				now.Add(min(int64(i), 1) * m.pause.Microseconds())
				if err := s.Fill(ctx, 0, clients); err != nil {
					return err
				}
			}
			if m.limit.Capacity != perDay.Permits {
				return nil
			}
			// What is dropped costs no memory.
			for i := 0; i < len(clients); i += max(len(clients)/probes, 1) {
				if a, err := s.TakeOne(ctx, 0, clients[i]); err != nil {
					return err
				} else if want := perDay.Permits - 2; !a.Allowed || a.Remaining != want {
					return fmt.Errorf("%s has %d permits left, want %d", clients[i], a.Remaining, want)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("memory of %s, %s: %w", m.impl, m.state, err)
		}
		pieces := m.clients
		if m.unit == "B/entry" {
			pieces *= logEntries
		}
		fmt.Fprintf(b.w, "BenchmarkRedisMemory/%s/impl=%s-%d 1 %d ns/op %.2f %s\n",
			m.state, m.impl, runtime.GOMAXPROCS(0), time.Since(start).Nanoseconds(), float64(bytes)/float64(pieces), m.unit)
		b.measured++
	}
	return deployment.flush(ctx)
}

// growth is by how many bytes an empty Redis grew.
func growth(
	ctx context.Context,
	deployment *deployment,
	newSubject func(redislimit.Options) (*redislimit.Subject, error),
	fill func(*redislimit.Subject) error,
) (int64, error) {
	if err := deployment.flush(ctx); err != nil {
		return 0, err
	}
	before, err := deployment.memory(ctx)
	if err != nil {
		return 0, err
	}
	subject, err := newSubject(redislimit.Options{Addrs: deployment.addrs, Callers: 1})
	if err != nil {
		return 0, err
	}
	if err := errors.Join(fill(subject), subject.Close()); err != nil {
		return 0, err
	}
	after, err := deployment.memory(ctx)
	return after - before, err
}
