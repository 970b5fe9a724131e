// Command redis measures stint's store in Redis against other limiters that keep their
// state there and against bare counters, on servers that it starts: one, a cluster, or
// one behind a slow network. It prints in benchstat's format how many decisions per
// second callers in a closed loop get, also per second of Redis's CPU, the quantiles of
// their latency, and whether what was admitted was right; and how many bytes Redis uses
// per client.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"time"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/loadgen"
	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

func main() {
	cli.Main("redis", func(ctx context.Context, args []string) error {
		if len(args) > 0 && args[0] == relayMode {
			return relay(ctx, args[1:])
		}
		o, err := parseOptions(args, os.Stderr)
		if err != nil {
			return err
		}
		b := &bench{options: o, w: os.Stdout, log: os.Stderr}
		// Redis gets one processor and this process another, where there are two and a way to.
		if cpus := proc.CPUs(); len(cpus) < 2 {
			fmt.Fprintln(os.Stderr, "Redis and its clients share all processors, since they are", cpus)
		} else if err := proc.Pin(ctx, cpus[1]); err != nil {
			fmt.Fprintln(os.Stderr, "Redis and its clients share all processors:", err)
		} else {
			b.cpus = cpus[:2]
			runtime.GOMAXPROCS(1)
		}
		return b.run(ctx)
	})
}

type options struct {
	rounds    int
	duration  time.Duration
	warmUp    time.Duration
	ops       int
	callers   []int
	keys      int
	clients   int
	primaries []int
	delays    []time.Duration
	only      regexp.Regexp
	calm      float64
	strict    bool
}

func parseOptions(args []string, output io.Writer) (o options, err error) {
	// It keeps a cell within what the generous quotas hold, and the flood of a denied client
	// within the minute.
	const maxDuration = 10 * time.Second
	const addresses = 1 << 24 // as many as there are
	flags := flag.NewFlagSet("redis", flag.ContinueOnError)
	flags.SetOutput(output)
	cli.Number(flags, &o.rounds, "rounds", 5, 1, 1000, "how often everything is measured, by turns")
	cli.Number(flags, &o.duration, "duration", time.Second, time.Millisecond, maxDuration, "length of one measurement")
	cli.Number(flags, &o.warmUp, "warm-up", 200*time.Millisecond, 0, maxDuration, "length of the run before it")
	cli.Number(
		flags, &o.ops, "ops", 0, 0, 1_000_000,
		"decisions per measurement, instead of a duration, whose figures say nothing; 0 for none",
	)
	cli.Numbers(flags, &o.callers, "callers", []int{1, 64, 512}, 1, 4096, "numbers of goroutines that ask")
	cli.Number(flags, &o.keys, "keys", 100_000, 2, addresses, "clients where there are many")
	cli.Number(flags, &o.clients, "clients", 1_000_000, 1, addresses, "clients whose memory is measured")
	cli.Numbers(flags, &o.primaries, "primaries", nil, 1, 16, "numbers of a cluster's primaries, instead of one server")
	cli.Numbers(
		flags, &o.delays, "delays", nil, 0, time.Second, "times that the network adds to a round trip to one server",
	)
	flags.TextVar(
		&o.only, "only", regexp.MustCompile(""),
		"what to measure, a regular expression for names such as load=hot/callers=64/impl=stint; default all",
	)
	cli.Number(
		flags, &o.calm, "calm", 5, 0, 1000,
		"a measurement during which other programs used more percent of a processor is made again, at most twice",
	)
	flags.BoolVar(&o.strict, "strict", false, "end with status 1 when something was admitted wrongly")
	return o, cli.Parse(flags, args)
}

// A bench is the measurements of one run.
type bench struct {
	options
	w, log io.Writer
	cpus   []int // the first is Redis's and the second ours; none if all is everybody's

	measured, wrong int // measurements, and those that found something wrong
}

