package rules_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
)

// policyFor is the policy that the rule with the ID has for a client address.
func policyFor(t *testing.T, set *rules.Set, id, address string) *stint.Policy {
	t.Helper()
	var m rules.Matches
	must.Do(t, set.Match(&rules.Request{Address: address}, &m))
	for i := range m.Len() {
		if m.Rule(i).ID == id {
			h := must.Get(m.AtTake(i))(t)
			return h.Claim.Policy
		}
	}
	t.Fatalf("no rule %s", id)
	return nil
}

func TestPoliciesOutliveAReload(t *testing.T) {
	a, b := rule("a"), rule("b")
	a.Overrides = []rules.Override{{Key: "::/64", Limits: []stint.Limit{stint.FixedWindow(1, time.Second)}}}
	first := compile(t, a, b)
	for _, test := range []struct {
		name       string
		change     func(r *rules.Rule)
		own, other bool // whether the policies of the rule and of its override are kept
	}{
		{"nothing", func(*rules.Rule) {}, true, true},
		{"what is no limit", func(r *rules.Rule) {
			r.Priority, r.OnExceed, r.Labels, r.Match.Paths = 7, rules.Shadow, map[string]string{"a": "b"}, one("/**")
		}, true, true},
		{"limits", func(r *rules.Rule) { r.Limits = []stint.Limit{stint.TokenBucket(11, stint.PerSecond(1))} }, false, true},
		{"override", func(r *rules.Rule) {
			r.Overrides = []rules.Override{{Key: "::/64", Limits: []stint.Limit{stint.FixedWindow(2, time.Second)}}}
		}, true, false},
		{"failure", func(r *rules.Rule) { r.OnStoreFailure = rules.FailClosed }, false, false},
		{"timeout", func(r *rules.Rule) { r.Timeout = time.Second }, false, false},
	} {
		changed := a
		test.change(&changed)
		second := must.Get(rules.Compile([]rules.Rule{b, changed}, rules.Options{Previous: first}))(t)
		own := policyFor(t, first, "a", "0:0:0:1::/64") == policyFor(t, second, "a", "0:0:0:1::/64")
		other := policyFor(t, first, "a", "::/64") == policyFor(t, second, "a", "::/64")
		if own != test.own || other != test.other {
			t.Errorf("%s: policies are kept: %v, the override's %v; want %v, %v", test.name, own, other, test.own, test.other)
		}
		if policyFor(t, first, "b", "::1") != policyFor(t, second, "b", "::1") {
			t.Errorf("%s: another rule's policy is not kept", test.name)
		}
		if got, want := rules.FailureOf(policyFor(t, second, "a", "::1")), (rules.Failure{Policy: changed.OnStoreFailure, Timeout: changed.Timeout}); got != want {
			t.Errorf("%s: the failure is %v, want %v", test.name, got, want)
		}
		if name := policyFor(t, second, "a", "::1").Name(); name != rules.PolicyPrefix+"a" {
			t.Errorf("the policy's name is %q", name)
		}
	}
}

func TestFailureOfOthers(t *testing.T) {
	policy := must.Get(stint.NewPolicy("", ten))(t)
	if got := rules.FailureOf(policy); got != (rules.Failure{}) {
		t.Errorf("got %v", got)
	}
}

func TestChanges(t *testing.T) {
	a, b, c := rule("a"), rule("b"), rule("c")
	old := compile(t, a, b)
	if changes := rulediff.Between(nil, old); !equalIDs(changes.Added, "a b") || changes.None() {
		t.Errorf("from none: %+v", changes)
	}
	b.Labels, b.Match.Headers, b.Match.Methods, b.Overrides = map[string]string{}, map[string]string{}, []string{}, []rules.Override{}
	if changes := rulediff.Between(old, compile(t, b, a)); !changes.None() {
		t.Errorf("the same in another order and with empty lists: %+v", changes)
	}
	a.Priority = 1
	if changes := rulediff.Between(old, compile(t, c, a)); !equalIDs(changes.Added, "c") || !equalIDs(changes.Removed, "b") || !equalIDs(changes.Changed, "a") {
		t.Errorf("changes are %+v", changes)
	}
}

