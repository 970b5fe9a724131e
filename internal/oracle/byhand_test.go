package oracle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
)

// An exampleStep is a step of a hand-computed example: an operation so long after noon, and what it
// answers. A wait is in microseconds; -1 is never.
type exampleStep struct {
	at      stint.Instant
	verb    stint.Verb
	permits int64
	allowed bool
	left    int64
	retry   int64
	reset   int64
	delay   int64
	grows   int64
	applied int64
}

const (
	take, try, peek, settle, reset = stint.VerbTake, stint.VerbTry, stint.VerbPeek, stint.VerbSettle, stint.VerbReset

	never = -1
	s     = 1_000_000
)

func TestOracleByHand(t *testing.T) {
	for _, example := range []struct {
		name  string
		limit stint.Limit
		steps []exampleStep
	}{
		// 3 permits per second are 333,333 1/3 us each: a wait is rounded up, the state not.
		{"token bucket", stint.TokenBucket(3, stint.PerSecond(3)), []exampleStep{
			{0, take, 1, true, 2, 0, 333_334, 0, 333_334, 0},
			{0, take, 2, true, 0, 0, 1 * s, 0, 333_334, 0},
			{0, take, 1, false, 0, 333_334, 1 * s, 0, 333_334, 0},
			{0, take, 3, false, 0, 1 * s, 1 * s, 0, 333_334, 0},
			{0, take, 4, false, 0, never, 1 * s, 0, 333_334, 0},
			{333_333, take, 1, false, 0, 1, 666_667, 0, 1, 0},
			{333_334, take, 1, true, 0, 0, 1 * s, 0, 333_333, 0},
			{666_667, take, 1, true, 0, 0, 1 * s, 0, 333_333, 0},
			{1 * s, take, 1, true, 0, 0, 1 * s, 0, 333_334, 0},
			{2 * s, peek, 3, true, 3, 0, 0, 0, 0, 0},
			{2 * s, settle, 5, true, 0, 0, 1_666_667, 0, 1 * s, 5},                    // level -2
			{2 * s, settle, 5, true, 0, 0, 2 * s, 0, 1_333_334, 1},                    // no deeper than -3
			{2*s + 1, settle, 5, true, 0, 0, 1_999_999, 0, 1_333_333, 0},              // level -3 and a bit: no whole permit
			{1 * s, take, 1, false, 0, 2_333_334, 3 * s, 0, 2_333_334, 0},             // the clock stepped back
			{2 * s, settle, -100, true, 3, 0, 0, 0, 0, -6},                            // no fuller than full
			{2 * s, settle, -1, true, 3, 0, 0, 0, 0, 0},                               // nothing to refund
			{2*s - 1, take, 3, true, 0, 0, 1*s + 1, 0, 333_335, 0},                    // counts from the newest time
			{2 * s, reset, 0, true, 3, 0, 0, 0, 0, 0},                                 // as new
			{1 * s, take, 1, true, 2, 0, 333_334, 0, 333_334, 0},                      // even its time
			{1*s + 333_333, settle, -1, true, 3, 0, 0, 0, 0, -1},                      // part of a permit short: one refunded
			{400 * 365 * 24 * 3600 * s / 8, peek, 1, true, 3, 0, 0, 0, 0, 0},          // decades later
			{400 * 365 * 24 * 3600 * s / 8, try, 3, true, 0, 0, 1 * s, 0, 333_334, 0}, // and still exact
		}},
		// C + 1 at once: C admitted with delays 0, 1, 2 ... intervals.
		{"leaky bucket", stint.LeakyBucket(3, stint.PerSecond(3)), []exampleStep{
			{0, take, 1, true, 2, 0, 333_334, 0, 333_334, 0},
			{0, take, 1, true, 1, 0, 666_667, 333_334, 333_334, 0},
			{0, peek, 1, true, 1, 0, 666_667, 666_667, 333_334, 0},
			{0, take, 1, true, 0, 0, 1 * s, 666_667, 333_334, 0},
			{0, take, 1, false, 0, 333_334, 1 * s, 0, 333_334, 0},
			{0, take, 4, false, 0, never, 1 * s, 0, 333_334, 0},
			{333_333, take, 1, false, 0, 1, 666_667, 0, 1, 0},
			{333_334, take, 1, true, 0, 0, 1 * s, 666_666, 333_333, 0},
			{333_334, settle, 9, true, 0, 0, 2 * s, 0, 1_333_333, 3}, // C + max_debt in the queue
			{333_334, take, 1, false, 0, 1_333_333, 2 * s, 0, 1_333_333, 0},
			{3 * s, take, 2, true, 1, 0, 666_667, 0, 333_334, 0}, // idle time earns no credit
			{3*s + 333_334, take, 1, true, 1, 0, 666_666, 333_333, 333_333, 0},
			{3 * s, take, 1, true, 0, 0, 1_333_334, 1 * s, 666_667, 0}, // stepped back: nothing drained since
		}},
		{"fixed window", stint.FixedWindow(3, 10*time.Second), []exampleStep{
			{4 * s, take, 2, true, 1, 0, 6 * s, 0, 6 * s, 0},
			{4 * s, take, 2, false, 1, 6 * s, 6 * s, 0, 6 * s, 0},
			{4 * s, take, 4, false, 1, never, 6 * s, 0, 6 * s, 0},
			{5 * s, settle, 9, true, 0, 0, 5 * s, 0, 5 * s, 4}, // count 6
			{5 * s, settle, -2, true, 0, 0, 5 * s, 0, 5 * s, -2},
			{10*s - 1, take, 1, false, 0, 1, 1, 0, 1, 0},
			{10 * s, take, 3, true, 0, 0, 10 * s, 0, 10 * s, 0},
			{10*s - 1, take, 1, false, 0, 10*s + 1, 10*s + 1, 0, 10*s + 1, 0}, // the newest window counts
			{12 * s, settle, -9, true, 3, 0, 0, 0, 0, -3},
		}},
		{"window from the first request", stint.FixedWindow(3, 10*time.Second).FromFirst(), []exampleStep{
			{4 * s, take, 4, false, 3, never, 0, 0, 0, 0}, // a denied request begins none
			{5 * s, take, 2, true, 1, 0, 10 * s, 0, 10 * s, 0},
			{15*s - 1, take, 2, false, 1, 1, 1, 0, 1, 0},
			{15 * s, peek, 3, true, 3, 0, 0, 0, 0, 0},
			{17 * s, settle, 2, true, 1, 0, 10 * s, 0, 10 * s, 2}, // a charge begins one
			{18 * s, settle, -2, true, 3, 0, 0, 0, 0, -2},         // all is given back: there is none
			{19 * s, take, 3, true, 0, 0, 10 * s, 0, 10 * s, 0},
			{18 * s, take, 1, false, 0, 11 * s, 11 * s, 0, 11 * s, 0}, // the newest window counts
		}},
		{"sliding window log", stint.SlidingWindowLog(3, 10*time.Second), []exampleStep{
			{0, take, 1, true, 2, 0, 10 * s, 0, 10 * s, 0},
			{1 * s, take, 2, true, 0, 0, 10 * s, 0, 9 * s, 0},
			{1 * s, take, 1, false, 0, 9 * s, 10 * s, 0, 9 * s, 0},
			{1 * s, take, 2, false, 0, 10 * s, 10 * s, 0, 9 * s, 0},
			{10*s - 1, take, 1, false, 0, 1, 1*s + 1, 0, 1, 0},
			{10 * s, take, 1, true, 0, 0, 10 * s, 0, 1 * s, 0}, // an entry leaves at exactly its time + W
			{10 * s, settle, 9, true, 0, 0, 10 * s, 0, 10 * s, 3},
			{10 * s, settle, -3, true, 0, 0, 10 * s, 0, 10 * s, -3}, // the two of 1 s and one of 10 s
			{11 * s, settle, -1, true, 1, 0, 9 * s, 0, 9 * s, -1},
			{9 * s, take, 1, true, 0, 0, 11 * s, 0, 11 * s, 0}, // as if at 10 s
			{20 * s, peek, 3, true, 3, 0, 0, 0, 0, 0},
		}},
		{"min_interval", stint.SlidingWindowLog(9, 10*time.Second).WithMinInterval(3 * time.Second), []exampleStep{
			{0, take, 5, true, 4, 0, 10 * s, 0, 10 * s, 0},
			{1 * s, take, 1, false, 4, 2 * s, 9 * s, 0, 9 * s, 0},
			{3*s - 1, take, 5, false, 4, 7*s + 1, 7*s + 1, 0, 7*s + 1, 0},
			{3 * s, take, 1, true, 3, 0, 10 * s, 0, 7 * s, 0},
			{4 * s, settle, -6, true, 9, 0, 2 * s, 0, 0, -6}, // its time is remembered
			{4 * s, take, 1, false, 9, 2 * s, 2 * s, 0, 0, 0},
			{5 * s, settle, 1, true, 8, 0, 10 * s, 0, 10 * s, 1}, // a charge is no request
			{6 * s, take, 1, true, 7, 0, 10 * s, 0, 9 * s, 0},
		}},
		{"count_denied", stint.SlidingWindowLog(2, 10*time.Second).CountingDenied(), []exampleStep{
			{0, take, 2, true, 0, 0, 10 * s, 0, 10 * s, 0},
			{4 * s, try, 1, false, 0, 6 * s, 10*s - 4*s, 0, 6 * s, 0},
			{4 * s, take, 1, false, 0, 6 * s, 10 * s, 0, 6 * s, 0},
			{4 * s, take, 2, false, 0, 10 * s, 10 * s, 0, 10 * s, 0},
			{5 * s, take, 3, false, 0, never, 10 * s, 0, 10 * s, 0},
			{15 * s, take, 2, true, 0, 0, 10 * s, 0, 10 * s, 0},
		}},
		// previous x (W - e) + current x W against L x W.
		{"sliding window counter", stint.SlidingWindowCounter(4, 10*time.Second), []exampleStep{
			{0, take, 3, true, 1, 0, 20 * s, 0, 10*s + 3_333_334, 0},
			{0, take, 2, false, 1, 10*s + 3_333_334, 20 * s, 0, 10*s + 3_333_334, 0},
			{9 * s, take, 1, true, 0, 0, 11 * s, 0, 3_500_000, 0},
			{9 * s, take, 1, false, 0, 3_500_000, 11 * s, 0, 3_500_000, 0}, // f = floor(3 x W / 4)
			{9 * s, take, 4, false, 0, 11 * s, 11 * s, 0, 3_500_000, 0},
			{12_499_999, take, 1, false, 0, 1, 7_500_001, 0, 1, 0},
			{12_500_000, take, 1, true, 0, 0, 17_500_000, 0, 2_500_000, 0},
			{12_500_000, settle, -3, true, 2, 0, 17_500_000, 0, 7_500_000, -3}, // of the previous first
			{12_500_000, settle, -9, true, 4, 0, 0, 0, 0, -2},
		}},
	} {
		t.Run(example.name, func(t *testing.T) {
			oracle, policy := New(0), policyOf(t, "", example.limit)
			for i, l := range example.steps {
				byHand(t, oracle, policy, i, 0, l)
			}
		})
	}
}

