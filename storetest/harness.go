package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// A bench is a store on a pinned clock, with shorthands for tests. Its verbs fail
// the test when the store does.
type bench struct {
	t     testing.TB
	ctx   context.Context
	store stint.Store
	clock *Clock
}

// noon is where the readable tests start: a round instant, at which windows of up
// to an hour and a day's half start.
const noon = year2026 + 12*hour

func newBench(t testing.TB, newStore NewStore) *bench {
	t.Helper()
	clock := NewClock(noon)
	return &bench{t: t, ctx: t.Context(), store: newStore(t, clock), clock: clock}
}

func (b *bench) decide(op stint.Op) stint.Decision {
	b.t.Helper()
	d, err := b.store.Decide(b.ctx, op)
	if err != nil {
		b.t.Fatalf("%s: %v", describeOp(op), err)
	}
	return d
}

func (b *bench) do(verb stint.Verb, key string, policy *stint.Policy, permits int64) stint.Decision {
	b.t.Helper()
	return b.decide(operation(verb, key, policy, permits))
}

func (b *bench) take(key string, policy *stint.Policy, permits int64) stint.Decision {
	b.t.Helper()
	return b.do(stint.Take, key, policy, permits)
}

// remaining is what a peek says is left.
func (b *bench) remaining(key string, policy *stint.Policy) int64 {
	b.t.Helper()
	return b.do(stint.Peek, key, policy, 1).Remaining
}

// all decides operations as one batch.
func (b *bench) all(ops []stint.Op) []stint.Decision {
	b.t.Helper()
	results, decisions := make([]stint.Result, len(ops)), make([]stint.Decision, len(ops))
	b.store.DecideAll(b.ctx, ops, results)
	for i, r := range results {
		if r.Err != nil {
			b.t.Fatalf("%s: %v", describeOp(ops[i]), r.Err)
		}
		decisions[i] = r.Decision
	}
	return decisions
}

// at sets the clock to so long after noon.
func (b *bench) at(d time.Duration) { b.clock.Set(noon.Add(d)) }

func operation(verb stint.Verb, key string, policy *stint.Policy, permits int64) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}}
}

// policyOf makes a policy that is known to be valid.
func policyOf(t testing.TB, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	p, err := stint.NewPolicy("", limits...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// expect compares the fields of a decision that fields names in order: Allowed,
// Remaining, RetryAfter.
func expect(t testing.TB, what string, d stint.Decision, allowed bool, remaining int64, retryAfter time.Duration) {
	t.Helper()
	if d.Allowed != allowed || d.Remaining != remaining || d.RetryAfter != retryAfter {
		t.Fatalf("%s: allowed %t, remaining %d, retry after %s; expected allowed %t, remaining %d, retry after %s",
			what, d.Allowed, d.Remaining, formatWait(d.RetryAfter), allowed, remaining, formatWait(retryAfter))
	}
}

// A specimen is a limit that the directed checks are made with.
type specimen struct {
	name  string
	limit stint.Limit
}

// specimens are limits of every algorithm with every option.
func specimens() []specimen {
	log := stint.SlidingWindowLog(5, 10*time.Second)
	spaced, hammered, both := log, log, log
	spaced.MinInterval = 700 * time.Millisecond
	hammered.CountDenied = true
	both.MinInterval, both.CountDenied = 700*time.Millisecond, true
	limits := []specimen{
		{"token_bucket", stint.TokenBucket(5, stint.PerMinute(7))},
		{"token_bucket_odd", stint.TokenBucket(5, stint.Per(999_983, 863_999_999_999*time.Microsecond))},
		{"leaky_bucket", stint.LeakyBucket(5, stint.Per(2, 3*time.Second))},
		{"fixed_window", stint.FixedWindow(5, 10*time.Second)},
		{"calendar_hour", stint.CalendarWindow(5, stint.CalendarHour, "Australia/Lord_Howe")},
		{"calendar_month", stint.CalendarWindow(5, stint.CalendarMonth, "America/Havana")},
		{"sliding_window_log", log},
		{"sliding_window_log_min_interval", spaced},
		{"sliding_window_log_count_denied", hammered},
		{"sliding_window_log_both", both},
		{"sliding_window_counter", stint.SlidingWindowCounter(5, 10*time.Second)},
		{"sliding_window_counter_odd", stint.SlidingWindowCounter(7, 1_000_003*time.Microsecond)},
	}
	for _, algorithm := range stint.Algorithms() {
		for _, s := range limits {
			if s.limit.Algorithm == algorithm {
				limits = append(limits, specimen{fmt.Sprintf("%s_no_debt", s.name), s.limit.WithMaxDebt(stint.NoDebt)})
				break
			}
		}
	}
	return limits
}

// eachSpecimen runs a check as one subtest per specimen of the algorithms, and one for
// a policy of all algorithms at once.
func eachSpecimen(t *testing.T, newStore NewStore, algorithms []stint.Algorithm, check func(b *bench, policy *stint.Policy)) {
	var all []stint.Limit
	for _, s := range specimens() {
		if slices.Contains(algorithms, s.limit.Algorithm) {
			t.Run(s.name, func(t *testing.T) { check(newBench(t, newStore), policyOf(t, s.limit)) })
		}
		if s.limit.MaxDebt == 0 {
			all = append(all, s.limit.Named(s.name))
		}
	}
	t.Run("policy", func(t *testing.T) { check(newBench(t, newStore), policyOf(t, all...)) })
}
