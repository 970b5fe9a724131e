package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A floor is a second bound of a row, which does not move with the baseline: work of others, of the
// same kind and measured in the same rounds, must cost at least a share of what the row costs:
// of >= share x row.
type floor struct {
	row, of string
	share   float64
}

// readFloors reads lines of a row, the row it is held against, and a share.
func readFloors(name string) (floors []floor, err error) {
	lines, err := readLines(name)
	for _, fields := range lines {
		var f floor
		if len(fields) == 3 {
			f.row, f.of = fields[0], fields[1]
			f.share, _ = strconv.ParseFloat(fields[2], 64)
		}
		if f.share <= 0 {
			return nil, fmt.Errorf(
				"%s: %q; want a row, what it is held against, and a share above 0", name, strings.Join(fields, " "),
			)
		}
		floors = append(floors, f)
	}
	return floors, err
}

// isFloor reports whether a row is work of others.
func isFloor(name string) bool { return strings.HasPrefix(name, "floor/") }

// Behind a row of a store on Redis there are two more: what Redis takes, and what both take together.
const (
	ofRedis = "/redis"
	ofBoth  = "/both"
)

// gated reports whether a row may fail. Work of others may not, nor work on two processors: its
// time depends on what else runs on the machine. Nor may what Redis takes alone: that is a call's time
// over the operations that it carries, of which a slower client sends more at once. What both take
// may.
func gated(name string) bool {
	return !isFloor(name) && !strings.Contains(name, "/procs=2") && !strings.HasSuffix(name, ofRedis)
}

// suspected are the rows of the first tree that may be slower than in another tree, or than a floor
// allows, one suspect for each of these.
func suspected(trees []*tree, floors []floor, margin float64) (suspects []*suspect) {
	here := trees[0]
	for _, name := range here.rows {
		if !gated(name) {
			continue
		}
		for _, t := range trees[1:] {
			s := &suspect{row: name, tree: t, of: name, most: 1 + margin}
			if slower(here.times[name], t.times[name], s.most) {
				suspects = append(suspects, s)
			}
		}
		for _, f := range floors {
			s := &suspect{row: name, tree: here, of: f.of, most: 1 / f.share}
			if f.row == name && slower(here.times[name], here.times[f.of], s.most) {
				suspects = append(suspects, s)
			}
		}
	}
	return suspects
}

// slower reports whether times are above most times those of another, by the median or by the minimum:
// in a bad minute either may hide a loss, and whom it suspects wrongly, the trial acquits. A row that
// one side does not have is not slower.
func slower(times, of []float64, most float64) bool {
	if len(times) == 0 || len(of) == 0 {
		return false
	}
	return median(times) > most*median(of) || slices.Min(times) > most*slices.Min(of)
}

func median(times []float64) float64 {
	sorted := slices.Sorted(slices.Values(times))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// report prints a line for each row: the median, in nanoseconds of processor time for each
// operation, and for each baseline its median and this tree's speed as a share of it, by the medians
// and by the minima. Above 1 is faster.
func report(out io.Writer, trees []*tree, floors []floor, failed []string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	here := trees[0]
	fmt.Fprint(w, "row\tns\t")
	for _, t := range trees[1:] {
		fmt.Fprintf(w, "%s ns\tspeed\tof minima\t", t.name)
	}
	fmt.Fprintln(w)
	for _, name := range here.rows {
		fmt.Fprintf(w, "%s\t%.1f\t", name, median(here.times[name]))
		for _, t := range trees[1:] {
			if of := t.times[name]; len(of) > 0 {
				own := here.times[name]
				fmt.Fprintf(w, "%.1f\t%.2f\t%.2f\t", median(of), median(of)/median(own), slices.Min(of)/slices.Min(own))
			} else {
				fmt.Fprint(w, "-\t\t\t")
			}
		}
		switch {
		case slices.Contains(failed, name):
			fmt.Fprint(w, "FAIL")
		case !gated(name):
			fmt.Fprint(w, "not gated")
		}
		fmt.Fprintln(w, "\t")
	}
	_ = w.Flush() // nobody is told that the output is gone
	for _, f := range floors {
		if row, of := here.times[f.row], here.times[f.of]; len(row) > 0 && len(of) > 0 {
			fmt.Fprintf(out, "%s has %.2f of the speed of %s; at least %.2f\n", f.row, median(of)/median(row), f.of, f.share)
		}
	}
}
