package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// broken is a reference store with one fault: before changes what it is asked,
// after what it answers. Either may be nil.
type broken struct {
	*reference
	before func(op *stint.Op, now *stint.Instant)
	after  func(op stint.Op, d *stint.Decision)
	forget func(o *Oracle, now stint.Instant)
}

func (b *broken) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, err
	}
	if err := op.Validate(); err != nil {
		return stint.Decision{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	asked := op
	if b.before != nil {
		b.before(&asked, &now)
	}
	d, outcomes := b.oracle.Decide(asked, now)
	if b.forget != nil {
		b.forget(b.oracle, now)
	}
	copy(op.Each, outcomes)
	d.At = b.clock.Now()
	if b.after != nil {
		b.after(op, &d)
	}
	return d, nil
}

func (b *broken) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for i, op := range ops {
		results[i].Decision, results[i].Err = b.Decide(ctx, op)
	}
}

func newBroken(like broken) NewStore {
	return func(_ testing.TB, clock *Clock) stint.Store {
		b := like
		b.reference = &reference{clock: clock, oracle: NewOracle()}
		return &b
	}
}

// firstFailure replays sequences until one fails.
func firstFailure(t *testing.T, newStore NewStore, algorithm stint.Algorithm, sequences uint64) (Sequence, error) {
	t.Helper()
	for seed := range sequences {
		sequence := Generate(seed, algorithm, sequenceLength)
		if err := replayFresh(t, newStore, sequence); err != nil {
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
		store      broken
		algorithms []stint.Algorithm
	}{
		{"waits in milliseconds", broken{after: func(_ stint.Op, d *stint.Decision) {
			if d.RetryAfter != stint.Never {
				d.RetryAfter = d.RetryAfter.Truncate(time.Millisecond)
			}
		}}, all},
		{"a wait a microsecond too long", broken{after: func(_ stint.Op, d *stint.Decision) {
			if d.RetryAfter > 0 && d.RetryAfter != stint.Never {
				d.RetryAfter += time.Microsecond
			}
		}}, all},
		{"time in milliseconds", broken{before: func(_ *stint.Op, now *stint.Instant) { *now -= *now % 1000 }}, all},
		{"Remaining in debt", broken{after: func(op stint.Op, d *stint.Decision) {
			if op.Verb == stint.Settle && d.Applied == op.Permits && d.Remaining == 0 {
				d.Remaining = -1
			}
		}}, all},
		{"peeks that take", broken{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Peek {
				op.Verb = stint.Take
			}
		}}, all},
		{"tries that are takes", broken{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Try {
				op.Verb = stint.Take
			}
		}}, []stint.Algorithm{stint.AlgorithmSlidingWindowLog}},
		{"resets that refund", broken{before: func(op *stint.Op, _ *stint.Instant) {
			if op.Verb == stint.Reset && op.Policy.Limit(0).Algorithm != stint.AlgorithmLeakyBucket && op.And == nil {
				*op = operation(stint.Settle, op.Key, op.Policy, -settleBound)
			}
		}}, []stint.Algorithm{stint.AlgorithmTokenBucket}},
		{"doubles for the rate", broken{before: func(op *stint.Op, _ *stint.Instant) {
			l := op.Policy.Limit(0)
			if !l.IsBucket() || op.Policy.Len() > 1 || op.And != nil {
				return
			}
			l.Rate = stint.Per(1, max(stint.MinPeriod, (l.Rate.Period/time.Duration(l.Rate.Permits)).Truncate(time.Microsecond)))
			if p, err := stint.NewPolicy(op.Policy.Name(), l); err == nil {
				op.Policy = p
			}
		}}, buckets},
		{"keys cut at a colon", broken{before: func(op *stint.Op, _ *stint.Instant) {
			if op.And == nil {
				prefix, rest, _ := strings.Cut(op.Key, ":")
				op.Key = prefix + strings.SplitN(rest, ":", 2)[0]
			}
		}}, all},
		{"no deciding limit", broken{after: func(_ stint.Op, d *stint.Decision) { d.Index = 0 }}, all},
		{
			"states dropped a second early",
			broken{forget: forgetting(func(c candidate) stint.Instant { return c.dropFrom - second })},
			[]stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmFixedWindow},
		},
	} {
		for _, algorithm := range row.algorithms {
			if _, err := firstFailure(t, newBroken(row.store), algorithm, 150); err == nil {
				t.Errorf("%s: %s was not caught", algorithm, row.name)
			}
		}
	}
}

// A store may drop a state once it has been worthless for longer than the margin of
// its TTL, and after a step back that shows (ALGORITHMS.md, time and arithmetic).
func TestForgetfulStorePasses(t *testing.T) {
	forgetful := newBroken(broken{forget: forgetting(func(c candidate) stint.Instant { return c.dropFrom })})
	for _, algorithm := range stint.Algorithms() {
		if sequence, err := firstFailure(t, forgetful, algorithm, 40); err != nil {
			t.Errorf("%s, seed %d: %v", algorithm, sequence.Seed, err)
		}
	}
}

// After a step back both answers are accepted, but a store must stay with one.
func TestOracleForgetting(t *testing.T) {
	policy := policyOf(t, stint.FixedWindow(5, 10*time.Second))
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

// A failing sequence is cut down to the operations that matter, and printed.
func TestMinimise(t *testing.T) {
	// A store that forgets a reset's effect on what was charged.
	newStore := newBroken(broken{before: func(op *stint.Op, _ *stint.Instant) {
		if op.Verb == stint.Reset {
			op.Verb, op.Permits = stint.Peek, 1
		}
	}})
	sequence, err := firstFailure(t, newStore, stint.AlgorithmFixedWindow, 50)
	if err == nil {
		t.Fatal("the broken store was not caught")
	}
	replays := 0
	short, fault := Minimise(sequence, 500, func(s Sequence) error {
		replays++
		return replayFresh(t, newStore, s)
	})
	if fault == nil || len(short.Steps) > 2 || replays > 500 {
		t.Errorf("%d steps after %d replays, fault %v:\n%s", len(short.Steps), replays, fault, short)
	}
	if text := short.String(); !strings.Contains(text, "reset of key") || !strings.Contains(text, "P1 = ") {
		t.Errorf("unreadable:\n%s", text)
	}
	if passing, fault := Minimise(sequence, 500, func(Sequence) error { return nil }); fault != nil || len(passing.Steps) != len(sequence.Steps) {
		t.Errorf("a sequence that passes became %d steps, fault %v", len(passing.Steps), fault)
	}
}

// An explanation names the field, both values, the operation and the state.
func TestCheckExplains(t *testing.T) {
	oracle := NewOracle()
	policy := policyOf(t, stint.TokenBucket(3, stint.PerSecond(3)).Named("api"))
	op := operation(stint.Take, "user:42", policy, 2)
	d, _ := oracle.Decide(op, noon)
	d.Remaining, d.RetryAfter = 1, time.Second
	err := oracle.Check(op, noon, d, nil)
	if err == nil {
		t.Fatal("a wrong answer was accepted")
	}
	for _, part := range []string{
		"2026-01-01T12:00:00.000000Z", "take 2", `"user:42"`, `TokenBucket(3, 3/s).Named("api")`,
		"Allowed: got true, expected false", "RetryAfter: got 1s (1000000us), expected 333.334ms (333334us)", "was {capacity 3",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the explanation lacks %q:\n%v", part, err)
		}
	}
}