// A keptStep is an example of an operation that leaves permits to others.
type keptStep struct {
	keep int64
	exampleStep
}

// What is kept is taken off the capacity, but in what a Settle charges or refunds.
func TestOracleKeepByHand(t *testing.T) {
	for _, example := range []struct {
		name  string
		limit stint.Limit
		steps []keptStep
	}{
		{"token bucket", stint.TokenBucket(3, stint.PerSecond(3)), []keptStep{
			{1, exampleStep{0, take, 1, true, 1, 0, 333_334, 0, 333_334, 0}},
			{1, exampleStep{0, take, 2, false, 1, 333_334, 333_334, 0, 333_334, 0}},
			{1, exampleStep{0, take, 1, true, 0, 0, 666_667, 0, 333_334, 0}},
			{1, exampleStep{0, take, 1, false, 0, 333_334, 666_667, 0, 333_334, 0}},
			{0, exampleStep{0, take, 1, true, 0, 0, 1 * s, 0, 333_334, 0}}, // another may have the last one
			{1, exampleStep{0, settle, 2, true, 0, 0, 1_666_667, 0, 1_333_334, 2}},
			{2, exampleStep{0, settle, -100, true, 1, 0, 0, 0, 0, -5}},
			{2, exampleStep{0, take, 2, false, 1, never, 0, 0, 0, 0}}, // nothing is used: it can't grow
			{3, exampleStep{0, take, 1, false, 0, never, 0, 0, 0, 0}},
			{0, exampleStep{0, take, 2, true, 1, 0, 666_667, 0, 333_334, 0}},
			{bounds.MaxPermits, exampleStep{0, peek, 1, false, 0, never, 666_667, 0, 0, 0}},
			{2, exampleStep{0, reset, 0, true, 1, 0, 0, 0, 0, 0}},
		}},
		{"leaky bucket", stint.LeakyBucket(3, stint.PerSecond(3)), []keptStep{
			{1, exampleStep{0, take, 1, true, 1, 0, 333_334, 0, 333_334, 0}},
			{1, exampleStep{0, take, 1, true, 0, 0, 666_667, 333_334, 333_334, 0}},
			{1, exampleStep{0, take, 1, false, 0, 333_334, 666_667, 0, 333_334, 0}},
			{0, exampleStep{0, take, 1, true, 0, 0, 1 * s, 666_667, 333_334, 0}},
			{2, exampleStep{0, peek, 1, false, 0, 1 * s, 1 * s, 0, 1 * s, 0}},
			{2, exampleStep{0, peek, 2, false, 0, never, 1 * s, 0, 1 * s, 0}},
		}},
		{"fixed window", stint.FixedWindow(3, 10*time.Second), []keptStep{
			{2, exampleStep{4 * s, take, 1, true, 0, 0, 6 * s, 0, 6 * s, 0}},
			{2, exampleStep{4 * s, take, 1, false, 0, 6 * s, 6 * s, 0, 6 * s, 0}},
			{2, exampleStep{4 * s, take, 2, false, 0, never, 6 * s, 0, 6 * s, 0}},
			{1, exampleStep{4 * s, take, 1, true, 0, 0, 6 * s, 0, 6 * s, 0}},
			{2, exampleStep{5 * s, settle, 9, true, 0, 0, 5 * s, 0, 5 * s, 4}},
		}},
		{"sliding window log", stint.SlidingWindowLog(3, 10*time.Second), []keptStep{
			{1, exampleStep{0, take, 1, true, 1, 0, 10 * s, 0, 10 * s, 0}},
			{1, exampleStep{1 * s, take, 2, false, 1, 9 * s, 9 * s, 0, 9 * s, 0}},
			{1, exampleStep{1 * s, take, 1, true, 0, 0, 10 * s, 0, 9 * s, 0}},
			{1, exampleStep{1 * s, take, 2, false, 0, 10 * s, 10 * s, 0, 9 * s, 0}},
			{1, exampleStep{1 * s, take, 3, false, 0, never, 10 * s, 0, 9 * s, 0}},
		}},
		// A denied request is recorded as it is, at most the limit, whatever is kept.
		{"count_denied", stint.SlidingWindowLog(3, 10*time.Second).CountingDenied(), []keptStep{
			{2, exampleStep{0, take, 1, true, 0, 0, 10 * s, 0, 10 * s, 0}},
			{2, exampleStep{4 * s, take, 1, false, 0, 10 * s, 10 * s, 0, 10 * s, 0}},
			{0, exampleStep{4 * s, peek, 1, true, 1, 0, 10 * s, 0, 6 * s, 0}},
			{1, exampleStep{5 * s, take, 9, false, 0, never, 10 * s, 0, 10 * s, 0}},
			{0, exampleStep{15 * s, take, 3, true, 0, 0, 10 * s, 0, 10 * s, 0}},
		}},
		{"sliding window counter", stint.SlidingWindowCounter(4, 10*time.Second), []keptStep{
			{1, exampleStep{0, take, 3, true, 0, 0, 20 * s, 0, 13_333_334, 0}},
			{1, exampleStep{0, take, 1, false, 0, 13_333_334, 20 * s, 0, 13_333_334, 0}},
			{2, exampleStep{0, take, 3, false, 0, never, 20 * s, 0, 16_666_667, 0}},
			{0, exampleStep{0, take, 1, true, 0, 0, 20 * s, 0, 12_500_000, 0}},
			{1, exampleStep{0, settle, -2, true, 1, 0, 20 * s, 0, 15 * s, -2}},
		}},
	} {
		t.Run(example.name, func(t *testing.T) {
			oracle, policy := New(0), policyOf(t, "", example.limit)
			for i, l := range example.steps {
				byHand(t, oracle, policy, i, l.keep, l.exampleStep)
			}
		})
	}
}

