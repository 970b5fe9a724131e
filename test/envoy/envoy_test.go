package envoy_test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestDifferential compares the subject with the reference, by random requests to random configurations. See the
// package for what it reads from the environment.
func TestDifferential(t *testing.T) {
	requests, seed := number(t, "ENVOY_DIFF_REQUESTS", 20_000), number(t, "ENVOY_DIFF_SEED", 1)
	only := number(t, "ENVOY_DIFF_DOMAIN", -1)
	collides, _ := strconv.ParseBool(os.Getenv("ENVOY_DIFF_COLLISIONS"))
	used := make(map[string]int)
	var asked, repeated int64
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			share := int(float64(requests) * v.share)
			c := newComparison(t, uint64(seed), v, collides, share)
			for _, d := range c.domains {
				d.retired = only >= 0 && d.number != only
			}
			began := time.Now()
			c.send(t.Context(), share)
			t.Logf("seed %d: %d requests, %d repeated at the end of a window, %v; %d over the limit, %d with a limit, %d refused",
				seed, c.asked.Load(), c.repeated.Load(), time.Since(began).Round(time.Millisecond), c.over.Load(),
				c.matched.Load(), c.failed.Load())
			for _, difference := range c.found {
				t.Error(difference)
			}
			for name, times := range c.used {
				used[name] += times
			}
			asked, repeated = asked+c.asked.Load(), repeated+c.repeated.Load()
			if c.over.Load()*20 < c.asked.Load() || c.matched.Load()*2 < c.asked.Load() {
				t.Error("too few requests find a limit, or go over it, to compare much")
			}
		})
	}
	if only >= 0 || t.Failed() {
		return
	}
	// What is repeated is compared afterwards; a busy machine repeats more.
	if asked < int64(requests)*999/1000 || repeated*20 > asked {
		t.Errorf("of %d requests %d were compared, of which all but one in a thousand have to be, and %d repeated", requests, asked, repeated)
	}
	for _, d := range differences {
		t.Logf("meant: %s: %d times", d.name, used[d.name])
		if used[d.name] == 0 && !d.elsewhere {
			t.Errorf("no request was answered differently on purpose: %s", d.name)
		}
	}
}
