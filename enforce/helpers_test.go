package enforce_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var alice = rules.Request{Path: "/x", Address: "192.0.2.1"}

// per is a rule of each client address.
func per(id string, limits ...stint.Limit) rules.Rule {
	return rules.Rule{ID: id, Scope: []string{rules.PerIP}, Limits: limits}
}

func setOf(t testing.TB, previous *rules.Set, list ...rules.Rule) *rules.Set {
	t.Helper()
	return must.Get(rules.Compile(list, rules.Options{Previous: previous}))(t)
}

// steady is the time of the bubble that a test runs in. Elsewhere it stands still, so that no window ends meanwhile.
func steady() time.Time {
	if now := time.Now(); now.Year() < 2020 {
		return now
	}
	return time.UnixMicro(1_790_000_000_000_000)
}

// newLimiter makes a limiter on a store in memory that counts its calls.
func newLimiter(t testing.TB, list ...rules.Rule) (*enforce.Limiter, *storetest.Faulty) {
	t.Helper()
	store := storetest.NewFaulty(memstore.New(memstore.Config{Now: steady}))
	limiter := must.Get(enforce.New(enforce.Config{Store: store, Set: setOf(t, nil, list...)}))(t)
	return limiter, store
}

// decide decides a request that no error may meet.
func decide(t testing.TB, limiter *enforce.Limiter, r rules.Request) *enforce.Verdict {
	t.Helper()
	var v enforce.Verdict
	must.Do(t, limiter.Decide(t.Context(), &r, &v))
	return &v
}

// passed are the rules in shadow that would have admitted.
func passed(v *enforce.Verdict) (ids []string) {
	for i := range v.Shadows {
		if v.Shadows[i].Decision.Allowed {
			ids = append(ids, v.Shadows[i].Rule)
		}
	}
	return ids
}