func byHand(t *testing.T, oracle *Oracle, policy *stint.Policy, i int, keep int64, l exampleStep) {
	t.Helper()
	op, limit := operation(l.verb, "k", policy, l.permits), policy.Limit(0)
	op.Keep = keep
	retry := time.Duration(l.retry) * time.Microsecond
	if l.retry == never {
		retry = stint.Never
	}
	outcome := stint.Outcome{
		Allowed: l.allowed, Limit: limit.Capacity, Remaining: l.left, RetryAfter: retry, Applied: l.applied,
		ResetAfter: time.Duration(l.reset) * time.Microsecond, Delay: time.Duration(l.delay) * time.Microsecond,
		GrowsAfter: time.Duration(l.grows) * time.Microsecond,
	}
	decision := stint.Decision{
		Allowed: l.allowed, Limit: limit.Capacity, Remaining: l.left, RetryAfter: retry, Applied: l.applied,
		ResetAfter: outcome.ResetAfter, Delay: outcome.Delay, At: noon + l.at,
	}
	if _, err := oracle.Check(op, noon+l.at, Answer{Decision: decision, Each: []stint.Outcome{outcome}}); err != nil {
		t.Errorf("line %d, the oracle expects otherwise: %v", i, err)
		oracle.Decide(op, noon+l.at)
	}
}

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