// TestEveryFieldIsAChange sets each field of a rule, so that a new one is not forgotten.
func TestEveryFieldIsAChange(t *testing.T) {
	values := map[string]any{
		"Disabled": true, "Priority": 1, "Labels": map[string]string{"a": "b"}, "Match": nil,
		"Costs": []rules.Cost{{Permits: 2}}, "Scope": []string{rules.PerUser}, "Missing": rules.MissingSkip, "MissingStatus": 401, "Cost": rules.Cost{Permits: 2},
		"Limits": []stint.Limit{stint.FixedWindow(1, time.Second)}, "Unlimited": nil, "Banned": nil,
		"OnExceed": rules.Shadow, "MarkAt": rules.Percent(80), "Block": rules.Block{After: 20, For: time.Minute}, "MaxWait": 2 * time.Second, "MaxWaiters": 2, "OnStoreFailure": rules.FailOpen,
		"Timeout": time.Second, "PartitionBy": "tenant", "Reserve": rules.Reserve{TTL: time.Minute, OnExpiry: rules.Keep}, "Count": rules.Count{Status: []int{401}}, "Overrides": []rules.Override{{Key: "192.0.2.1", Banned: true}},
		"Within": nil, "Guaranteed": nil, "Weights": nil, "Borrow": nil, "MaxCost": nil, "Otherwise": nil, // see TestFamilyIsAChange
		"Classes": rules.Classes{By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"a": 0}, Default: "a"},
		"Name":    "A", "Set": "s", "Methods": []string{"GET"}, "Paths": one("/a"), "Except": one("/a/b"), "Hosts": one("a"), "Headers": map[string]string{"A": "b"}, "Attributes": map[string][]string{"plan": {"free"}},
	}
	check := func(name string, set func(r *rules.Rule)) {
		old := rule("a")
		if name == "Scope" || name == "PartitionBy" {
			old.Missing = rules.MissingSkip
		}
		if name == "MissingStatus" {
			old.Scope, old.Missing = []string{rules.PerUser}, rules.MissingDeny
		}
		if name == "MaxWait" || name == "MaxWaiters" {
			old.OnExceed, old.MaxWait = rules.Wait, time.Second
		}
		changed := old
		set(&changed)
		if changes := rulediff.Between(compile(t, old), compile(t, changed)); !equalIDs(changes.Changed, "a") {
			t.Errorf("%s changed, and that is no change", name)
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[rules.Rule](), reflect.TypeFor[rules.Match]()} {
		for i := range of.NumField() {
			name := of.Field(i).Name
			value, known := values[name]
			if !known && name != "ID" {
				t.Errorf("no value for %s", name)
			}
			if value == nil {
				continue
			}
			check(name, func(r *rules.Rule) {
				in := reflect.ValueOf(r).Elem()
				if of == reflect.TypeFor[rules.Match]() {
					in = in.FieldByName("Match")
				}
				in.FieldByName(name).Set(reflect.ValueOf(value))
			})
		}
	}
	check("Unlimited", func(r *rules.Rule) { r.Limits, r.Unlimited = nil, true })
	check("Banned", func(r *rules.Rule) { r.Limits, r.Banned = nil, true })
}

// TestFamilyIsAChange sets each field that relates a rule to another one.
func TestFamilyIsAChange(t *testing.T) {
	org := rules.Rule{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(100, stint.PerSecond(100))}}
	team := rules.Rule{
		ID: "a", Within: "org", Scope: []string{rules.PerIP}, Cost: rules.Cost{Attribute: "n"}, MaxCost: 5, Borrow: rules.Borrow{Any: true},
		Guaranteed: map[string]rules.Floor{"192.0.2.1": {Capacity: 10, Refill: stint.PerSecond(10)}},
	}
	other := org
	other.ID = "other"
	for name, set := range map[string]func(r *rules.Rule){
		"Within":     func(r *rules.Rule) { r.Within = "other" },
		"Guaranteed": func(r *rules.Rule) { r.Guaranteed = nil },
		"Weights": func(r *rules.Rule) {
			r.Guaranteed, r.Weights = nil, map[string]int64{"192.0.2.1": 1}
		},
		"Borrow":  func(r *rules.Rule) { r.Borrow = rules.Borrow{Rate: stint.PerSecond(1)} },
		"MaxCost": func(r *rules.Rule) { r.MaxCost = 6 },
	} {
		changed := team.Clone()
		set(&changed)
		if changes := rulediff.Between(compile(t, org, other, team), compile(t, org, other, changed)); !equalIDs(changes.Changed, "a") {
			t.Errorf("%s changed, and that is no change", name)
		}
	}
	quota := rule("a")
	quota.Otherwise = "org"
	if changes := rulediff.Between(compile(t, org, rule("a")), compile(t, org, quota)); !equalIDs(changes.Changed, "a") {
		t.Error("Otherwise changed, and that is no change")
	}
}
