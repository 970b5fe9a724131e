package storetest

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// firstFailure replays sequences until one fails.
func firstFailure(t *testing.T, newStore newStoreFunc, algorithm stint.Algorithm, sequences uint64) (Sequence, error) {
	t.Helper()
	for seed := range sequences {
		sequence := Generate(seed, algorithm, sequenceLength)
		c := newComparison(t, newStore)
		if err := Replay(t.Context(), c.store, c.clock, sequence); err != nil {
			return sequence, err
		}
	}
	return Sequence{}, nil
}

// forgetting makes a store drop each state at the time that at names.
func forgetting(at func(c candidate) stint.Instant) func(*Oracle, stint.Instant) {
	return func(o *Oracle, now stint.Instant) {
		for id, set := range o.states {
			if now >= at(set[0]) {
				delete(o.states, id)
			}
		}
	}
}

// The suite catches stores that are wrong in one point, for every algorithm that
// the point matters to, and names the field.
func TestBrokenStoresAreCaught(t *testing.T) {
	buckets := []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket}
	all := stint.Algorithms()
	for _, row := range []struct {
		name       string
		store      *reference
		algorithms []stint.Algorithm
	}{
		{"waits in milliseconds", &reference{after: func(_ stint.Op, d *stint.Decision) {
			if d.RetryAfter != stint.Never {
				d.RetryAfter = d.RetryAfter.Truncate(time.Millisecond)
			}
		}}, all},
		{"a wait a microsecond too long", &reference{after: func(_ stint.Op, d *stint.Decision) {
			if d.RetryAfter > 0 && d.RetryAfter != stint.Never {
				d.RetryAfter += time.Microsecond
			}
		}}, all},
		{"time in milliseconds", &reference{before: func(_ *stint.Op, now *stint.Instant) { *now -= *now % 1000 }}, all},
		{"Remaining in debt", &reference{after: func(op stint.Op, d *stint.Decision) {
			if op.Verb == stint.Settle && d.Applied == op.Permits && d.Remaining == 0 {
				d.Remaining = -1
			}
		}}, all},
		{"peeks that take", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Peek {
				op.Verb = stint.Take
			}
		}}, all},
		{"tries that are takes", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Try {
				op.Verb = stint.Take
			}
		}}, []stint.Algorithm{stint.AlgorithmSlidingWindowLog}},
		{"every cost is 1", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Take && op.Permits <= op.Policy.Limit(0).Capacity {
				op.Permits = 1
			}
		}}, all},
		{"nothing is kept for others", &reference{before: func(op *stint.Op, _ *stint.Instant) { op.Keep = 0 }}, all},
		{"what is kept is taken", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Take && op.Keep < op.Policy.Limit(0).Capacity && op.Permits <= op.Policy.Limit(0).Capacity {
				op.Permits, op.Keep = op.Permits+op.Keep, 0
			}
		}}, all},
		{"what is kept is no bound on the wait", &reference{after: func(op stint.Op, d *stint.Decision) {
			if op.Keep > 0 && d.RetryAfter == stint.Never && op.Permits <= d.Limit {
				d.RetryAfter = d.ResetAfter
			}
		}}, all},
		{"a settlement keeps", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Settle && op.Permits > 0 && op.And == nil {
				op.Permits = max(1, min(op.Permits, 2*stint.MaxPermits)-op.Keep)
			}
		}}, all},
		{"the way is not told", &reference{after: func(_ stint.Op, d *stint.Decision) { d.Via = 0 }}, all},
		{"the first way alone", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if i := slices.IndexFunc(op.And, func(c stint.Claim) bool { return c.Way == stint.Else }); i >= 0 && op.Verb != stint.Reset {
				op.And = op.And[:i]
			}
		}}, all},
		{"ways that keep nothing", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			op.And = slices.Clone(op.And)
			for i := range op.And {
				if op.And[i].Way != stint.Must {
					op.And[i].Keep = 0
				}
			}
		}}, all},
		{"the least of all ways decides", &reference{after: func(op stint.Op, d *stint.Decision) {
			for i, o := range op.Each[:min(len(op.Each), op.Limits())] {
				if op.HasWays() && d.Allowed && o.Remaining < d.Remaining {
					d.Index, d.Limit, d.Remaining, d.ResetAfter = int16(i), o.Limit, o.Remaining, o.ResetAfter
				}
			}
		}}, all},
		{"refunds are lost", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Settle && op.Permits < 0 {
				op.Verb, op.Permits = stint.Peek, 1
			}
		}}, []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowLog, stint.AlgorithmSlidingWindowCounter}},
		{"one claim of several", &reference{before: func(op *stint.Op, _ *stint.Instant) { op.And = op.And[:len(op.And)/2] }}, all},
		{"a step back is taken for a step forth", &reference{before: highest()}, all},
		{"resets that refund", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Reset && op.Policy.Limit(0).Algorithm != stint.AlgorithmLeakyBucket && op.And == nil {
				*op = operation(stint.Settle, op.Key, op.Policy, -settleBound)
			}
		}}, []stint.Algorithm{stint.AlgorithmTokenBucket}},
		{"doubles for the rate", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			l := op.Policy.Limit(0)
			if !l.IsBucket() || op.Policy.Len() > 1 || op.And != nil {
				return
			}
			l.Rate = stint.Per(1, max(stint.MinPeriod, (l.Rate.Period/time.Duration(l.Rate.Permits)).Truncate(time.Microsecond)))
			if p, err := stint.NewPolicy(op.Policy.Name(), l); err == nil {
				op.Policy = p
			}
		}}, buckets},
		{"keys cut at a colon", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.And == nil {
				prefix, rest, _ := strings.Cut(op.Key, ":")
				op.Key = prefix + strings.SplitN(rest, ":", 2)[0]
			}
		}}, all},
		{"no deciding limit", &reference{after: func(_ stint.Op, d *stint.Decision) { d.Index = 0 }}, all},
		{
			"states dropped a second early",
			&reference{forget: forgetting(func(c candidate) stint.Instant { return c.dropFrom - second })},
			[]stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmFixedWindow},
		},
	} {
		for _, algorithm := range row.algorithms {
			if _, err := firstFailure(t, like(row.store), algorithm, 150); err == nil {
				t.Errorf("%s: %s was not caught", algorithm, row.name)
			}
		}
	}
}

