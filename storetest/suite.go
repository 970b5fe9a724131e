// Package storetest is the conformance suite for stores.
//
// [Run] puts a store through every check: random sequences of operations compared field by field
// with an exact model, among them the ends of waits, peeks, resets, changed limits and policies;
// scenarios of holds, ways and changed limits, compared with it likewise; refused input; concurrency;
// and, if the store can do it, that a policy is reset. A store's test package needs one line:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t testing.TB, clock *storetest.Clock) stint.Store {
//			return mystore.New(mystore.Config{Now: clock.Now})
//		}, storetest.Options{})
//	}
//
// The sequences are drawn and shrunk by rapid (pgregory.net/rapid): what fails is printed
// with the flag that repeats it, and -rapid.seed repeats a run.
//
// The model is a second, deliberately naive implementation in big integers; it
// shares no code with the algorithms. [Faulty] is a store that fails on demand.
package storetest

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
)

type newStoreFunc = func(t testing.TB, clock *Clock) stint.Store

// Options say how much Run does. The zero value is what every store must pass.
type Options struct {
	// Operations is how many random operations are compared with the model, per
	// algorithm. Default: 50,000. The flag -rapid.checks, by default 100, multiplies them.
	Operations int
	// Algorithms are those whose limits are driven through the random operations. The other
	// checks are of all algorithms. Default: all.
	Algorithms []stint.Algorithm
	// NoHolds leaves out the checks of holds, for a store that keeps none. Default: false.
	NoHolds bool
	// NoWays leaves out the checks of ways, for a store that refuses them. Default: false.
	NoWays bool
}

// Run puts the stores that newStore makes through the whole suite, as subtests of t. Each store is empty at first,
// shares no state with another, and reads its time from the clock and nothing else. What it holds open is closed by
// t.Cleanup. The pinned clock moves forth by years and steps back within one store; a store whose states also expire by
// another clock than the pinned one must keep them for the length of a test.
func Run(t *testing.T, newStore func(t testing.TB, clock *Clock) stint.Store, opts Options) {
	check := func(name string, test func(t *testing.T, newStore newStoreFunc)) {
		t.Run(name, func(t *testing.T) { test(t, newStore) })
	}
	check("LargeBatch", testLargeBatch)
	check("Identity", func(t *testing.T, newStore newStoreFunc) { testIdentity(t, newStore) })
	check("Invalid", testInvalid)
	check("Cancelled", testCancelled)
	check("Timeout", testTimeout)
	check("Concurrency", testConcurrency)
	for _, s := range scenarios(opts) {
		check(s.name, s.test)
	}
	if opts.Algorithms == nil {
		opts.Algorithms = notation.Algorithms()
	}
	for _, algorithm := range opts.Algorithms {
		t.Run(
			"Random/"+algorithm.String(),
			func(t *testing.T) { testRandom(t, newStore, algorithm, cmp.Or(opts.Operations, 50_000)) },
		)
	}
}

// A fixture is a store on a pinned clock, with shorthands for tests. Its verbs fail
// the test when the store does.
type fixture struct {
	t     testing.TB
	ctx   context.Context
	store stint.Store
}

// noon is where the readable tests start: a round instant, at which windows of up
// to an hour and a day's half start.
const noon = year2026 + 12*hour

func newFixture(t testing.TB, newStore newStoreFunc) *fixture {
	t.Helper()
	return &fixture{t: t, ctx: t.Context(), store: newStore(t, NewClock(noon))}
}

// all decides operations as one batch.
func (b *fixture) all(ops []stint.Op) []stint.Decision {
	b.t.Helper()
	results, decisions := make([]stint.Result, len(ops)), make([]stint.Decision, 0, len(ops))
	b.store.DecideAll(b.ctx, ops, results)
	for i, op := range ops {
		if err := results[i].Err; err != nil {
			b.t.Fatalf("%s: %v", oracle.Describe(op), err)
		}
		decisions = append(decisions, results[i].Decision)
	}
	return decisions
}

func (b *fixture) take(key string, policy *stint.Policy, permits int64) stint.Decision {
	b.t.Helper()
	return b.all([]stint.Op{operation(stint.VerbTake, key, policy, permits)})[0]
}

// remaining is what a peek says is left.
func (b *fixture) remaining(key string, policy *stint.Policy) int64 {
	b.t.Helper()
	return b.all([]stint.Op{operation(stint.VerbPeek, key, policy, 1)})[0].Remaining
}

func operation(verb stint.Verb, key string, policy *stint.Policy, permits int64) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}}
}

// policyOf makes a policy that is known to be valid.
func policyOf(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	p, err := stint.NewPolicy(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// simpleLimit is a limit of the algorithm that does not grow within a minute of noon.
func simpleLimit(algorithm stint.Algorithm, capacity int64) stint.Limit {
	l := stint.Limit{Algorithm: algorithm, Capacity: capacity, Name: fmt.Sprint(capacity)}
	switch algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		l.Rate = stint.PerDay(1)
	case stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowLog, stint.AlgorithmSlidingWindowCounter:
		l.Window = time.Hour
	default:
		return unknown[stint.Limit]("simple limit", algorithm)
	}
	return l
}

// simpleLimits is one of each algorithm.
func simpleLimits(capacity int64) []stint.Limit {
	var limits []stint.Limit
	for _, algorithm := range notation.Algorithms() {
		limits = append(limits, simpleLimit(algorithm, capacity))
	}
	return limits
}
