package states

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// What a rule says of the time when the store is unreachable holds for its limits and its
// overrides' alone; what it leaves open is as for all.
func TestFailureRules(t *testing.T) {
	limits := []stint.Limit{stint.FixedWindow(1, time.Minute)}
	rule := rules.Rule{
		ID: "login", Scope: []string{rules.PerIP}, Limits: limits,
		OnStoreFailure: rules.FailLocal, Timeout: 20 * time.Millisecond,
		Overrides: []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{stint.FixedWindow(9, time.Minute)}}},
	}
	quick := rules.Rule{ID: "quick", Scope: []string{rules.Global}, Limits: limits, Timeout: time.Second}
	silent := rules.Rule{ID: "silent", Scope: []string{rules.Global}, Limits: limits}
	set := must.Get(rules.Compile([]rules.Rule{rule, quick, silent}, rules.Options{}))(t)
	find := failureRules(failover.Closed)
	policies := map[string][]*stint.Policy{}
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		var m rules.Matches
		must.Do(t, set.Match(&rules.Request{Address: address}, &m))
		for i := range m.Len() {
			var held rules.Matched
			must.Do(t, m.At(i, stint.VerbTake, &held))
			policies[held.Rule.ID] = append(policies[held.Rule.ID], held.Claim.Policy)
		}
	}
	for id, want := range map[string]failover.PolicyOptions{
		"login": {Mode: failover.Local, Timeout: 20 * time.Millisecond},
		"quick": {Mode: failover.Closed, Timeout: time.Second},
	} {
		if len(policies[id]) != 2 {
			t.Fatalf("%s has %d policies, want 2", id, len(policies[id]))
		}
		for _, policy := range policies[id] {
			if got, ok := find(policy); !ok || got != want {
				t.Errorf("%s: %+v, %v, want %+v", id, got, ok, want)
			}
		}
	}
	other := must.Get(stint.NewPolicy("other", limits...))(t)
	for _, policy := range append(policies["silent"], other) {
		if got, ok := find(policy); ok {
			t.Errorf("%s: %+v, want nothing", policy.Name(), got)
		}
	}
}