// A store may drop a state once it has been worthless for longer than the margin of
// its TTL, and after a step back that shows (ALGORITHMS.md, time and arithmetic).
func TestForgetfulStorePasses(t *testing.T) {
	forgetful := like(&reference{forget: forgetting(func(c candidate) stint.Instant { return c.dropFrom })})
	sequences := uint64(25)
	if testing.Short() {
		sequences = 5
	}
	for _, algorithm := range stint.Algorithms() {
		if sequence, err := firstFailure(t, forgetful, algorithm, sequences); err != nil {
			t.Errorf("%s, seed %d: %v", algorithm, sequence.Seed, err)
		}
	}
}

// After a step back both answers are accepted, but a store must stay with one.
func TestOracleForgetting(t *testing.T) {
	policy := policyOf(t, "", stint.FixedWindow(5, 10*time.Second))
	takeOne := operation(stint.Take, "k", policy, 1)
	for _, row := range []struct {
		name      string
		seen      time.Duration // how late the clock was meanwhile
		remaining int64         // of the first take after the step back to noon
		next      int64         // and of the second
		ok        bool
	}{
		{"kept", 30 * time.Second, 2, 1, true},
		{"dropped", 30 * time.Second, 4, 3, true},
		{"dropped and found again", 30 * time.Second, 4, 1, false},
		{"kept and then dropped", 30 * time.Second, 2, 4, false},
		{"dropped within the margin", 10*time.Second + 999*time.Millisecond, 4, 3, false},
		{"dropped right after it", 11 * time.Second, 4, 3, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			oracle := NewOracle()
			oracle.Decide(operation(stint.Take, "k", policy, 2), noon)
			oracle.Decide(operation(stint.Take, "other", policy, 2), noon.Add(row.seen))
			var errs []error
			for _, left := range []int64{row.remaining, row.next} {
				errs = append(errs, oracle.Check(takeOne, noon, stint.Decision{
					Allowed: true, Limit: 5, Remaining: left, ResetAfter: 10 * time.Second, At: noon,
				}, nil))
			}
			if err := errors.Join(errs...); (err == nil) != row.ok {
				t.Errorf("got %v, expected to be accepted: %t", err, row.ok)
			}
		})
	}
}

