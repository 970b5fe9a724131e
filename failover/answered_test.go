package failover_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
)

// TestAnswered: the hook is told of each Take that a mode answers, with the cause, and of nothing else.
func TestAnswered(t *testing.T) {
	tight := policy(t, "tight", stint.FixedWindow(1, time.Hour))
	for mode, want := range map[failover.Mode][]bool{failover.Open: {true, true}, failover.Closed: {false, false}, failover.Local: {true, false}} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []bool
				f := newFixture(t, func(c *failover.Config) {
					c.Mode = mode
					c.Answered = func(key string, allowed bool, cause error) {
						told = append(told, allowed)
						if key != "bob" {
							t.Errorf("the key is %q", key)
						}
						if !errors.Is(cause, stint.ErrUnavailable) && !strings.Contains(cause.Error(), "torn cable") {
							t.Errorf("the cause is %v", cause)
						}
					}
				})
				f.must("ann", tight)
				f.faulty.Inject(failWith(errors.New("torn cable")))
				for range 2 {
					_, _ = f.take("bob", tight)
					_, _ = f.Decide(t.Context(), op(stint.VerbPeek, "bob", tight, 1))
				}
				if len(told) != len(want) || told[0] != want[0] || told[1] != want[1] {
					t.Errorf("told of %v, want %v", told, want)
				}
			})
		})
	}
}
