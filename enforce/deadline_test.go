package enforce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// MaxWait denies at once what would have to wait longer, however patient the rule is; Held tells
// how long the others were matched.
func TestLimiterMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := must.Get(rules.Compile([]rules.Rule{{
			ID: "r", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(1, stint.Every(2*time.Second))},
			OnExceed: rules.Wait, MaxWait: time.Minute,
		}}, rules.Options{}))(t)
		for maxWait, held := range map[time.Duration]time.Duration{0: 2 * time.Second, time.Hour: 2 * time.Second, time.Second: 0} {
			store := memstore.New(memstore.Config{Now: time.Now})
			limiter := must.Get(enforce.New(enforce.Config{Store: store, Set: set, MaxWait: maxWait}))(t)
			var v enforce.Verdict
			for i, want := range []time.Duration{0, held} {
				begin := time.Now()
				must.Do(t, limiter.Decide(t.Context(), &rules.Request{}, &v))
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

// A request whose deadline comes before the end of the wait is denied at once.
func TestDeadlineBeforeTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, waiting("a", time.Minute, 0, stint.TokenBucket(1, stint.Every(2*time.Second))))
		for i, test := range []struct {
			has     time.Duration
			allowed bool
			held    time.Duration
		}{{time.Second, true, 0}, {time.Second, false, 0}, {3 * time.Second, true, 2 * time.Second}} {
			ctx, cancel := context.WithTimeout(t.Context(), test.has)
			start := time.Now()
			var v enforce.Verdict
			must.Do(t, limiter.Decide(ctx, &alice, &v))
			if v.Allowed != test.allowed || v.Held != test.held || time.Since(start) != test.held || !v.Allowed && v.Decision.RetryAfter != 2*time.Second {
				t.Errorf("request %d: allowed %t after %s, retry after %s; want %t after %s", i, v.Allowed, time.Since(start), v.Decision.RetryAfter, test.allowed, test.held)
			}
			cancel()
		}
	})
}
