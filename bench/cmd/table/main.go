// Command table prints what the benchmarks found against what they must reach. It
// reads files in benchstat's format; several runs in one file are taken by their
// median.
//
// Rows are of parts, such as redis or service; each has what was measured, what it must be at least
// or at most, and the verdict. A figure whose decisions were wrong is no figure. With -strict it
// ends with status 1 when something is missed, which is how a pipeline uses it.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/stint-go/stint/bench/internal/results"
)

// main prints the table, or does what -machine or -figures asks for instead.
func main() {
	part := flag.String("part", "all", "which rows to print: "+allParts())
	dir := flag.String("results", "results", "the folder whose *.txt files to read, unless files are named")
	strict := flag.Bool("strict", false, "end with status 1 when something is missed or was not measured")
	pages := flag.String("figures", "",
		"write the tables of figures into the pages in the `FOLDER` instead, by what results/machine.txt names")
	name := flag.Bool("machine", false, "print a line that names this machine instead, for results/machine.txt")
	flag.Parse()
	var missed int
	var err error
	switch {
	case *name:
		fmt.Println("machine:", machine())
	case *pages != "":
		err = writePages(*pages, *dir)
	default:
		missed, err = run(os.Stdout, *part, *dir, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
	if missed > 0 && *strict {
		os.Exit(1)
	}
}

// run prints a part of the table and says how many rows are not reached.
func run(w io.Writer, part, dir string, files []string) (missed int, err error) {
	rows, known := parts[part]
	if !known {
		return 0, fmt.Errorf("part is %q; allowed: %s", part, allParts())
	}
	if len(files) == 0 {
		if files, err = filepath.Glob(filepath.Join(dir, "*.txt")); err != nil {
			return 0, err
		}
	}
	var set results.Set
	for _, file := range files {
		if err := set.Read(file); err != nil {
			return 0, err
		}
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "what\tmust\taim\tmeasured\t\tfrom")
	for _, r := range rows(&set) {
		if r.verdict() != reached {
			missed++
		}
		from := r.from
		if r.verdict() == unknown {
			from = ""
		}
		fmt.Fprintf(
			out, "%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.bound(r.must), r.bound(r.aim), r.value(r.measured), r.verdict(), from,
		)
	}
	if err := out.Flush(); err != nil {
		return missed, err
	}
	switch part {
	case "redis":
		err = everyLimiter(w, &set, "Redis", "")
	case "cluster":
		err = everyLimiter(w, &set, "RedisCluster", "primaries")
	case "network":
		err = everyLimiter(w, &set, "RedisNetwork", "delay")
	}
	return missed, err
}

// allParts lists the names of the parts, for messages.
func allParts() string { return strings.Join(slices.Sorted(maps.Keys(parts)), ", ") }

// The verdicts on a row.
const (
	reached    = "ok"
	notReached = "MISSED"
	wrong      = "WRONG" // fast or slow, it admitted what it should not, or the other way round
	unknown    = "not measured"
)

// A row is one bound and what was measured for it.
type row struct {
	what     string
	atMost   bool    // whether the bounds are upper ones
	must     float64 // the bound; NaN for none
	aim      float64 // NaN for none
	measured float64 // NaN when it was not
	unit     string
	from     string // the figures behind it
	wrong    bool   // whether a run behind it admitted wrongly
}

// verdict holds what was measured to the bound. A wrong decision counts before any speed.
func (r row) verdict() string {
	switch {
	case math.IsNaN(r.measured):
		return unknown
	case r.wrong:
		return wrong
	case math.IsNaN(r.must), r.atMost && r.measured <= r.must, !r.atMost && r.measured >= r.must:
		return reached
	default:
		return notReached
	}
}

// bound is a bound as it is printed; "" for none.
func (r row) bound(b float64) string {
	if math.IsNaN(b) {
		return ""
	}
	if r.atMost {
		return "<= " + r.number(b)
	}
	return ">= " + r.number(b)
}

// value is a measurement as it is printed; "-" if there is none.
func (r row) value(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return r.number(v)
}

// number prints a number with the row's unit: whole ones without decimals, others with two.
func (r row) number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f%s", v, r.unit)
	}
	return fmt.Sprintf("%.2f%s", v, r.unit)
}
