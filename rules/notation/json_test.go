package notation_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/registry/registrytest"
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
		`{"id":"login","enabled":false,"priority":5,"labels":{"a":"<&>","b":"2"},"match":{"methods":["POST"],"path":"/login",` +
			`"host":"a.example","headers":{"X-A":"*"}},"scope":["per_ip","custom:tier"],"missing":"ip","cost":{"header":"X-Cost","default":2},` +
			`"limits":[{"algorithm":"token_bucket","capacity":5,"refill":"1/m","max_debt":0,"lease":2},{"algorithm":"sliding_window_log",` +
			`"name":"log","limit":5,"window":"36h","min_interval":"1s","count_denied":true}],"on_exceed":"wait","max_wait":"90s","max_waiters":5,` +
			`"on_store_failure":"closed","timeout":"1s","overrides":[{"key":"::1","banned":true}]}`: full,
	} {
		if got, err := notation.JSON(rule); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}

func TestUnspeakableRules(t *testing.T) {
	for want, rule := range map[string]rules.Rule{
		"missing is 9; allowed: skip, deny or ip":                      {Missing: 9},
		"on_exceed is 9; allowed: reject, wait or shadow":              {OnExceed: 9},
		`on_store_failure is "x"; allowed: open, closed or local`:      {OnStoreFailure: "x"},
		"limits[0]: algorithm is 0; allowed: one of":                   {Limits: []stint.Limit{{}}},
		"overrides[0].limits[0]: limit is 0; allowed: 1 to 1000000000": {Overrides: []rules.Override{{Limits: []stint.Limit{stint.FixedWindow(0, time.Second)}}}},
	} {
		if _, err := notation.JSON(rule); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// What is written is read as the same rule.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := registrytest.Rules().Draw(t, "rule")
		text, err := notation.JSON(rule)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read("[" + string(text) + "]")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(got[0], rule) {
			t.Fatalf("%s is read as\n%+v, and was\n%+v", text, got[0], rule)
		}
	})
}

func TestParseJSON(t *testing.T) {
	var faults notation.Faults
	v := notation.ParseJSON("s", []byte("{ \"ä\" : [1, -2.5,\n\ttrue,null, \"ü\" ],\r\n\"b\":{}, \"b\": 5 }\n"), &faults)
	if got := faults.Error(); got != `s:3:9: "b" is given twice, first in line 3` {
		t.Error(got)
	}
	at := func(line, column int) notation.Position {
		return notation.Position{Source: "s", Line: line, Column: column}
	}
	want := notation.Value{At: at(1, 1), Kind: notation.KindMapping, Fields: []notation.Field{
		{At: at(1, 3), Name: "ä", Value: notation.Value{At: at(1, 9), Kind: notation.KindList, Items: []notation.Value{
			{At: at(1, 10), Kind: notation.KindInteger, Text: "1"},
			{At: at(1, 13), Kind: notation.KindFloat, Text: "-2.5"},
			{At: at(2, 2), Kind: notation.KindBoolean, Text: "true"},
			{At: at(2, 7)},
			{At: at(2, 13), Kind: notation.KindText, Text: "ü"},
		}}},
		{At: at(3, 1), Name: "b", Value: notation.Value{At: at(3, 5), Kind: notation.KindMapping}},
	}}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v, want %+v", v, want)
	}
}

func TestNotJSON(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "s:1:1: not JSON: the text ends too soon",
		"[1,\n 2":                    "s:2:3: not JSON: the text ends too soon",
		"{\"a\": }":                  "s:1:7: not JSON: ",
		"[1 2]":                      "s:1:4: not JSON: ",
		"[1] 2":                      "s:1:5: not JSON: something behind the value",
		"{5: 1}":                     "s:1:2: not JSON: ",
		"\"\xff\"":                   "s:1:1: not JSON: the text is not UTF-8",
		"nul":                        "s:1:1: not JSON: ",
		strings.Repeat("[", 65):      "s:1:65: not JSON: nested too deep",
		strings.Repeat("[", 1e6):     "s:1:65: not JSON: nested too deep",
		strings.Repeat("{\"\":", 70): "s:1:257: not JSON: nested too deep",
	} {
		var faults notation.Faults
		v := notation.ParseJSON("s", []byte(text), &faults)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want) || v.Kind != notation.KindNull {
			t.Errorf("%.20q: %+v, %v; want %s", text, v, faults, want)
		}
	}
	var faults notation.Faults
	if v := notation.ParseJSON("s", []byte(strings.Repeat("[", 64)+strings.Repeat("]", 64)), &faults); len(faults) > 0 || v.Kind != notation.KindList {
		t.Errorf("%v, %v", v, faults)
	}
}
