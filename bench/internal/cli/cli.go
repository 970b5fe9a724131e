// Package cli is what the commands' main functions have in common.
package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Main runs a command until it is done or interrupted, prints its error and exits.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse parses a command's arguments, of which nothing may be left.
func Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("arguments are %q; allowed: flags only", flags.Args())
	}
	return nil
}

// Serve has serve accept connections at an address until ctx is done.
func Serve(ctx context.Context, address string, serve func(net.Listener) error) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	if err = serve(listener); ctx.Err() != nil {
		return nil
	}
	return err
}

// PrintFaults prints what is wrong, most faults at the most.
func PrintFaults(w io.Writer, where string, faults []string, most int) {
	for _, fault := range faults[:min(most, len(faults))] {
		fmt.Fprintf(w, "WRONG: %s: %s\n", where, fault)
	}
	if more := len(faults) - most; more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

// Number adds a flag for a number or a duration from least to most.
func Number[T int | float64 | time.Duration](
	flags *flag.FlagSet,
	p *T,
	name string,
	value, least, most T,
	usage string,
) {
	*p = value
	flags.Func(name, fmt.Sprintf("%s, %v to %v (default %v)", usage, least, most, value), func(text string) (err error) {
		*p, err = parse(text, least, most)
		return err
	})
}

// Numbers adds a flag for a comma-separated list of them.
func Numbers[T int | float64 | time.Duration](
	flags *flag.FlagSet,
	p *[]T,
	name string,
	value []T,
	least, most T,
	usage string,
) {
	*p = value
	usage = fmt.Sprintf("comma-separated %s, %v to %v (default %v)", usage, least, most, value)
	flags.Func(name, usage, func(text string) error {
		*p = nil
		for _, part := range strings.Split(text, ",") {
			n, err := parse(part, least, most)
			if err != nil {
				return err
			}
			*p = append(*p, n)
		}
		return nil
	})
}

func parse[T int | float64 | time.Duration](text string, least, most T) (n T, err error) {
	switch p := any(&n).(type) {
	case *int:
		*p, err = strconv.Atoi(text)
	case *float64:
		*p, err = strconv.ParseFloat(text, 64)
	case *time.Duration:
		*p, err = time.ParseDuration(text)
	}
	// Not a number is less than everything.
	if err != nil || cmp.Compare(n, least) < 0 || cmp.Compare(n, most) > 0 {
		return n, fmt.Errorf("allowed: %v to %v", least, most)
	}
	return n, nil
}
