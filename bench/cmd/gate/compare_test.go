package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

func TestSuspected(t *testing.T) {
	base := []float64{100, 101, 99, 130, 100}
	floors := []floor{{row: "memory/hot", of: "floor/peer", share: 0.9}}
	for name, test := range map[string]struct {
		row     string
		times   []float64
		peer    float64
		suspect bool
	}{
		"as before":               {"memory/hot", []float64{101, 99, 103, 100, 98}, 100, false},
		"quicker":                 {"memory/hot", []float64{50, 51, 49, 50, 50}, 100, false},
		"a tenth slower":          {"memory/hot", []float64{110, 111, 109, 140, 110}, 100, true},
		"slower by the median":    {"memory/hot", []float64{99, 110, 111, 112, 113}, 100, true},
		"slower by the minimum":   {"memory/hot", []float64{107, 106.5, 106.9, 107, 106.8}, 100, true},
		"slower in some rounds":   {"memory/hot", []float64{99, 101, 102, 140, 150}, 100, false},
		"new":                     {"memory/new", []float64{500}, 100, false},
		"on two processors":       {"memory/hot/procs=2", []float64{500}, 100, false},
		"work of others":          {"floor/other", []float64{500}, 100, false},
		"Redis alone":             {"redis/bare/hot/callers=1/redis", []float64{500}, 100, false},
		"Redis and its client":    {"redis/bare/hot/callers=1/both", []float64{500}, 100, true},
		"below the floor":         {"memory/hot", []float64{100, 101}, 80, true},
		"below the floor by luck": {"memory/hot", []float64{100, 80, 100}, 80, true},
	} {
		here := &tree{rows: []string{test.row}, times: map[string][]float64{test.row: test.times, "floor/peer": {test.peer}}}
		old := &tree{times: map[string][]float64{}}
		for _, row := range []string{"memory/hot", "memory/hot/procs=2", "floor/other"} {
			old.times[row] = base
		}
		for _, part := range []string{"", ofRedis, ofBoth} {
			old.times["redis/bare/hot/callers=1"+part] = base
		}
		if got := suspected([]*tree{here, old}, floors, 0.07); (len(got) > 0) != test.suspect {
			t.Errorf("%s: %v; want that it is suspected: %v", name, names(got), test.suspect)
		}
	}
}

// A row that is slower than in one of several commits is suspected, whatever it is in the others.
func TestEachCommitCounts(t *testing.T) {
	of := func(ns float64) *tree {
		return &tree{rows: []string{"a"}, times: map[string][]float64{"a": {ns, ns}}}
	}
	slow := of(90)
	got := suspected([]*tree{of(100), of(150), slow}, nil, 0.07)
	if len(got) != 1 || got[0].tree != slow {
		t.Errorf("slower than the second of two commits: %v, want a", names(got))
	}
}

// How long a trial lasts, if the pairs of a cycle come again and again, "+" for one in which the
// suspect cost more than it may.
func TestPairs(t *testing.T) {
	for _, test := range []struct {
		cycle  string
		pairs  int
		guilty bool
	}{
		{"-", 2, false},
		{"+--", 5, false},
		{"+-", 6, false},
		{"++-", 21, false},
		{"+", 44, true},
		{"++++++++-", 70, true},
		{"++++-", mostPairs, false}, // undecided
	} {
		var s suspect
		pairs := 0
		for ; !s.decided() && pairs < mostPairs; pairs++ {
			s.pair(test.cycle[pairs%len(test.cycle)] == '+')
		}
		if guilty := len(failures([]*suspect{&s})) == 1; pairs != test.pairs || guilty != test.guilty {
			t.Errorf("%s: guilty %v after %d pairs, want %v after %d", test.cycle, guilty, pairs, test.guilty, test.pairs)
		}
	}
}

func TestLeast(t *testing.T) {
	of := &tree{times: map[string][]float64{"a": {1, 5, 3, 4}}}
	for rounds, want := range map[int]float64{1: 4, 2: 3, 3: 3, 4: 1} {
		if got := of.least("a", rounds); got != want {
			t.Errorf("the least of the last %d is %v, want %v", rounds, got, want)
		}
	}
}

// The files say what they are to say, and every row of FLOORS exists.
func TestFiles(t *testing.T) {
	commits, err := baseline("../../BASELINE")
	if err != nil || len(commits) == 0 {
		t.Fatalf("BASELINE: %q, %v", commits, err)
	}
	for _, commit := range commits {
		if len(commit) != 40 || strings.Trim(commit, "0123456789abcdef") != "" {
			t.Errorf("BASELINE names %q; want a commit's 40 digits", commit)
		}
	}
	floors, err := readFloors("../../FLOORS")
	if err != nil || len(floors) == 0 {
		t.Fatalf("FLOORS: %v, %v", floors, err)
	}
	rows := must.Get(exec.CommandContext(t.Context(), "go", "run", "../../gate", "-list").Output())(t)
	for _, f := range floors {
		for _, name := range []string{f.row, f.of} {
			if !slices.Contains(strings.Fields(string(rows)), name) {
				t.Errorf("FLOORS names the row %s, which bench/gate does not have", name)
			}
		}
	}
}

func TestFloorsAreChecked(t *testing.T) {
	name := filepath.Join(t.TempDir(), "FLOORS")
	for _, text := range []string{"a b\n", "a b 0\n", "a b much\n", "a b 1 2\n"} {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		if _, err := readFloors(name); err == nil {
			t.Errorf("%q passed", text)
		}
	}
}
