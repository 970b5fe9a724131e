package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/stint-go/stint/bench/internal/proc"
)

// An entrant is a server that wrk drives.
type entrant struct {
	impl   string
	server *proc.Process
}

// race drives the entrants by turns and prints a line of benchmark for each turn; its
// name gets the entrant's impl in place of %s. All answers must be refusals, or none.
func race(ctx context.Context, o options, entrants []entrant, path, benchmark string, refused bool) error {
	for round := range o.rounds {
		for i := range entrants {
			e := entrants[(i+round)%len(entrants)] // none always goes first
			m, err := o.wrk(ctx, "http://"+e.server.Addr+path)
			if err != nil {
				return err
			}
			if refused && m.refused != m.requests || !refused && m.refused != 0 {
				return fmt.Errorf("%s: %d of %d answers were not 2xx; want all to be refused: %t", e.impl, m.refused, m.requests, refused)
			}
			fmt.Fprintf(os.Stdout, benchmark+"-%d %d %.0f ns/op %.0f req/s\n", e.impl, runtime.GOMAXPROCS(0), m.requests, 1e9/m.rate, m.rate)
		}
	}
	return nil
}

// A measurement is what wrk says.
type measurement struct {
	rate     float64 // requests per second
	requests int
	refused  int // answers that were not 2xx or 3xx
}

// wrk repeats one request.
func (o options) wrk(ctx context.Context, url string) (measurement, error) {
	out, err := exec.CommandContext(ctx, "wrk", "-t", strconv.Itoa(o.threads), "-c", strconv.Itoa(o.connections),
		"-d", fmt.Sprintf("%.0fs", o.duration.Seconds()), url).CombinedOutput()
	if err != nil {
		return measurement{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	return parse(string(out))
}

var (
	rateLine    = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	totalLine   = regexp.MustCompile(`(\d+) requests in`)
	refusedLine = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

func parse(out string) (measurement, error) {
	rate, total := rateLine.FindStringSubmatch(out), totalLine.FindStringSubmatch(out)
	if rate == nil || total == nil || strings.Contains(out, "Socket errors") {
		return measurement{}, fmt.Errorf("wrk said:\n%s", out)
	}
	m := measurement{}
	var err error
	if m.rate, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return m, err
	}
	if m.requests, err = strconv.Atoi(total[1]); err != nil {
		return m, err
	}
	if refused := refusedLine.FindStringSubmatch(out); refused != nil {
		m.refused, err = strconv.Atoi(refused[1])
	}
	return m, err
}