// run measures everything selected, at every deployment.
func (b *bench) run(ctx context.Context) error {
	for round := range b.rounds {
		start := time.Now()
		for _, p := range b.topologies() {
			deployment, err := b.open(ctx, p)
			if err != nil {
				return err
			}
			err = b.measureDeployment(ctx, deployment)
			if err == nil && p == (topology{}) && round == b.rounds-1 {
				err = b.measureMemory(ctx, deployment)
			}
			if err := errors.Join(err, deployment.close()); err != nil {
				return fmt.Errorf("%s: %w", p, err)
			}
		}
		fmt.Fprintf(b.log, "round %d of %d done in %v\n", round+1, b.rounds, time.Since(start).Round(time.Second))
	}
	if b.measured == 0 {
		return fmt.Errorf(
			"only is %q; allowed: what matches something, such as load=hot/callers=64/impl=stint",
			b.only.String(),
		)
	}
	if b.wrong > 0 && b.strict {
		return fmt.Errorf("%d measurements have admitted wrongly", b.wrong)
	}
	return nil
}

// measureDeployment measures every load with all implementations by turns, each with every
// number of callers.
func (b *bench) measureDeployment(ctx context.Context, deployment *deployment) error {
	for _, l := range loads() {
		drawn := map[int]*traffic{}
		for _, c := range redislimit.Contenders() {
			if !l.has(c) {
				continue
			}
			if err := b.measureContender(ctx, deployment, &l, c, drawn); err != nil {
				return fmt.Errorf("load %s, %s: %w", l.name, c.Name, err)
			}
		}
	}
	return nil
}

func (b *bench) measureContender(
	ctx context.Context,
	deployment *deployment,
	l *load,
	c redislimit.Contender,
	drawn map[int]*traffic,
) (err error) {
	var s *session
	defer func() {
		if s != nil {
			err = errors.Join(err, s.subject.Close())
		}
	}()
	for _, n := range b.callers {
		if !b.only.MatchString(fmt.Sprintf("load=%s/callers=%d/impl=%s", l.name, n, c.Name)) {
			continue
		}
		t := drawn[n]
		if t == nil {
			t = newTraffic(l, b.keys, n)
			drawn[n] = t
		}
		if s != nil && l.fresh {
			if err := s.subject.Close(); err != nil {
				return err
			}
			s = nil
		}
		if s == nil {
			if s, err = newSession(ctx, deployment, l, c, t.names, b.callers); err != nil {
				return err
			}
		}
		runtime.GC() // the garbage of the contender before costs nothing here
		m, err := s.measure(ctx, t, b.options)
		if err != nil {
			return fmt.Errorf("%d callers: %w", n, err)
		}
		b.report(s, n, m)
	}
	return nil
}

// report writes the line for benchstat, and to the log what was wrong.
func (b *bench) report(s *session, callers int, m measurement) {
	r := m.result
	seconds := r.Elapsed.Seconds()
	fmt.Fprintf(b.w, "Benchmark%s/load=%s/callers=%d/impl=%s/check=%s-%d %d %.1f ns/op %.0f decisions/s %.9f p50-sec %.9f p99-sec %d admitted %d errors %.1f commands/s %.0f others-%%",
		s.deployment.topology, s.load.name, callers, s.contender.Name, s.load.check.name(s.contender), runtime.GOMAXPROCS(0), r.Count(),
		seconds*1e9/float64(max(r.Count(), 1)), float64(r.Count())/seconds, loadgen.Seconds(r.Latency, 0.5), loadgen.Seconds(r.Latency, 0.99),
		r.Answers[loadgen.Admitted], r.Answers[loadgen.Failed], m.commands, m.others)
	if m.cpu > 0 {
		fmt.Fprintf(b.w, " %.0f decisions/cpu-s", float64(r.Count())/m.cpu.Seconds())
	}
	fmt.Fprintf(b.w, " %d wrong\n", len(m.faults))
	b.measured++
	if len(m.faults) > 0 {
		b.wrong++
	}
	cli.PrintFaults(
		b.log, fmt.Sprintf("%s, %s, load %s, %d callers", s.deployment.topology, s.contender.Name, s.load.name, callers),
		m.faults, 3,
	)
}
