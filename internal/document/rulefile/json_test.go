package rulefile_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testrules"
	"github.com/stint-go/stint/rules"
)

func TestJSON(t *testing.T) {
	full := rules.Rule{
		ID: "login", Name: "The shop", Set: "shops", Disabled: true, Priority: 5, Labels: map[string]string{"b": "2", "a": "<&>"},
		Match: rules.Match{
			Methods: []string{"POST"}, Paths: []string{"/login"}, Except: []string{"/b"}, Hosts: []string{"a.example"},
			Headers: map[string]string{"X-A": "*"}, Attributes: map[string][]string{"plan": {"free"}, "tenant": {"a", "b"}},
		},
		Scope: []string{rules.PerNetwork(24, 56), rules.Custom("tier")}, Missing: rules.MissingIP, MissingStatus: 401,
		Cost: rules.Cost{Permits: 2, Header: "X-Cost"},
		Limits: []stint.Limit{
			stint.TokenBucket(5, stint.PerMinute(1)).WithLease(2).WithMaxDebt(stint.NoDebt),
			stint.SlidingWindowLog(5, 36*time.Hour).Named("log").WithMinInterval(time.Second).CountingDenied(),
		},
		Costs: []rules.Cost{{Permits: 3}, {Sum: []rules.CostPart{
			{Attribute: "in"}, {Header: "X-Cached", Weight: 100}, {Attribute: "out", Weight: 4250, Default: 9},
		}}},
		Unlimited: true, Banned: true, OnExceed: rules.Wait, MarkAt: 80, Block: rules.Block{After: 20, For: time.Minute},
		MaxWait: 90 * time.Second, MaxWaiters: 5, OnStoreFailure: rules.FailClosed, Timeout: time.Second,
		PartitionBy: "tenant",
		Reserve:     rules.Reserve{TTL: time.Minute, OnExpiry: rules.Keep}, Count: rules.Count{Status: []int{401, 5}},
		Within: "org", Guaranteed: map[string]rules.Floor{"a|b": {Capacity: 1, Refill: stint.Per(1, 7*time.Millisecond)}},
		Weights: map[string]int64{"search": 3}, Borrow: rules.Borrow{Any: true}, MaxCost: 500, Otherwise: "extra",
		Classes: rules.Classes{
			By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"critical": 0, "a b": 99}, Default: "a b",
		},
		Overrides: []rules.Override{
			{Key: "::1", Banned: true, Until: time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)},
			{Key: "*", Unlimited: true},
			{
				Key: "a", Limits: []stint.Limit{stint.CalendarWindow(1, stint.CalendarDay, "UTC")},
				Costs: []rules.Cost{{Attribute: "n"}},
			},
			{Key: "b", Limits: []stint.Limit{stint.FixedWindow(2, time.Second).WithLease(stint.LeaseAuto)}},
		},
	}
	of := reflect.ValueOf(full)
	for i := range of.NumField() {
		if of.Field(i).IsZero() {
			t.Errorf("the rule has no %s", of.Type().Field(i).Name)
		}
	}
	text := strings.TrimSpace(string(must.Get(os.ReadFile("testdata/rule.json"))(t)))
	for want, rule := range map[string]rules.Rule{
		`{}`: {},
		`{"id":"a","scope":"global","unlimited":true}`: {ID: "a", Scope: []string{rules.Global}, Unlimited: true},
		`{"borrow":"50/s"}`:                            {Borrow: rules.Borrow{Rate: stint.PerSecond(50)}},
		text:                                           full,
	} {
		if got, err := rulefile.JSON(rule); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
		checkRoundTrip(t, rule)
	}
}

func TestUnspeakableRules(t *testing.T) {
	for want, rule := range map[string]rules.Rule{
		"missing is 9; allowed: skip, deny or ip":                      {Missing: 9},
		"on_exceed is 9; allowed: reject, wait, shadow or mark":        {OnExceed: 9},
		`on_store_failure is "x"; allowed: open, closed or local`:      {OnStoreFailure: "x"},
		"limits[0]: algorithm is 0; allowed: one of":                   {Limits: []stint.Limit{{}}},
		"overrides[0].limits[0]: limit is 0; allowed: 1 to 1000000000": {Overrides: []rules.Override{{Limits: []stint.Limit{stint.FixedWindow(0, time.Second)}}}},
	} {
		if _, err := rulefile.JSON(rule); err == nil || !strings.HasPrefix(err.Error(), "stint: "+want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// What is written is read as the same rule.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := testrules.Rules().Draw(t, "rule")
		text := must.Get(rulefile.JSON(rule))(t)
		got, err := read("[" + string(text) + "]")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(got[0], rule) {
			t.Fatalf("%s is read as\n%+v, and was\n%+v", text, got[0], rule)
		}
	})
}
