package registrytest

import (
	"testing"

	"github.com/stint-go/stint/rules/registry"
)

// An Open makes an empty place for rules, and returns what makes a backend on it: each call
// another one, as another process would have it. What they hold open is closed by t.Cleanup.
type Open = func(t testing.TB) func() registry.Backend

// A Size is how much there is of what a backend has to get right in bulk: [Full], or [Small] for
// one that takes milliseconds for everything, and may keep versions however large they are.
type Size struct {
	edits  int // of each of 16 editors
	rules  int // of one version
	beside int // rules beside those that change while others look
	rounds int // of changes while others look
	bytes  int // of a version of many large rules
	kept   int // how large the versions that are kept are together at most, in bytes; 0: no matter
}

// The sizes.
var (
	Full  = Size{edits: 20, rules: 10_000, beside: 1000, rounds: 150, bytes: registry.MaxVersionBytes, kept: registry.KeptBytes}
	Small = Size{edits: 3, rules: 1000, beside: 100, rounds: 30, bytes: registry.MaxVersionBytes / 8}
)

// Run puts the backends that open makes through the whole suite, as subtests of t.
func Run(t *testing.T, size Size, open func(t testing.TB) func() registry.Backend) {
	for _, c := range []struct {
		name  string
		check func(t *testing.T, open Open)
	}{
		{"Empty", testEmpty},
		{"RoundTrip", testRoundTrip},
		{"OddText", testOddText},
		{"Heads", testHeads},
		{"Conflict", testConflict},
		{"Edits", size.testEdits},
		{"Whole", size.testWhole},
		{"Paging", testPaging},
		{"Trimming", testTrimming},
		{"ManyRules", size.testManyRules},
		{"LargeVersions", size.testLargeVersions},
		{"KeptBytes", size.testKeptBytes},
		{"Watch", testWatch},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, open) })
	}
}
