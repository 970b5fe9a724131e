// Package results reads what the benchmarks measured, in benchstat's format.
//
// A [Set] is what was read of all files. Results are found by parts of their names, NAME/key=value,
// and several runs of one are taken by their median.
package results

import (
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// A Set is the measurements of one or more files. The zero value is empty.
//
// A name such as Take/impl=stint/cpu=1 selects measurements: those of a benchmark whose
// own name has these parts among others, in any order. The processors are the part cpu.
type Set struct {
	measured []measurement
}

// A measurement is one line of a file: a benchmark's name and what was measured, in base units.
type measurement struct {
	parts  []string           // "Take", "impl=stint" and so on
	values map[string]float64 // by unit
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

// add adds a result. The last part of a name, "-2", is the number of processors; without it there was
// one.
func (s *Set) add(r *benchfmt.Result) {
	base, parts := r.Name.Parts()
	m := measurement{parts: []string{string(base)}, values: map[string]float64{}}
	cpus := "1"
	for _, part := range parts {
		if n, ok := strings.CutPrefix(string(part), "-"); ok {
			cpus = n
		} else {
			m.parts = append(m.parts, strings.TrimPrefix(string(part), "/"))
		}
	}
	m.parts = append(m.parts, "cpu="+cpus)
	for _, v := range r.Values {
		m.values[v.Unit] = v.Value
	}
	s.measured = append(s.measured, m)
}

// Values returns every measurement that a name selects, in a base unit: sec/op, not ns/op.
func (s *Set) Values(name, unit string) []float64 {
	benchmark, rest, _ := strings.Cut(name, "/")
	var values []float64
	for _, m := range s.measured {
		lacks := func(part string) bool { return part != "" && !slices.Contains(m.parts, part) }
		lacksOne := slices.ContainsFunc(strings.Split(rest, "/"), lacks)
		if v, ok := m.values[unit]; ok && m.parts[0] == benchmark && !lacksOne {
			values = append(values, v)
		}
	}
	return values
}

// Each returns the values that a label takes among a benchmark's measurements, sorted.
func (s *Set) Each(benchmark, label string) []string {
	var found []string
	for _, m := range s.measured {
		for _, part := range m.parts {
			if value, ok := strings.CutPrefix(part, label+"="); ok && m.parts[0] == benchmark {
				found = append(found, value)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Median is the middle value, or the mean of the two in the middle; NaN of none.
func (s *Set) Median(name, unit string) float64 {
	values := s.Values(name, unit)
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Max is the largest value; NaN of none.
func (s *Set) Max(name, unit string) float64 {
	values := s.Values(name, unit)
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values)
}
