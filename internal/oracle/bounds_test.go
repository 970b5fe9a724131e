package oracle

import (
	"math/big"
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

// Token bucket: "For every interval [a, b]: admitted <= C + R x (b - a) / P".
func TestOracleTokenBucketBound(t *testing.T) {
	for _, rate := range []stint.Rate{stint.Per(7, 3*time.Second), stint.Per(11, 1_000_003*time.Microsecond)} {
		limit := stint.TokenBucket(5, rate)
		found := admissions(t, limit, 1)
		for i := range found {
			total := int64(0)
			for _, a := range found[i:] {
				total += a.permits
				excess := product(total-limit.Capacity, rate.Period.Microseconds())
				if excess.Cmp(product(rate.Permits, int64(a.at-found[i].at))) > 0 {
					t.Fatalf("%s admitted %d from %s to %s", DescribeLimit(limit), total, found[i].at, a.at)
				}
			}
		}
	}
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

// Log: "over every half-open span (t - W, t], admitted <= L"; min_interval:
// "consecutive admitted requests are at least D apart".
func TestOracleLogBound(t *testing.T) {
	for _, limit := range []stint.Limit{
		stint.SlidingWindowLog(5, time.Second),
		stint.SlidingWindowLog(5, time.Second).WithMinInterval(100 * time.Millisecond),
		stint.SlidingWindowLog(5, time.Second).WithMinInterval(100 * time.Millisecond).CountingDenied(),
	} {
		found := admissions(t, limit, 3)
		for i, a := range found {
			total := int64(0)
			for _, b := range found[:i+1] {
				if b.at > a.at-micros(limit.Window) {
					total += b.permits
				}
			}
			if total > limit.Capacity {
				t.Fatalf("%s admitted %d in the second up to %s", DescribeLimit(limit), total, a.at)
			}
			if i > 0 && a.at-found[i-1].at < micros(limit.MinInterval) {
				t.Fatalf("%s admitted at %s and %s", DescribeLimit(limit), found[i-1].at, a.at)
			}
		}
	}
}

// Counter: "estimate x W = previous x (W - e) + current x W", of which "the
// estimate never exceeds L".
func TestOracleCounterBound(t *testing.T) {
	limit := stint.SlidingWindowCounter(5, 1_000_003*time.Microsecond)
	found := admissions(t, limit, 4)
	length := micros(limit.Window)
	for i, a := range found {
		start := a.at - a.at%length
		previous, current := int64(0), int64(0)
		for _, b := range found[:i+1] {
			switch b.at - b.at%length {
			case start:
				current += b.permits
			case start - length:
				previous += b.permits
			}
		}
		estimate := product(previous, int64(length-(a.at-start)))
		estimate.Add(estimate, product(current, int64(length)))
		if bound := new(big.Int).Mul(big.NewInt(limit.Capacity), big.NewInt(int64(length))); estimate.Cmp(bound) > 0 {
			t.Fatalf("at %s previous %d and current %d exceed the limit", a.at, previous, current)
		}
	}
}
