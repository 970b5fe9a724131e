package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// A counter counts the script calls of a connection: of the script for one take, and of others.
type counter struct {
	redisconn.Conn
	short, whole int
}

func (c *counter) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	switch {
	case strings.Contains(script.Source, "argument()"):
		c.whole++
	case !ofLayout(script):
		c.short++
	}
	return c.Conn.Eval(ctx, script, keys, args)
}

// Takes are decided by the script for one take, in one call, unless the limit was changed.
func TestOneTakeIsOneShortCall(t *testing.T) {
	for _, tt := range []struct {
		limit, changed stint.Limit
	}{
		{stint.TokenBucket(5, stint.PerMinute(5)), stint.TokenBucket(6, stint.PerMinute(7))},
		{stint.LeakyBucket(5, stint.PerMinute(5)), stint.LeakyBucket(6, stint.PerMinute(7))},
		{stint.FixedWindow(5, time.Minute), stint.FixedWindow(5, 2*time.Minute)},
		{stint.SlidingWindowCounter(5, time.Minute), stint.SlidingWindowCounter(5, 2*time.Minute)},
	} {
		t.Run(tt.limit.Algorithm.String(), func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			conn := &counter{Conn: newConn(t)}
			store, _ := storeOn(t, conn, redisstore.Options{Now: clock.Now, Partitions: 1})
			reference := memstore.New(memstore.Config{Now: clock.Now})
			policy, changed := policyOf(t, "p", tt.limit), policyOf(t, "p", tt.changed)
			for i, step := range []struct {
				policy       *stint.Policy
				key          string
				permits      int64
				after        time.Duration
				short, whole int
			}{
				{policy, "a", 1, 0, 1, 0}, // the generation begins
				{policy, "a", 1, 0, 1, 0},
				{policy, "a", 3, 0, 1, 0},
				{policy, "a", 1, 0, 1, 0}, // denied
				{policy, "b", 2, time.Second, 1, 0},
				{policy, "b", 4, time.Second, 1, 0},            // denied
				{policy, "b", 2, 200 * time.Second, 1, 0},      // the generation turns
				{policy, "a", 1, 10 * time.Second, 1, 0},       // of the one before
				{policy, "a", 1, 0, 1, 0},                      // and written to the new one
				{changed, "a", 1, time.Second, 1, 1},           // what another limit wrote
				{policy, "a", 1, 0, 1, 1},                      // what the other one wrote
				{changed, "c", 1, 0, 1, 1},                     // not the first writer of the generation
				{policy, "c", 1, 1000 * time.Second, 1, 1},     // what another limit wrote, however long ago
				{policy, "c", 1, -1000 * time.Second, 1, 0},    // the clock is set back
				{policy, "d", 6, time.Second, 1, 0},            // more than ever fits
				{policy, "e", 1 << 40, time.Second, 1, 0},      // and far more
				{policy, "f", 1, 365 * 24 * time.Hour, 1, 0},   // a turn again
				{policy, "f", 4, 500 * time.Millisecond, 1, 0}, // and on
			} {
				clock.Set(clock.Instant().Add(step.after))
				conn.short, conn.whole = 0, 0
				o := op(stint.VerbTake, step.key, step.policy, step.permits)
				got, want := decide(t, store, o), decide(t, reference, o)
				if got != want {
					t.Fatalf("step %d: %+v, not %+v", i, got, want)
				}
				if conn.short != step.short || conn.whole != step.whole {
					t.Errorf("step %d: %d short and %d whole calls, not %d and %d", i, conn.short, conn.whole, step.short, step.whole)
				}
			}
		})
	}
}
