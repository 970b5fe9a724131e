package rulefile_test

import (
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
		ID: "login", Disabled: true, Priority: 5, Labels: map[string]string{"b": "2", "a": "<&>"},
		Match: rules.Match{Methods: []string{"POST"}, Paths: []string{"/login"}, Hosts: []string{"a.example"}, Headers: map[string]string{"X-A": "*"}},
		Scope: []string{rules.PerIP, rules.Custom("tier")}, Missing: rules.MissingIP,
		Cost: rules.Cost{Permits: 2, Header: "X-Cost"},
		Limits: []stint.Limit{
			stint.TokenBucket(5, stint.PerMinute(1)).WithLease(2).WithMaxDebt(stint.NoDebt),
			stint.SlidingWindowLog(5, 36*time.Hour).Named("log").WithMinInterval(time.Second).CountingDenied(),
		},
		OnExceed: rules.Wait, MaxWait: 90 * time.Second, MaxWaiters: 5, OnStoreFailure: rules.FailClosed, Timeout: time.Second,
		Overrides: []rules.Override{{Key: "::1", Banned: true}},
	}
	for want, rule := range map[string]rules.Rule{
		`{}`: {},
		`{"id":"a","scope":"global","unlimited":true}`: {ID: "a", Scope: []string{rules.Global}, Unlimited: true, Labels: map[string]string{}},
		`{"count":{"status":[401,"5xx"]}}`:             {Count: rules.Count{Status: []int{401, 5}}},
		`{"id":"login","enabled":false,"priority":5,"labels":{"a":"<&>","b":"2"},"match":{"methods":["POST"],"path":"/login",` +
			`"host":"a.example","headers":{"X-A":"*"}},"scope":["per_ip","custom:tier"],"missing":"ip","cost":{"header":"X-Cost","default":2},` +
			`"limits":[{"algorithm":"token_bucket","capacity":5,"refill":"1/m","max_debt":0,"lease":2},{"algorithm":"sliding_window_log",` +
			`"name":"log","limit":5,"window":"36h","min_interval":"1s","count_denied":true}],"on_exceed":"wait","max_wait":"90s","max_waiters":5,` +
			`"on_store_failure":"closed","timeout":"1s","overrides":[{"key":"::1","banned":true}]}`: full,
	} {
		if got, err := rulefile.JSON(rule); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
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
