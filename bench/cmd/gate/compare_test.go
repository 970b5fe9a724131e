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

func TestFailures(t *testing.T) {
	base := []float64{100, 101, 99, 130, 100}
	floors := []floor{{row: "memory/hot", of: "floor/peer", share: 0.9}}
	for name, test := range map[string]struct {
		row   string
		times []float64
		peer  float64
		fails bool
	}{
		"as before":               {"memory/hot", []float64{101, 99, 103, 100, 98}, 100, false},
		"quicker":                 {"memory/hot", []float64{50, 51, 49, 50, 50}, 100, false},
		"a tenth slower":          {"memory/hot", []float64{110, 111, 109, 140, 110}, 100, true},
		"slower by the median":    {"memory/hot", []float64{99, 110, 111, 112, 113}, 100, false},
		"slower by the minimum":   {"memory/hot", []float64{107, 106.5, 106.9, 107, 106.8}, 100, false},
		"new":                     {"memory/new", []float64{500}, 100, false},
		"on two processors":       {"memory/hot/procs=2", []float64{500}, 100, false},
		"work of others":          {"floor/other", []float64{500}, 100, false},
		"Redis by long calls":     {"redis/bare/hot/callers=512/redis", []float64{500}, 100, false},
		"below the floor":         {"memory/hot", []float64{100, 101}, 80, true},
		"below the floor by luck": {"memory/hot", []float64{100, 80, 100}, 80, false},
	} {
		here := &tree{rows: []string{test.row}, times: map[string][]float64{test.row: test.times, "floor/peer": {test.peer}}}
		old := &tree{times: map[string][]float64{"memory/hot": base, "memory/hot/procs=2": base, "floor/other": base, "redis/bare/hot/callers=512/redis": base}}
		if got := failures([]*tree{here, old}, floors, 0.07); slices.Contains(got, test.row) != test.fails {
			t.Errorf("%s: %v; want that it fails: %v", name, got, test.fails)
		}
	}
}

// A row that is slower than in one of several commits fails, whatever it is in the others.
func TestEachCommitCounts(t *testing.T) {
	of := func(ns float64) *tree {
		return &tree{rows: []string{"a"}, times: map[string][]float64{"a": {ns, ns}}}
	}
	if got := failures([]*tree{of(100), of(150), of(90)}, nil, 0.07); !slices.Equal(got, []string{"a"}) {
		t.Errorf("slower than the second of two commits: %v, want a", got)
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
