package enforce_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// An override ends by the clock that the limiter is given. What its client has used goes over to the rule's own limit,
// and a hold of that time is committed.
func TestOverrideEnds(t *testing.T) {
	ends := time.Date(2026, time.December, 24, 18, 0, 0, 0, time.UTC)
	limit := func(n int64) []stint.Limit { return []stint.Limit{stint.FixedWindow(n, 24*time.Hour)} }
	set := must.Get(rules.Compile([]rules.Rule{{
		ID: "a", Scope: []string{rules.PerIP}, Limits: limit(3), Reserve: rules.Reserve{TTL: time.Minute},
		Overrides: []rules.Override{{Key: "192.0.2.1", Limits: limit(9), Until: ends}},
	}}, rules.Options{}))(t)
	now := ends.Add(-time.Second)
	clock := func() time.Time { return now }
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: clock}), Set: set, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	r := &rules.Request{Path: "/", Address: "192.0.2.1"}
	var v enforce.Verdict
	left := func(want int64, allowed bool) {
		t.Helper()
		if err := limiter.DecideNow(t.Context(), r, &v); err != nil || v.Allowed != allowed || v.Decision.Remaining != want {
			t.Errorf("at %v: %+v, %v, want %d left", now, v.Decision, err, want)
		}
	}
	left(8, true)
	held, err := limiter.Reserve(t.Context(), r, stint.Hold{}, &v)
	if err != nil || v.Decision.Remaining != 7 {
		t.Fatalf("%+v, %v", v.Decision, err)
	}
	now = ends
	if _, err := held.Commit(t.Context(), 1); err != nil {
		t.Error(err)
	}
	left(0, true)
	left(0, false)
	now = ends.Add(-time.Second) // the clock was set back
	left(5, true)
}
