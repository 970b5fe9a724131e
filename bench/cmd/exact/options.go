package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

type options struct {
	algorithms []stint.Algorithm
	processes  int
	callers    int
	keys       int
	duration   time.Duration
	ops        int
}

func parseOptions(args []string, output io.Writer) (options, error) {
	var o options
	var algorithms string
	flags := flag.NewFlagSet("exact", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&algorithms, "algorithms", "TOKEN_BUCKET,FIXED_WINDOW,SLIDING_WINDOW_COUNTER", "comma-separated, or all")
	flags.IntVar(&o.processes, "processes", 8, "how many processes ask")
	flags.IntVar(&o.callers, "callers", 4, "goroutines of each that ask")
	flags.IntVar(&o.keys, "keys", 1000, "clients of the part with many; the other part has one")
	flags.DurationVar(&o.duration, "duration", time.Minute, "length of each part, of which there are two for an algorithm")
	flags.IntVar(&o.ops, "ops", 0, "decisions of each process in each part, instead of a duration; 0 for none")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var faults []error
	if algorithms == "all" {
		o.algorithms = stint.Algorithms()
	} else {
		for _, name := range strings.Split(algorithms, ",") {
			a, err := stint.ParseAlgorithm(name)
			if err != nil {
				faults = append(faults, err)
			}
			o.algorithms = append(o.algorithms, a)
		}
	}
	for _, n := range []struct {
		name        string
		value, most int
	}{{"processes", o.processes, 64}, {"callers", o.callers, 1024}, {"keys", o.keys, 100_000}} {
		if n.value < 1 || n.value > n.most {
			faults = append(faults, fmt.Errorf("%s is %d; allowed: 1 to %d", n.name, n.value, n.most))
		}
	}
	if o.duration <= 0 || o.duration > time.Hour {
		faults = append(faults, fmt.Errorf("duration is %v; allowed: more than 0, up to 1h", o.duration))
	}
	if o.ops < 0 {
		faults = append(faults, fmt.Errorf("ops is %d; allowed: 0 or more", o.ops))
	}
	if flags.NArg() > 0 {
		faults = append(faults, fmt.Errorf("arguments are %q; allowed: flags only", flags.Args()))
	}
	return o, errors.Join(faults...)
}
