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

// Requests for which no rule holds are denied if that is asked for, without the store.
func TestDenyByDefault(t *testing.T) {
	skipping := per("skipping", stint.FixedWindow(1, time.Hour))
	skipping.Scope, skipping.Missing = []string{rules.PerUser}, rules.MissingSkip
	shadow := per("shadow", stint.FixedWindow(1, time.Hour))
	shadow.OnExceed = rules.Shadow
	free := rules.Rule{ID: "free", Scope: []string{rules.PerIP}, Unlimited: true, Match: rules.Match{Paths: []string{"/free"}}}
	limiter := must.Get(enforce.New(enforce.Config{
		Store: memstore.New(memstore.Config{Now: steady}), DenyByDefault: true, Set: setOf(t, nil, skipping, shadow, free),
	}))(t)
	for path, denied := range map[string]bool{"/x": true, "/free": false} {
		r := alice
		r.Path = path
		var v enforce.Verdict
		if err := limiter.DecideNow(t.Context(), &r, &v); err != nil || v.Allowed == denied {
			t.Errorf("%s: %+v, %v", path, v.Decision, err)
		}
		x := explain(t, limiter, r)
		said := x.Why() == "no rule holds for the request, and those are denied"
		if reason := x.Verdict.Reason(); said != denied || (reason == stint.ReasonDefault) != denied {
			t.Errorf("%s: %s, %s", path, x.Why(), reason)
		}
	}
	limiter.Swap(nil)
	if v := decide(t, limiter, alice); v.Reason() != stint.ReasonDefault {
		t.Errorf("without rules: %v", v.Reason())
	}
}
