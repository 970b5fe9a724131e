// Package wrk drives a server with wrk and reads what that says.
package wrk

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Load is how hard a server is driven.
type Load struct {
	Threads, Connections int
	// Duration is the length of a measurement, whole seconds.
	Duration time.Duration
}

// A Measurement is what came of one.
type Measurement struct {
	Rate     float64 // requests per second
	Requests int
	Refused  int // answers that were not 2xx or 3xx
}

// Run repeats one request.
func (l Load) Run(ctx context.Context, url string) (Measurement, error) {
	out, err := exec.CommandContext(ctx, "wrk",
		"-t", strconv.Itoa(l.Threads), "-c", strconv.Itoa(l.Connections),
		"-d", fmt.Sprintf("%.0fs", l.Duration.Seconds()), url).CombinedOutput()
	if err != nil {
		return Measurement{}, fmt.Errorf("wrk: %w\n%s", err, out)
	}
	return parse(string(out))
}

var (
	rateLine    = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	totalLine   = regexp.MustCompile(`(\d+) requests in`)
	refusedLine = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

func parse(out string) (Measurement, error) {
	rate, total := rateLine.FindStringSubmatch(out), totalLine.FindStringSubmatch(out)
	if rate == nil || total == nil || strings.Contains(out, "Socket errors") {
		return Measurement{}, fmt.Errorf("wrk said:\n%s", out)
	}
	m := Measurement{}
	var err error
	if m.Rate, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return m, err
	}
	if m.Requests, err = strconv.Atoi(total[1]); err != nil {
		return m, err
	}
	if refused := refusedLine.FindStringSubmatch(out); refused != nil {
		m.Refused, err = strconv.Atoi(refused[1])
	}
	return m, err
}
