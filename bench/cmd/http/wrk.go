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

// race drives the entrants by turns and prints a line of benchmark for each turn; its name gets the entrant's impl in
// place of %s. All answers must be refusals, or none. It returns the processor time of a request of each impl in each
// round, in nanoseconds.
func race(
	ctx context.Context,
	o options,
	entrants []entrant,
	path, benchmark string,
	refused bool,
) (used map[string][]float64, err error) {
	used = map[string][]float64{}
	for round := range o.rounds {
		for i := range entrants {
			e := entrants[(i+round)%len(entrants)] // none always goes first
			before := proc.CPUTime([]int{e.server.ID()})
			m, err := o.wrk(ctx, "http://"+e.server.Addr+path)
			if err != nil {
				return nil, err
			}
			cpu := float64(proc.CPUTime([]int{e.server.ID()})-before) / float64(m.requests)
			used[e.impl] = append(used[e.impl], cpu)
			if refused && m.refused != m.requests || !refused && m.refused != 0 {
				return nil, fmt.Errorf(
					"%s: %d of %d answers were not 2xx; want all to be refused: %t", e.impl, m.refused, m.requests, refused,
				)
			}
			fmt.Fprintf(
				os.Stdout, benchmark+"-%d %d %.0f ns/op %.0f req/s %.0f cpu-ns/op\n", e.impl, runtime.GOMAXPROCS(0), m.requests,
				1e9/m.rate, m.rate, cpu,
			)
		}
	}
	return used, nil
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
