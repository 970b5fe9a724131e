package registrytest

import (
	"testing"

	"github.com/stint-go/stint/rules/registry"
)

// An Open makes an empty place for rules, and returns what makes a backend on it: each call
// another one, as another process would have it. What they hold open is closed by t.Cleanup.
type Open = func(t testing.TB) func() registry.Backend

// Run puts the backends that open makes through the whole suite, as subtests of t.
func Run(t *testing.T, open func(t testing.TB) func() registry.Backend) {
	for _, c := range []struct {
		name  string
		check func(t *testing.T, open Open)
	}{
		{"Empty", testEmpty},
		{"RoundTrip", testRoundTrip},
		{"OddText", testOddText},
		{"Heads", testHeads},
		{"Conflict", testConflict},
		{"Edits", testEdits},
		{"Whole", testWhole},
		{"Paging", testPaging},
		{"Trimming", testTrimming},
		{"ManyRules", testManyRules},
		{"LargeVersions", testLargeVersions},
		{"Watch", testWatch},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, open) })
	}
}
