// Command gate prints the processor time of an operation, for a fixed list of work: decisions in
// memory and on Redis, and requests to the service. Each commit has a program of its own, so that
// two commits are compared whatever their APIs are: `make gate` builds that of this tree and that of
// each commit in bench/BASELINE, and runs them in turn (bench/cmd/gate).
//
// A line of the output is a row's name, a tab, and nanoseconds for each operation. Names that end in
// "/procs=2" are of work on two processors: they depend on what else runs on the machine, and are
// printed for people alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		stop()
		os.Exit(1)
	}
}

// run measures the rows that -rows chooses, one after another, and prints each as soon as it is
// measured. The first one that fails ends it: times of a part of the rows are of no use to bench/cmd/gate.
func run(ctx context.Context) error {
	r := rig{ctx: ctx}
	var rows, bare, profile string
	flag.StringVar(&rows, "rows", "", "regular expression of the rows to measure; default: all")
	flag.StringVar(&r.stint, "stint", "stint", "the program whose service is measured")
	flag.DurationVar(&r.duration, "for", 300*time.Millisecond, "for how long each row is measured")
	flag.StringVar(&bare, "serve-bare", "",
		"serve nothing but the same answer at this address, to be measured beside the service")
	flag.StringVar(&profile, "cpuprofile", "", "file to write a profile of this process to, of all rows that are measured")
	list := flag.Bool("list", false, "print the rows, and measure nothing")
	flag.Parse()
	if bare != "" {
		return serveBare(ctx, bare)
	}
	only, err := regexp.Compile(rows)
	if err != nil {
		return fmt.Errorf("-rows is %q; allowed: a regular expression: %w", rows, err)
	}
	if profile != "" {
		stop, err := startProfile(profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	defer r.close()
	for _, row := range allRows() {
		if !only.MatchString(row.name) {
			continue
		}
		if *list {
			fmt.Println(row.name)
			continue
		}
		if err := r.measure(row); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
	}
	return nil
}

// startProfile writes a profile of this process to a file, until stop.
func startProfile(name string) (stop func(), err error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close() // what is missing is seen when it is read
	}, nil
}
