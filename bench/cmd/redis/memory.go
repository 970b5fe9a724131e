package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

// memoryLoad is what -only calls the measurements of memory.
const memoryLoad = "memory"

const (
	logEntries = 1000
	logClients = 200
)

// measureMemory prints how many bytes Redis uses per client and per entry of a log.
func measureMemory(ctx context.Context, w io.Writer, empty *server, o options) error {
	for _, m := range []struct {
		impl, state string
		measure     func(context.Context, *server, options) (float64, error)
		unit        string
	}{
		{redislimit.Stint, fmt.Sprintf("state=token_bucket/generations=1/clients=%d", o.clients), stintWithin, "B/client"},
		{redislimit.Stint, fmt.Sprintf("state=token_bucket/generations=2/clients=%d", o.clients), stintAcross, "B/client"},
		{redislimit.RedisRate, fmt.Sprintf("state=token_bucket/generations=1/clients=%d", o.clients), redisRateClients, "B/client"},
		{redislimit.Stint, fmt.Sprintf("state=sliding_log/entries=%d/window=1m", logEntries), logWithin(time.Minute), "B/entry"},
		{redislimit.Stint, fmt.Sprintf("state=sliding_log/entries=%d/window=1h", logEntries), logWithin(time.Hour), "B/entry"},
	} {
		if !o.only.impl(m.impl) {
			continue
		}
		start := time.Now()
		bytes, err := m.measure(ctx, empty, o)
		if err != nil {
			return fmt.Errorf("memory of %s, %s: %w", m.impl, m.state, err)
		}
		fmt.Fprintf(w, "BenchmarkRedisMemory/%s/impl=%s-%d 1 %d ns/op %.2f %s\n", m.state, m.impl, processors(), time.Since(start).Nanoseconds(), bytes, m.unit)
	}
	return empty.flush(ctx)
}

// perDay is a quota whose buckets outlive the filling.
var perDay = redislimit.Quota{Permits: 100, Refill: 100, Period: 24 * time.Hour}

// bucketPerDay is the same as a limit of stint's, with its default debt.
func bucketPerDay() stint.Limit {
	return stint.TokenBucket(perDay.Permits, stint.Per(perDay.Refill, perDay.Period))
}

// turnAfter is how long after the first write to a generation another one is begun: at
// least the longest life of a bucket, with its debt, and less than two of that.
const turnAfter = 3 * 24 * time.Hour

// clock is what a store's decisions go by while its memory is measured.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(time.Now().UnixMicro())
	return c
}

func (c *clock) Now() stint.Instant      { return stint.Instant(c.now.Load()) }
func (c *clock) advance(d time.Duration) { c.now.Add(d.Microseconds()) }

func stintWithin(ctx context.Context, server *server, o options) (float64, error) {
	c := newClock()
	return perClient(ctx, server, o, limitSubject(c, bucketPerDay()), nil)
}

// stintAcross writes every client in one generation and again in the next, while both
// are kept.
func stintAcross(ctx context.Context, server *server, o options) (float64, error) {
	c := newClock()
	return perClient(ctx, server, o, limitSubject(c, bucketPerDay()), func() { c.advance(turnAfter) })
}

func redisRateClients(ctx context.Context, server *server, o options) (float64, error) {
	for _, c := range redislimit.Contenders() {
		if c.Name == redislimit.RedisRate {
			return perClient(ctx, server, o, func(ctx context.Context, options redislimit.Options) (*redislimit.Subject, error) {
				return c.Make(ctx, options, []redislimit.Quota{perDay})
			}, nil)
		}
	}
	return 0, fmt.Errorf("no implementation is called %s", redislimit.RedisRate)
}

type makeSubject func(ctx context.Context, o redislimit.Options) (*redislimit.Subject, error)

func limitSubject(c *clock, limit stint.Limit) makeSubject {
	return func(ctx context.Context, o redislimit.Options) (*redislimit.Subject, error) {
		o.Now = c.Now
		return redislimit.NewStintOf(ctx, o, []stint.Limit{limit})
	}
}

// perClient lets every client take a permit; and again after next, if that is given.
func perClient(ctx context.Context, server *server, o options, newSubject makeSubject, next func()) (float64, error) {
	clients := make([]string, o.clients)
	for i := range clients {
		clients[i] = name(1, i)
	}
	return growth(ctx, server, newSubject, len(clients), func(s *redislimit.Subject) error {
		if err := s.Fill(ctx, 0, clients); err != nil {
			return err
		}
		if next != nil {
			next()
			if err := s.Fill(ctx, 0, clients); err != nil {
				return err
			}
		}
		// What is dropped costs no memory.
		for i := 0; i < len(clients); i += max(len(clients)/probes, 1) {
			a, err := s.TakeOne(ctx, 0, clients[i])
			if err != nil {
				return err
			}
			if want := perDay.Permits - 2; !a.Allowed || a.Remaining != want {
				return fmt.Errorf("%s has %d permits left, want %d", clients[i], a.Remaining, want)
			}
		}
		return nil
	})
}

// logWithin fills logs to the last entry, spread over the window.
func logWithin(window time.Duration) func(context.Context, *server, options) (float64, error) {
	return func(ctx context.Context, server *server, o options) (float64, error) {
		c := newClock()
		clients := make([]string, min(o.clients, logClients))
		for i := range clients {
			clients[i] = name(1, i)
		}
		newSubject := limitSubject(c, stint.SlidingWindowLog(logEntries, window))
		return growth(ctx, server, newSubject, len(clients)*logEntries, func(s *redislimit.Subject) error {
			for range logEntries {
				c.advance(window / logEntries)
				if err := s.Fill(ctx, 0, clients); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// growth is by how many bytes Redis grew per piece.
func growth(ctx context.Context, server *server, newSubject makeSubject, pieces int, fill func(*redislimit.Subject) error) (float64, error) {
	if err := server.flush(ctx); err != nil {
		return 0, err
	}
	before, err := server.memory(ctx)
	if err != nil {
		return 0, err
	}
	subject, err := newSubject(ctx, redislimit.Options{Addrs: []string{server.addr}, Callers: 1})
	if err != nil {
		return 0, err
	}
	err = fill(subject)
	if closeErr := subject.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, err
	}
	after, err := server.memory(ctx)
	return float64(after-before) / float64(pieces), err
}
