package storetest

import (
	"testing"

	"github.com/stint-go/stint"
)

// A NewStore makes an empty store that reads its time from the clock and nothing
// else. What it holds open is closed by t.Cleanup. Run calls it many times; the
// stores must not share state.
type NewStore = func(t testing.TB, clock *Clock) stint.Store

// Options say how much Run does. The zero value is what every store must pass.
type Options struct {
	// Operations is how many random operations are compared with the oracle, per
	// algorithm. Default: 100,000.
	Operations int
	// Traces is how many random traces of operations each limit is driven through to
	// see that RetryAfter is exact, that a peek changes nothing and that a reset makes
	// a key as new. Default: 40.
	Traces int
	// Algorithms are those whose limits are driven through the random operations and,
	// one by one, through the traces. The other checks are of all algorithms, and so is
	// a policy of many limits that is driven through the traces too. Default: all.
	Algorithms []stint.Algorithm
	// Seed starts the random sequences. Default: 1. One seed gives one run.
	Seed uint64
}

// EnsureDefaults returns the options with every default filled in.
func (o Options) EnsureDefaults() Options {
	if o.Operations == 0 {
		o.Operations = 100_000
	}
	if o.Traces == 0 {
		o.Traces = 40
	}
	if o.Algorithms == nil {
		o.Algorithms = stint.Algorithms()
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	return o
}

// Run puts the stores that newStore makes through the whole suite, as subtests
// of t. The pinned clock moves forth by years and steps back within one store; a
// store whose states also expire by another clock than the pinned one must keep
// them for the length of a test.
func Run(t *testing.T, newStore func(t testing.TB, clock *Clock) stint.Store, opts Options) {
	opts = opts.EnsureDefaults()
	withOptions := func(check func(*testing.T, NewStore, Options)) func(*testing.T, NewStore) {
		return func(t *testing.T, newStore NewStore) { check(t, newStore, opts) }
	}
	checks := []struct {
		name  string
		check func(t *testing.T, newStore NewStore)
	}{
		{"RetryAfter", withOptions(testRetryAfter)},
		{"Peek", withOptions(testPeek)},
		{"Reset", withOptions(testReset)},
		{"ChangedLimits", testChangedLimits},
		{"LimitsInTurn", testLimitsInTurn},
		{"Policies", testPolicies},
		{"CountDenied", testCountDenied},
		{"Batches", testBatches},
		{"Identity", testIdentity},
		{"ResetPolicy", testResetPolicy},
		{"Invalid", testInvalid},
		{"Cancelled", testCancelled},
		{"Concurrency", testConcurrency},
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.check(t, newStore) })
	}
	for _, algorithm := range opts.Algorithms {
		t.Run("Random/"+algorithm.String(), func(t *testing.T) { testRandom(t, newStore, algorithm, opts) })
	}
}
