package enforce_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// MaxWait denies at once what would have to wait longer, however patient the rule is; Held tells
// how long the others were held.
func TestLimiterMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.Compile([]rules.Rule{{
			ID: "r", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(1, stint.Every(2*time.Second))},
			OnExceed: rules.Wait, MaxWait: time.Minute,
		}}, rules.Options{})
		if err != nil {
			t.Fatal(err)
		}
		now := func() stint.Instant { return stint.Instant(time.Now().UnixMicro()) }
		for maxWait, held := range map[time.Duration]time.Duration{0: 2 * time.Second, time.Hour: 2 * time.Second, time.Second: 0} {
			limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: now}), Set: set, MaxWait: maxWait})
			if err != nil {
				t.Fatal(err)
			}
			var v enforce.Verdict
			for i, want := range []time.Duration{0, held} {
				begin := time.Now()
				if err := limiter.Decide(t.Context(), &rules.Request{}, &v); err != nil {
					t.Fatal(err)
				}
				if passed := time.Since(begin); passed != want || v.Held != want || v.Allowed != (i == 0 || held > 0) {
					t.Errorf("MaxWait %s, request %d: allowed %t after %s, held %s; want %s", maxWait, i, v.Allowed, passed, v.Held, want)
				}
			}
		}
		if _, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), MaxWait: -1}); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("a negative MaxWait: %v", err)
		}
	})
}
