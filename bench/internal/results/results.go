// Package results reads what the benchmarks measured, in benchstat's format.
package results

import (
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A Set is the measurements of one or more files. The zero value is empty.
type Set struct {
	measured []measurement
}

type measurement struct {
	benchmark string            // "Take"
	labels    map[string]string // impl=stint becomes impl: stint; the processors are "cpu"
	values    map[string]float64
}

// Read adds the measurements of a file.
func (s *Set) Read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	reader := benchfmt.NewReader(file, path)
	for reader.Scan() {
		switch r := reader.Result().(type) {
		case *benchfmt.Result:
			s.add(r)
		case *benchfmt.SyntaxError:
			return r
		}
	}
	return reader.Err()
}

func (s *Set) add(r *benchfmt.Result) {
	base, parts := r.Name.Parts()
	m := measurement{
		benchmark: string(base),
		labels:    map[string]string{"cpu": "1"},
		values:    map[string]float64{},
	}
	for _, part := range parts {
		text := string(part)
		if cpus, ok := strings.CutPrefix(text, "-"); ok {
			m.labels["cpu"] = cpus
		} else if label, value, ok := strings.Cut(strings.TrimPrefix(text, "/"), "="); ok {
			m.labels[label] = value
		}
	}
	for _, v := range r.Values {
		m.values[v.Unit] = v.Value
	}
	s.measured = append(s.measured, m)
}

// Labels selects measurements by the parts of their names.
type Labels map[string]string

// Values returns every measurement of a benchmark in a unit (base units: sec/op,
// not ns/op) whose labels include those given.
func (s *Set) Values(benchmark, unit string, labels Labels) []float64 {
	var values []float64
	for _, m := range s.measured {
		if m.benchmark != benchmark || !includes(m.labels, labels) {
			continue
		}
		if v, ok := m.values[unit]; ok {
			values = append(values, v)
		}
	}
	return values
}

// Each returns the values that a label takes among a benchmark's measurements,
// sorted.
func (s *Set) Each(benchmark, label string) []string {
	var found []string
	for _, m := range s.measured {
		if v, ok := m.labels[label]; ok && m.benchmark == benchmark && !slices.Contains(found, v) {
			found = append(found, v)
		}
	}
	slices.Sort(found)
	return found
}

func includes(all, some map[string]string) bool {
	for label, value := range some {
		if all[label] != value {
			return false
		}
	}
	return true
}

// Median is the middle value, or the mean of the two in the middle; NaN of none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Max is the largest value; NaN of none.
func Max(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values)
}
