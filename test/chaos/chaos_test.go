package chaos_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
)

var (
	table  = flag.String("table", "", "write what was measured as a table to this `file`")
	strict = flag.Bool("strict", false, "hold times to docs/reference/failures.md, more narrowly or at all")
)

// allowed is how long may take what is promised to take so long. What else runs on a
// machine, such as all other tests, says nothing about the store.
func allowed(promised time.Duration) time.Duration {
	if *strict {
		return promised
	}
	return 5 * promised
}

// Every fault of docs/reference/failures.md, under load, on real servers.
func TestFaults(t *testing.T) {
	var reports []report
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			reports = append(reports, f.run(t, failover.Open))
		})
	}
	for _, mode := range []failover.Mode{failover.Closed, failover.Local} {
		f := faults()[0]
		t.Run(f.name+", "+mode.String(), func(t *testing.T) {
			reports = append(reports, f.run(t, mode))
		})
	}
	if *table != "" {
		must.Do(t, write(*table, reports))
	}
}

func write(name string, reports []report) error {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "fault\tmode\tby the store meanwhile\tby the mode\tits median\tnoticed\tstore back\tp99.9 of calls\tlongest\tbeyond the limit\tmay be\tcause\t")
	for _, r := range reports {
		n, all := count(r.during), count(r.answers)
		noticed := "-"
		if r.noticed >= 0 {
			noticed = millis(r.noticed)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d of %d\t%d\t%s\t%s\t%s\t%s\t%s\t%.0f\t%.0f\t%s\t\n", r.fault.name, r.mode,
			n.exact, len(r.during), all.degraded+all.refused, r.median, noticed, millis(r.returned), millis(r.p999), millis(r.worst),
			max(0, r.excess), r.allowed, firstOf(r.causes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o600)
}

// firstOf is the first cause, in short.
func firstOf(causes string) string {
	cause, _, _ := strings.Cut(causes, "\n")
	return strings.TrimPrefix(cause, stint.ErrUnavailable.Error()+": ")
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}
