// Command exact proves the store in Redis exact under load: eight processes, which are
// this program again, hammer one client and then a thousand on one redis-server that it
// starts. Every answer that any of them got is held against the exact model afterwards.
// It prints a table, and ends with status 1 when one answer was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/proc"
)

// childMode as the first argument makes the program one of the processes; the second
// is then where Redis listens.
const childMode = "child"

func main() {
	cli.Main("exact", func(ctx context.Context, args []string) error {
		if len(args) == 2 && args[0] == childMode {
			return child(ctx, args[1], os.Stdin, os.Stdout)
		}
		o, err := parseOptions(args, os.Stderr)
		if err != nil {
			return err
		}
		return hammerAll(ctx, os.Stdout, os.Stderr, o)
	})
}

type options struct {
	algorithms []stint.Algorithm
	processes  int
	part       // of which Algorithm is not set, and Keys is that of the part with many
}

func parseOptions(args []string, output io.Writer) (options, error) {
	o := options{algorithms: []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowCounter}}
	flags := flag.NewFlagSet("exact", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.Func("algorithms", "comma-separated, or all (default three)", func(text string) error {
		if o.algorithms = nil; text == "all" {
			o.algorithms = stint.Algorithms()
			return nil
		}
		for _, name := range strings.Split(text, ",") {
			a, err := stint.ParseAlgorithm(name)
			if err != nil {
				return err
			}
			o.algorithms = append(o.algorithms, a)
		}
		return nil
	})
	cli.Number(flags, &o.processes, "processes", 8, 1, 64, "how many processes ask")
	cli.Number(flags, &o.Callers, "callers", 4, 1, 1024, "goroutines of each that ask")
	cli.Number(flags, &o.Keys, "keys", 1000, 1, 100_000, "clients of the part with many; the other part has one")
	cli.Number(
		flags, &o.Duration, "duration", time.Minute, time.Millisecond, time.Hour,
		"length of each part, of which there are two for an algorithm",
	)
	cli.Number(
		flags, &o.Ops, "ops", 0, 0, 1_000_000, "decisions of each process in each part, instead of a duration; 0 for none",
	)
	return o, cli.Parse(flags, args)
}

// A part is what all processes do at once.
type part struct {
	Algorithm stint.Algorithm
	Keys      int
	Callers   int
	Duration  time.Duration
	Ops       int // of each process, instead of a duration; 0 for none
}

// policy has a limit that is so small that what is asked for exceeds it all the time,
// and so quick that there is always something new to admit. Each part has states of its
// own.
func (p part) policy() (*stint.Policy, error) {
	l := stint.Limit{Algorithm: p.Algorithm, Capacity: 100}
	every := 100 * time.Millisecond
	if p.Keys > 1 {
		l.Capacity, every = 5, 2*time.Second
	}
	if l.IsBucket() {
		l.Rate = stint.Per(l.Capacity, every)
	} else {
		l.Window = every
	}
	return stint.NewPolicy(fmt.Sprintf("%s-%d", p.Algorithm, p.Keys), l)
}

// hammerAll runs every part, for each algorithm one with one client and one with many,
// and prints the table to w, and what is wrong to log.
func hammerAll(ctx context.Context, w, log io.Writer, o options) (err error) {
	redis, err := proc.StartRedis(ctx, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	fmt.Fprintf(w, "%-22s %6s %11s %11s %11s %9s %9s  %s\n",
		"algorithm", "keys", "decisions/s", "decisions", "from memory", "admitted", "model", "verdict")
	wrong := 0
	for _, algorithm := range o.algorithms {
		for _, keys := range []int{1, o.Keys} {
			p := o.part
			p.Algorithm, p.Keys = algorithm, keys
			t, err := hammer(ctx, o.processes, redis.Addr, p)
			if err != nil {
				return fmt.Errorf("%s, %d keys: %w", p.Algorithm, p.Keys, err)
			}
			t.report(w, log, p)
			wrong += len(t.faults)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d answers or sums are wrong", wrong)
	}
	return nil
}

// report writes the line of the table, and to log what is wrong.
func (t *total) report(w, log io.Writer, p part) {
	verdict := "exact"
	if len(t.faults) > 0 {
		verdict = fmt.Sprintf("WRONG: %d", len(t.faults))
	}
	fmt.Fprintf(w, "%-22s %6d %11.0f %11d %11d %9d %9d  %s\n", p.Algorithm, p.Keys,
		float64(t.decisions)/t.elapsed.Seconds(), t.decisions, t.remembered, t.admitted, t.model, verdict)
	cli.PrintFaults(log, fmt.Sprintf("%s, %d keys", p.Algorithm, p.Keys), t.faults, 10)
}
