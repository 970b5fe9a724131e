package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// A full server refuses an admission also when a generation has to be replaced, which begins by renaming a key: that it would
// take, and then all that the script writes. A probe of package failover would so find the server well.
func TestFullServerRefusesTurns(t *testing.T) {
	own := testredis.Start(t, testredis.Config("maxmemory-policy", "noeviction"))
	clock := storetest.NewClock(dawn)
	store := newStoreAt(t, own, redisstore.Options{Now: clock.Now})
	one := policyOf(t, "one", stint.FixedWindow(10, time.Second))
	two := policyOf(t, "two", stint.FixedWindow(10, time.Second), stint.TokenBucket(10, stint.PerSecond(1)))
	memory := func(size string) {
		t.Helper()
		must.Get(own.Do("CONFIG", "SET", "maxmemory", size))(t)
	}
	for _, policy := range []*stint.Policy{one, two} {
		take(t, store, "ann", policy, 1)
		memory("1")
		for range 5 {
			clock.Set(clock.Instant() + stint.Instant(time.Hour/time.Microsecond))
			if d, err := store.Decide(t.Context(), op(stint.VerbTake, "ann", policy, 1)); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("policy %s on a full server: %+v, %v; want OOM", policy.Name(), d, err)
			}
		}
		memory("0")
		if d := take(t, store, "ann", policy, 1); d.Remaining != 9 {
			t.Errorf("policy %s: %+v afterwards; want 9 left, as after one", policy.Name(), d)
		}
	}
}
