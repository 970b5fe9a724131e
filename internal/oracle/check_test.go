package oracle

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// After a step back both answers are accepted, but a store must stay with one.
func TestOracleForgetting(t *testing.T) {
	policy := policyOf(t, "", stint.FixedWindow(5, 10*time.Second))
	takeOne := operation(stint.VerbTake, "k", policy, 1)
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
			oracle := New(0)
			oracle.Decide(operation(stint.VerbTake, "k", policy, 2), noon)
			oracle.Decide(operation(stint.VerbTake, "other", policy, 2), noon.Add(row.seen))
			var errs []error
			for _, left := range []int64{row.remaining, row.next} {
				_, err := oracle.Check(takeOne, noon, Answer{Decision: stint.Decision{
					Allowed: true, Limit: 5, Remaining: left, ResetAfter: 10 * time.Second, At: noon,
				}})
				errs = append(errs, err)
			}
			if err := errors.Join(errs...); (err == nil) != row.ok {
				t.Errorf("got %v, expected to be accepted: %t", err, row.ok)
			}
		})
	}
}

// An explanation names the field, both values, the operation and the state.
func TestCheckExplains(t *testing.T) {
	oracle := New(0)
	policy := policyOf(t, "", stint.TokenBucket(3, stint.PerSecond(3)).Named("api"))
	op := operation(stint.VerbTake, "user:42", policy, 2)
	d := oracle.Decide(op, noon).Decision
	d.Remaining, d.RetryAfter = 1, time.Second
	_, err := oracle.Check(op, noon, Answer{Decision: d})
	if err == nil {
		t.Fatal("a wrong answer was accepted")
	}
	for _, part := range []string{
		"2026-01-01T12:00:00.000000Z", "take 2", `"user:42"`, "Name api, Algorithm TOKEN_BUCKET, Capacity 3, Rate 3/s",
		"Allowed: got true, expected false", "RetryAfter: got 1s, expected 333.334ms", "was {by {Name api",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the explanation lacks %q:\n%v", part, err)
		}
	}
}