// Calendar windows against the dates of clock changes in 2026.
func TestOracleCalendar(t *testing.T) {
	for _, row := range []struct {
		unit           stint.Calendar
		zone           string
		at, start, end string
	}{
		{stint.CalendarMinute, "", "2026-05-05T10:20:30Z", "2026-05-05T10:20:00Z", "2026-05-05T10:21:00Z"},
		{stint.CalendarHour, "Asia/Kathmandu", "2026-05-05T10:20:30Z", "2026-05-05T10:15:00Z", "2026-05-05T11:15:00Z"},
		{stint.CalendarDay, "Asia/Kathmandu", "2026-05-05T18:14:59Z", "2026-05-04T18:15:00Z", "2026-05-05T18:15:00Z"},
		{stint.CalendarWeek, "UTC", "2026-05-05T10:20:30Z", "2026-05-04T00:00:00Z", "2026-05-11T00:00:00Z"},
		{stint.CalendarWeek, "UTC", "2026-05-03T10:20:30Z", "2026-04-27T00:00:00Z", "2026-05-04T00:00:00Z"},
		{stint.CalendarMonth, "UTC", "2028-02-29T10:20:30Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		{stint.CalendarMonth, "America/New_York", "2026-03-31T12:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"},
		{stint.CalendarYear, "Europe/Berlin", "2026-12-31T23:00:00Z", "2026-12-31T23:00:00Z", "2027-12-31T23:00:00Z"},
		{stint.CalendarYear, "Europe/Berlin", "2026-12-31T22:59:59Z", "2025-12-31T23:00:00Z", "2026-12-31T23:00:00Z"},
		// 02:00 to 03:00 is skipped: the hour from 01:00 is followed by that from 03:00.
		{stint.CalendarHour, "Europe/Berlin", "2026-03-29T00:59:59Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		{stint.CalendarHour, "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		{stint.CalendarDay, "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		// 02:00 to 03:00 is repeated: one window of two hours.
		{stint.CalendarHour, "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{stint.CalendarHour, "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{stint.CalendarMinute, "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T01:31:00Z"},
		{stint.CalendarDay, "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		// Half an hour, from 01:30 to 02:00, is repeated.
		{stint.CalendarHour, "Australia/Lord_Howe", "2026-04-04T15:10:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:30:00Z"},
		{stint.CalendarHour, "Australia/Lord_Howe", "2026-04-04T15:30:00Z", "2026-04-04T15:30:00Z", "2026-04-04T16:30:00Z"},
		// Half an hour, from 02:00 to 02:30, is skipped: the hour is half as long.
		{stint.CalendarHour, "Australia/Lord_Howe", "2026-10-03T15:30:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"},
		// Midnight does not exist: the day starts at 01:00.
		{stint.CalendarDay, "America/Havana", "2026-03-08T05:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{stint.CalendarHour, "America/Havana", "2026-03-08T04:59:59Z", "2026-03-08T04:00:00Z", "2026-03-08T05:00:00Z"},
		// Midnight comes twice: the first starts the day.
		{stint.CalendarDay, "America/Havana", "2026-11-01T05:10:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{stint.CalendarHour, "America/Havana", "2026-11-01T05:10:00Z", "2026-11-01T04:00:00Z", "2026-11-01T06:00:00Z"},
	} {
		at, start, end := instant(t, row.at), instant(t, row.start), instant(t, row.end)
		limit := stint.CalendarWindow(1, row.unit, row.zone)
		for _, when := range []stint.Instant{at, start, end - 1} {
			if s, e := newCalendarWindows().window(&limit, when); s != start || e != end {
				t.Errorf("the %s of %s in %s is %s to %s, expected %s to %s", row.unit, when, row.zone,
					s, e, row.start, row.end)
			}
		}
	}
}

func instant(t *testing.T, text string) stint.Instant {
	at := must.Get(time.Parse(time.RFC3339, text))(t)
	return stint.Instant(at.UnixMicro())
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
