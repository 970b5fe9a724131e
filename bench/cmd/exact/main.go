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
	"os/signal"
	"syscall"

	"github.com/stint-go/stint/bench/internal/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "exact:", err)
		os.Exit(1)
	}
}

// childMode as the first argument makes the program one of the processes; the second
// is then where Redis listens.
const childMode = "child"

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == childMode {
		return child(ctx, args[1], os.Stdin, os.Stdout)
	}
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return err
	}
	return hammerAll(ctx, os.Stdout, os.Stderr, o)
}

// hammerAll runs every part and prints the table to w, and what is wrong to log.
func hammerAll(ctx context.Context, w, log io.Writer, o options) (err error) {
	redis, err := proc.StartRedis(ctx, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the children that are left when one has failed
	children, err := startAll(ctx, o.processes, redis.Addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%-22s %6s %11s %11s %11s %9s %9s  %s\n",
		"algorithm", "keys", "decisions/s", "decisions", "from memory", "admitted", "model", "verdict")
	wrong := 0
	for _, p := range o.parts() {
		t, err := hammer(children, p)
		if err != nil {
			return fmt.Errorf("%s, %d keys: %w", p.Algorithm, p.Keys, err)
		}
		t.report(w, log, p)
		wrong += len(t.faults)
	}
	if err := stopAll(children); err != nil {
		return err
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
	const most = 10
	for i, fault := range t.faults {
		if i == most {
			fmt.Fprintf(log, "and %d more\n", len(t.faults)-most)
			break
		}
		fmt.Fprintf(log, "WRONG: %s, %d keys, %s\n", p.Algorithm, p.Keys, fault)
	}
}
