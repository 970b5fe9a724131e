package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

type options struct {
	rounds   int
	duration time.Duration
	warmUp   time.Duration
	ops      int
	callers  []int
	keys     int
	clients  int
	only     selection
	calm     float64
	strict   bool
	watch    watch
}

// maxDuration keeps a cell within what the generous quotas hold, and the flood of a
// denied client within the minute.
const maxDuration = 10 * time.Second

func parseOptions(args []string, output io.Writer) (options, error) {
	var o options
	var callers, only string
	flags := flag.NewFlagSet("redis", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is measured, by turns")
	flags.DurationVar(&o.duration, "duration", time.Second, "length of one measurement, at most 10s")
	flags.DurationVar(&o.warmUp, "warm-up", 200*time.Millisecond, "length of the run before it, at most 10s; 0 for none")
	flags.IntVar(&o.ops, "ops", 0, "decisions per measurement, instead of a duration; the figures say nothing then; 0 for none")
	flags.StringVar(&callers, "callers", "1,64,512", "comma-separated numbers of goroutines that ask")
	flags.IntVar(&o.keys, "keys", 100_000, "clients where there are many")
	flags.IntVar(&o.clients, "clients", 1_000_000, "clients whose memory is measured")
	flags.StringVar(&only, "only", "", "what to measure, such as impl=stint,redis_rate/load=hot/callers=64; default all")
	flags.Float64Var(&o.calm, "calm", 5, "a measurement during which other programs used more percent of a processor is made again, at most twice")
	flags.BoolVar(&o.strict, "strict", false, "end with status 1 when something was admitted wrongly")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var faults []error
	for _, text := range strings.Split(callers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 4096 {
			faults = append(faults, fmt.Errorf("callers is %q; allowed: numbers from 1 to 4096, comma-separated", callers))
			break
		}
		o.callers = append(o.callers, n)
	}
	var err error
	if o.only, err = parseSelection(only); err != nil {
		faults = append(faults, err)
	}
	if flags.NArg() > 0 {
		faults = append(faults, fmt.Errorf("arguments are %q; allowed: flags only", flags.Args()))
	}
	return o, errors.Join(append(faults, o.validate()...)...)
}

func (o *options) validate() (faults []error) {
	if o.rounds < 1 {
		faults = append(faults, fmt.Errorf("rounds is %d; allowed: 1 or more", o.rounds))
	}
	if o.duration <= 0 || o.duration > maxDuration {
		faults = append(faults, fmt.Errorf("duration is %v; allowed: more than 0, up to %v", o.duration, maxDuration))
	}
	if o.warmUp < 0 || o.warmUp > maxDuration {
		faults = append(faults, fmt.Errorf("warm-up is %v; allowed: 0 to %v", o.warmUp, maxDuration))
	}
	if o.ops < 0 {
		faults = append(faults, fmt.Errorf("ops is %d; allowed: 0 or more", o.ops))
	}
	if !(o.calm >= 0) {
		faults = append(faults, fmt.Errorf("calm is %v; allowed: 0 or more", o.calm))
	}
	const most = 1 << 24 // as many as there are addresses for
	if o.keys < 2 || o.keys > most {
		faults = append(faults, fmt.Errorf("keys is %d; allowed: 2 to %d", o.keys, most))
	}
	if o.clients < 1 || o.clients > most {
		faults = append(faults, fmt.Errorf("clients is %d; allowed: 1 to %d", o.clients, most))
	}
	return faults
}
