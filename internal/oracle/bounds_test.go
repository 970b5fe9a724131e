package oracle

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// An admission is what the oracle let through, and when it may go ahead.
type admission struct {
	at      stint.Instant
	permits int64
	turn    stint.Instant
}

// admissions drives the oracle with takes in bursts and after pauses, the clock
// never stepping back.
func admissions(t *testing.T, limit stint.Limit, seed uint64) []admission {
	t.Helper()
	policy := policyOf(t, "", limit)
	oracle, rng := New(0), rand.New(rand.NewPCG(seed, 5))
	now := noon
	var found []admission
	for range 400 {
		switch rng.IntN(6) {
		case 0:
			now += stint.Instant(1 + rng.Int64N(int64(3*second)))
		case 1, 2:
			now += stint.Instant(1 + rng.Int64N(int64(second/5)))
		}
		n := 1 + rng.Int64N(3)
		if d := oracle.Decide(operation(stint.VerbTake, "k", policy, n), now).Decision; d.Allowed {
			found = append(found, admission{now, n, now.Add(d.Delay)})
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d admissions", len(found))
	}
	return found
}

// Leaky bucket: "releases are at least floor(P/R) microseconds apart and the
// long-run rate is exact".
func TestOracleLeakyBucketSpacing(t *testing.T) {
	rate := stint.Per(7, 3*time.Second)
	found := admissions(t, stint.LeakyBucket(5, rate), 2)
	least := stint.Instant(rate.Period.Microseconds() / rate.Permits)
	for i, a := range found[1:] {
		if gap := a.turn - found[i].turn; gap < least*stint.Instant(found[i].permits) {
			t.Fatalf("turns of %d permits at %s and %s are %dus apart", found[i].permits, found[i].turn, a.turn, gap)
		}
	}
	// A queue that never runs empty: turn k is exactly k x P/R, rounded up.
	policy, oracle := policyOf(t, "", stint.LeakyBucket(5, rate)), New(0)
	now := noon
	for k := range int64(3000) {
		d := oracle.Decide(operation(stint.VerbTake, "k", policy, 1), now).Decision
		for !d.Allowed {
			now = now.Add(d.RetryAfter)
			d = oracle.Decide(operation(stint.VerbTake, "k", policy, 1), now).Decision
		}
		if want := ceiling(product(k, rate.Period.Microseconds()), rate.Permits); int64(now.Add(d.Delay)-noon) != want {
			t.Fatalf("turn %d is %dus after the first, expected %d", k, now.Add(d.Delay)-noon, want)
		}
	}
}

// min_interval: "consecutive admitted requests are at least D apart".
func TestOracleMinInterval(t *testing.T) {
	limit := stint.SlidingWindowLog(5, time.Second).WithMinInterval(100 * time.Millisecond)
	for _, limit := range []stint.Limit{limit, limit.CountingDenied()} {
		found := admissions(t, limit, 3)
		for i, a := range found[1:] {
			if a.at-found[i].at < micros(limit.MinInterval) {
				t.Fatalf("%s admitted at %s and %s", DescribeLimit(limit), found[i].at, a.at)
			}
		}
	}
}
