package main

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/stint-go/stint/api"
)

// A row is one line of an answer for people.
type row struct{ name, text string }

// show prints an answer: as it came, or for people.
func (q *question) show(out io.Writer, body []byte, rows []row) error {
	if q.json {
		return say(out, "%s\n", bytes.TrimSpace(body))
	}
	var block bytes.Buffer
	table := tabwriter.NewWriter(&block, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", r.name, r.text) // into memory
	}
	_ = table.Flush()
	return say(out, "%s", block.Bytes())
}

func checkRows(c *api.CheckResponse) []row {
	rows := []row{
		{"allowed", yesOrNo(c.Allowed)},
		{"limit", limitText(c.Limit, c.Policy, c.Algorithm)},
		{"remaining", fmt.Sprint(c.Remaining)},
		{"resets in", waitText(c.ResetAfterMicros)},
		{"retry after", waitText(c.RetryAfterMicros)},
	}
	if c.DelayMicros > 0 {
		rows = append(rows, row{"delay", waitText(c.DelayMicros)})
	}
	if c.Degraded {
		rows = append(rows, row{"degraded", "the store is unreachable; its failure policy answered"})
	}
	return rows
}

// peekRows shows what a check would be told, or of an older service, which does not say, what
// is left.
func peekRows(r *api.RemainingResponse) []row {
	if r.At == 0 {
		return []row{
			{"limit", limitText(r.Limit, r.Policy, r.Algorithm)},
			{"remaining", fmt.Sprint(r.Remaining)},
			{"resets in", waitText(r.ResetAfterSeconds * int64(time.Second/time.Microsecond))},
		}
	}
	return checkRows(&api.CheckResponse{
		Allowed: r.Allowed, Policy: r.Policy, Algorithm: r.Algorithm, Limit: r.Limit, Remaining: r.Remaining,
		ResetAfterMicros: r.ResetAfterMicros, RetryAfterMicros: r.RetryAfterMicros, DelayMicros: r.DelayMicros,
	})
}

func resetRows(r *api.ResetResponse) []row {
	of := "all algorithms and policies"
	switch {
	case r.Policy != "":
		of = "policy " + r.Policy
	case r.Algorithm != "":
		of = r.Algorithm
	}
	return []row{{"reset", r.Key}, {"under", of}}
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func limitText(limit int64, policy, algorithm string) string {
	if policy != "" {
		return fmt.Sprintf("%d (%s of policy %s)", limit, algorithm, policy)
	}
	return fmt.Sprintf("%d (%s)", limit, algorithm)
}

// waitText shows a time in microseconds, of which -1 is never.
func waitText(micros int64) string {
	if micros < 0 {
		return "never"
	}
	return (time.Duration(micros) * time.Microsecond).String()
}