// highest makes a store whose clock never steps back.
func highest() func(op *stint.Op, now *stint.Instant) {
	var newest stint.Instant
	return func(_ *stint.Op, now *stint.Instant) {
		newest = max(newest, *now)
		*now = newest
	}
}

// Property tests of broken stores keep no files, don't shrink for long, and are the same each time.
func TestMain(m *testing.M) {
	if err := errors.Join(flag.Set("rapid.nofailfile", "true"), flag.Set("rapid.seed", "1"), flag.Set("rapid.shrinktime", "5m")); err != nil {
		panic(err)
	}
	m.Run()
}

// A recorder is a TB that records what a test reports.
type recorder struct {
	testing.TB
	text   strings.Builder
	failed bool
}

func (r *recorder) Logf(format string, args ...any)   { fmt.Fprintf(&r.text, format+"\n", args...) }
func (r *recorder) Errorf(format string, args ...any) { r.failed = true; r.Logf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }
func (r *recorder) Fail()                             { r.failed = true }
func (r *recorder) FailNow()                          { r.failed = true; runtime.Goexit() }
func (r *recorder) Failed() bool                      { return r.failed }

// watch runs a test that may fail.
func record(t *testing.T, test func(t testing.TB)) *recorder {
	seen := &recorder{TB: t}
	var group sync.WaitGroup
	group.Go(func() { test(seen) })
	group.Wait()
	return seen
}

// A store that takes the name of a policy for a pattern resets other policies, too.
func TestResetsByPatternAreCaught(t *testing.T) {
	pattern := &reference{reset: func(name string) string { return strings.ReplaceAll(name, "*", "a") }}
	if seen := record(t, func(t testing.TB) { testIdentity(t, like(pattern)) }); !strings.Contains(seen.text.String(), `reset of policy "rule/*"`) {
		t.Errorf("not caught: %s", seen.text.String())
	}
}

// The random sequences of a broken store are cut down to the operations that matter, and printed.
func TestRandomShrinks(t *testing.T) {
	for _, row := range []struct {
		name  string
		store *reference
		most  int // operations
		says  string
	}{
		{"resets that peek", &reference{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Reset {
				op.Verb, op.Permits = stint.Peek, 1
			}
		}}, 8, "reset 0 of key"},
		{"a wait a microsecond too long", &reference{after: func(_ stint.Op, d *stint.Decision) {
			if d.RetryAfter > 0 && d.RetryAfter != stint.Never {
				d.RetryAfter += time.Microsecond
			}
		}}, 8, "RetryAfter: got "},
		{"resets of no policy", &reference{reset: func(string) string { return "nobody" }}, 8, "reset of policy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			seen := record(t, func(t testing.TB) { testRandom(t, like(row.store), stint.AlgorithmFixedWindow, 5000) })
			text := seen.text.String()
			if n := strings.Count(text, "Z batch "); !seen.failed || n == 0 || n > row.most || !strings.Contains(text, row.says) || !strings.Contains(text, "-rapid.seed=") {
				t.Errorf("failed: %t with %d operations, expected at most %d, of which one is %q, and how to repeat it:\n%s", seen.failed, n, row.most, row.says, text)
			}
		})
	}
}

// An explanation names the field, both values, the operation and the state.
func TestCheckExplains(t *testing.T) {
	oracle := NewOracle()
	policy := policyOf(t, "", stint.TokenBucket(3, stint.PerSecond(3)).Named("api"))
	op := operation(stint.Take, "user:42", policy, 2)
	d, _ := oracle.Decide(op, noon)
	d.Remaining, d.RetryAfter = 1, time.Second
	err := oracle.Check(op, noon, d, nil)
	if err == nil {
		t.Fatal("a wrong answer was accepted")
	}
	for _, part := range []string{
		"2026-01-01T12:00:00.000000Z", "take 2", `"user:42"`, "Name api, Algorithm TOKEN_BUCKET, Capacity 3, Rate 3/s",
		"Allowed: got true, expected false", "RetryAfter: got 1s, expected 333.334ms", "was {capacity 3",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the explanation lacks %q:\n%v", part, err)
		}
	}
}
