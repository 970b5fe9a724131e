// Command redis measures stint's store in Redis against other limiters that keep their
// state there and against bare counters, on one redis-server that it starts. It prints
// in benchstat's format how many decisions per second callers in a closed loop get, the
// quantiles of their latency, and whether what was admitted was right; and how many
// bytes Redis uses per client.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

func main() {
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = startAndMeasure(ctx, o)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
}

// startAndMeasure gives Redis one processor and this process another, where there are
// two and a way to.
func startAndMeasure(ctx context.Context, o options) (err error) {
	var redis *proc.Process
	cpus, err := proc.CPUs(ctx)
	if err == nil && len(cpus) < 2 {
		err = errors.New("there is one processor")
	}
	if err == nil {
		if redis, err = proc.StartRedis(ctx, cpus[0]); err != nil {
			return err
		}
		err = proc.Pin(ctx, cpus[1])
		runtime.GOMAXPROCS(1)
		o.watch = watch{cpus: cpus[:2], pids: []int{redis.ID(), os.Getpid()}}
	} else {
		fmt.Fprintln(os.Stderr, "Redis and its clients share all processors:", err)
		redis, err = proc.StartRedis(ctx, -1)
	}
	if redis != nil {
		defer func() { err = errors.Join(err, redis.Stop()) }()
	}
	if err != nil {
		return err
	}
	wrong, err := measureAll(ctx, os.Stdout, os.Stderr, redis.Addr, o)
	if err == nil && wrong > 0 && o.strict {
		err = fmt.Errorf("%d measurements have admitted wrongly", wrong)
	}
	return err
}

// measureAll prints everything selected to w, and says how many measurements found
// something wrong, which it describes to log.
func measureAll(ctx context.Context, w, log io.Writer, addr string, o options) (wrong int, err error) {
	server := connect(addr)
	defer func() { err = errors.Join(err, server.close()) }()
	for round := range o.rounds {
		start := time.Now()
		for _, l := range loads() {
			if !o.only.load(l.name) {
				continue
			}
			n, err := measureLoad(ctx, w, log, server, &l, o)
			if wrong += n; err != nil {
				return wrong, fmt.Errorf("load %s: %w", l.name, err)
			}
		}
		fmt.Fprintf(log, "round %d of %d done in %v\n", round+1, o.rounds, time.Since(start).Round(time.Second))
	}
	if o.only.load(memoryLoad) {
		return wrong, measureMemory(ctx, w, server, o)
	}
	return wrong, nil
}

// measureLoad measures all implementations by turns, each with every number of
// callers.
func measureLoad(ctx context.Context, w, log io.Writer, server *server, l *load, o options) (wrong int, err error) {
	callers := slices.DeleteFunc(slices.Clone(o.callers), func(n int) bool { return !o.only.callers(n) })
	if len(callers) == 0 {
		return 0, nil
	}
	var traffics []*traffic
	for _, n := range callers {
		traffics = append(traffics, newTraffic(l, o.keys, n))
	}
	for _, c := range redislimit.Contenders() {
		if !l.has(c) || !o.only.impl(c.Name) {
			continue
		}
		n, err := measureContender(ctx, w, log, server, l, c, traffics, o)
		if wrong += n; err != nil {
			return wrong, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return wrong, nil
}

func measureContender(
	ctx context.Context, w, log io.Writer, server *server, l *load, c redislimit.Contender, traffics []*traffic, o options,
) (wrong int, err error) {
	var s *session
	defer func() {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, t := range traffics {
		if s != nil && l.fresh {
			if err := s.close(); err != nil {
				return wrong, err
			}
			s = nil
		}
		if s == nil {
			if s, err = open(ctx, server, l, c, t.names, slices.Max(o.callers)); err != nil {
				return wrong, err
			}
		}
		runtime.GC() // nobody pays for the garbage of who came before
		m, err := s.measure(ctx, server, t, o)
		if err != nil {
			return wrong, fmt.Errorf("%d callers: %w", len(t.indexes), err)
		}
		report(w, log, l, c, len(t.indexes), m)
		if len(m.faults) > 0 {
			wrong++
		}
	}
	return wrong, nil
}

// report writes the line for benchstat, and to log what was wrong.
func report(w, log io.Writer, l *load, c redislimit.Contender, callers int, m measurement) {
	r := m.result
	seconds := r.Elapsed.Seconds()
	fmt.Fprintf(w, "BenchmarkRedis/load=%s/callers=%d/impl=%s/check=%s-%d %d %.1f ns/op %.0f decisions/s %.9f p50-sec %.9f p99-sec %d admitted %d errors %.1f commands/s %.0f others-%% %d wrong\n",
		l.name, callers, c.Name, l.check.name(c), processors(), r.Count(), seconds*1e9/float64(max(r.Count(), 1)), float64(r.Count())/seconds,
		loadgen.Seconds(r.Latency, 0.5), loadgen.Seconds(r.Latency, 0.99),
		r.Answers[loadgen.Admitted], r.Answers[loadgen.Failed], m.commands, m.others, len(m.faults))
	const most = 3
	for i, fault := range m.faults {
		if i == most {
			fmt.Fprintf(log, "and %d more\n", len(m.faults)-most)
			break
		}
		fmt.Fprintf(log, "WRONG: %s, load %s, %d callers: %s\n", c.Name, l.name, callers, fault)
	}
}

func processors() int { return runtime.GOMAXPROCS(0) }
