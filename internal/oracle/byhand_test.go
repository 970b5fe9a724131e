package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

const (
	take, try, peek, reset = stint.VerbTake, stint.VerbTry, stint.VerbPeek, stint.VerbReset

	never = -1
	s     = 1_000_000
)

// Waits are what a search microsecond by microsecond finds.
func TestOracleWaitsByScanning(t *testing.T) {
	limits := []stint.Limit{
		stint.TokenBucket(4, stint.Per(7, 3*time.Millisecond)),
		stint.LeakyBucket(4, stint.Per(7, 3*time.Millisecond)),
		stint.FixedWindow(4, 1003*time.Microsecond),
		stint.SlidingWindowLog(4, 1003*time.Microsecond),
		stint.SlidingWindowLog(4, 1003*time.Microsecond).WithMinInterval(301 * time.Microsecond).CountingDenied(),
		stint.SlidingWindowCounter(4, 1003*time.Microsecond),
		stint.SlidingWindowCounter(40, 1009*time.Microsecond),
	}
	rng := rand.New(rand.NewPCG(1, 1))
	verbs := []stint.Verb{stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbSettle}
	for _, limit := range limits {
		policy := policyOf(t, "", limit)
		for round := range 8 {
			oracle, key := New(0), fmt.Sprint(round)
			now := noon
			for range 12 {
				now += stint.Instant(rng.IntN(3)) * stint.Instant(1+rng.IntN(400))
				op := operation(verbs[rng.IntN(4)], key, policy, 1+rng.Int64N(limit.Capacity))
				op.Keep = max(0, rng.Int64N(2*limit.Capacity)-limit.Capacity)
				a := oracle.Decide(op, now)
				for n, s := range oracle.worlds[0].states {
					read := s.read(limit, now)
					retry, grows := scan(now, func(at stint.Instant) bool { return read.admits(op.Permits, op.Keep, at) }),
						scan(now, func(at stint.Instant) bool { return read.remaining(op.Keep, at) > a.Decision.Remaining })
					if a.Decision.Remaining >= limit.Capacity-op.Keep {
						grows = 0
					}
					if op.Permits > limit.Capacity-op.Keep {
						retry = stint.Never
					}
					if !a.Decision.Allowed && a.Decision.RetryAfter != retry || a.Each[0].GrowsAfter != grows {
						t.Fatalf("%s, %s of %s: retry after %s, grows after %s; scanning finds %s, %s", DescribeLimit(limit), Describe(op),
							n.key, a.Decision.RetryAfter, a.Each[0].GrowsAfter, retry, grows)
					}
				}
			}
		}
	}
}

func scan(now stint.Instant, ok func(stint.Instant) bool) time.Duration {
	for at := now; at < now+20_000; at++ {
		if ok(at) {
			return wait(now, at)
		}
	}
	return stint.Never
}

// A clone answers as the oracle that it was taken from, and trying an operation on it leaves that
// as it was.
func TestClone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	policy := policyOf(t, "", stint.TokenBucket(5, stint.PerSecond(3)), stint.SlidingWindowLog(5, 2*time.Second), stint.SlidingWindowCounter(5, 2*time.Second))
	oracle, now, operations := New(0), noon, 2000
	if testing.Short() {
		operations = 200
	}
	for range operations {
		now += stint.Instant(random.IntN(s))
		op := operation(stint.Verb(random.IntN(int(stint.VerbSettle)+1)), "k", policy, 1+random.Int64N(6))
		before, one, other := oracle.String(), oracle.Clone(), oracle.Clone()
		answer := one.Decide(op, now).Decision
		if again := other.Decide(op, now).Decision; again != answer || one.String() != other.String() {
			t.Fatalf("%s of %d led to %s and to %s", op.Verb, op.Permits, one, other)
		}
		if oracle.String() != before {
			t.Fatalf("%s of %d made %s of %s", op.Verb, op.Permits, oracle, before)
		}
		if want := oracle.Decide(op, now).Decision; answer != want || oracle.String() != one.String() {
			t.Fatalf("%s of %d: %+v, want %+v", op.Verb, op.Permits, answer, want)
		}
	}
}

// noon is where the readable tests start: a round instant, at which windows of up to an hour and a day's half start.
const noon = stint.Instant(1_767_225_600_000_000) + 12*hour

func operation(verb stint.Verb, key string, policy *stint.Policy, permits int64) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}}
}

// policyOf makes a policy that is known to be valid.
func policyOf(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy(name, limits...))(t)
}
