package oracle

import (
	"flag"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

var versionTraces = flag.Int("version-traces", 100, "traces of two versions in turn, of each pair")

// Two versions of a limit in turn, as in a rolling deployment or with plans, admit at most, over every interval [a, b]:
//
//	leaky buckets, and token buckets of one C or one time to full   C_max + R_max x (b - a) / P
//	other token buckets                                             C_max x (1 + (b - a) / the shortest time to full)
//	logs, over the shorter of the two lengths                       the larger limit
func TestVersionsInTurnAreBounded(t *testing.T) {
	for name, pair := range map[string][2]stint.Limit{
		"token, one capacity":     {stint.TokenBucket(10, stint.PerSecond(10)), stint.TokenBucket(10, stint.PerMinute(1))},
		"token, one time to full": {stint.TokenBucket(10, stint.PerSecond(10)), stint.TokenBucket(100, stint.PerSecond(100))},
		"token, a slow large one": {stint.TokenBucket(10, stint.PerSecond(10)), stint.TokenBucket(100, stint.PerHour(1))},
		"token, one rate":         {stint.TokenBucket(10, stint.PerSecond(10)), stint.TokenBucket(100, stint.PerSecond(10))},
		"token, odd rates":        {stint.TokenBucket(7, stint.Per(11, 3*time.Second)), stint.TokenBucket(5, stint.Per(3, 7*time.Second))},
		"leaky":                   {stint.LeakyBucket(10, stint.PerSecond(10)), stint.LeakyBucket(100, stint.PerHour(1))},
		"leaky, odd rates":        {stint.LeakyBucket(7, stint.Per(11, 3*time.Second)), stint.LeakyBucket(5, stint.Per(3, 7*time.Second))},
		"log":                     {stint.SlidingWindowLog(10, time.Second), stint.SlidingWindowLog(3, 5*time.Second)},
		"token, one version":      twice(stint.TokenBucket(5, stint.Per(7, 3*time.Second))),
		"token, 1.000003 s":       twice(stint.TokenBucket(5, stint.Per(11, 1_000_003*time.Microsecond))),
		"log, one version":        twice(stint.SlidingWindowLog(5, time.Second)),
		"log with intervals":      twice(stint.SlidingWindowLog(5, time.Second).WithMinInterval(100 * time.Millisecond)),
		"log that counts denials": twice(stint.SlidingWindowLog(5, time.Second).WithMinInterval(100 * time.Millisecond).CountingDenied()),
	} {
		t.Run(name, func(t *testing.T) {
			traces := *versionTraces
			if testing.Short() {
				traces = min(traces, 30)
			}
			for seed := range traces {
				checkVersionsInTurn(t, pair, uint64(seed))
			}
		})
	}
}

func twice(l stint.Limit) [2]stint.Limit { return [2]stint.Limit{l, l} }

// checkVersionsInTurn draws takes by one version or the other, some of which wait as long as they are told.
func checkVersionsInTurn(t *testing.T, pair [2]stint.Limit, seed uint64) {
	t.Helper()
	policies := [2]*stint.Policy{policyOf(t, "", pair[0]), policyOf(t, "", pair[1])}
	oracle, rng := New(0), rand.New(rand.NewPCG(seed, 6))
	now := noon
	for _, p := range policies { // a store keeps buckets for longer once it knows both
		oracle.Decide(operation(stint.VerbPeek, "k", p, 1), now)
	}
	most := mostInTurn(pair)
	var admitted []admission
	for range 60 {
		switch rng.IntN(5) {
		case 0:
			now += stint.Instant(rng.Int64N(int64(2 * second)))
		case 1, 2:
			now += stint.Instant(rng.Int64N(int64(second / 5)))
		}
		which := rng.IntN(2)
		n := 1 + rng.Int64N(pair[which].Capacity)
		d := oracle.Decide(operation(stint.VerbTake, "k", policies[which], n), now).Decision
		if !d.Allowed && d.RetryAfter < time.Minute && rng.IntN(2) == 0 {
			at := now.Add(d.RetryAfter)
			if early := oracle.Decide(operation(stint.VerbPeek, "k", policies[which], n), at-1).Decision; early.Allowed {
				t.Fatalf("seed %d: %d permits are told to wait %s, and are there a microsecond earlier", seed, n, d.RetryAfter)
			}
			now = at
			if d = oracle.Decide(operation(stint.VerbTake, "k", policies[which], n), now).Decision; !d.Allowed {
				t.Fatalf("seed %d: %d permits are not there after the wait that was told", seed, n)
			}
		}
		if !d.Allowed {
			continue
		}
		admitted = append(admitted, admission{at: now, permits: n})
		total := int64(0)
		for i := len(admitted) - 1; i >= 0; i-- {
			total += admitted[i].permits
			if bound := most(now - admitted[i].at); new(big.Rat).SetInt64(total).Cmp(bound) > 0 {
				t.Fatalf("seed %d: %d admitted in %s, at most %s are allowed", seed, total, wait(admitted[i].at, now), bound.FloatString(2))
			}
		}
	}
}

// mostInTurn is the bound for an interval of a length.
func mostInTurn(pair [2]stint.Limit) func(length stint.Instant) *big.Rat {
	a, b := pair[0], pair[1]
	capacity := max(a.Capacity, b.Capacity)
	perMicro := func(l stint.Limit) *big.Rat { return big.NewRat(l.Rate.Permits, l.Rate.Period.Microseconds()) }
	if !a.IsBucket() {
		window := min(micros(a.Window), micros(b.Window))
		return func(length stint.Instant) *big.Rat {
			if length >= window {
				return big.NewRat(1<<40, 1)
			}
			return big.NewRat(capacity, 1)
		}
	}
	rate := perMicro(a)
	if other := perMicro(b); other.Cmp(rate) > 0 {
		rate = other
	}
	full := func(l stint.Limit) *big.Rat { return new(big.Rat).Quo(big.NewRat(l.Capacity, 1), perMicro(l)) }
	if a.Algorithm == stint.AlgorithmTokenBucket && a.Capacity != b.Capacity && full(a).Cmp(full(b)) != 0 {
		shortest := full(a)
		if other := full(b); other.Cmp(shortest) < 0 {
			shortest = other
		}
		rate = new(big.Rat).Quo(big.NewRat(capacity, 1), shortest)
	}
	return func(length stint.Instant) *big.Rat {
		grown := new(big.Rat).Mul(rate, big.NewRat(int64(length), 1))
		return grown.Add(grown, big.NewRat(capacity, 1))
	}
}
