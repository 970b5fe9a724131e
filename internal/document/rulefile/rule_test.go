package rulefile_test

import (
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected faults in testdata")

// read reads a list of rules in JSON.
func read(text string) ([]rules.Rule, error) {
	var faults document.Faults
	v := document.JSON("r.json", []byte(text), &faults)
	list := rulefile.Rules(v, "rules", &faults)
	return list, faults.Err()
}

func TestRules(t *testing.T) {
	for text, want := range map[string]rules.Rule{
		`{}`:                        {},
		`{"id":"a","enabled":true}`: {ID: "a"},
		`{"id":"a-b_c.d:9","enabled":false,"priority":-3,"labels":{"team":"web"}}`: {
			ID: "a-b_c.d:9", Disabled: true, Priority: -3, Labels: map[string]string{"team": "web"},
		},
		`{"labels":{},"match":{"methods":[],"headers":{}},"overrides":[]}`: {},
		`{"labels":null,"match":null,"overrides":null}`:                    {},
		`{"match":{"methods":["GET","PUT"],"path":"/u/{id}/**","host":"*.a.example","headers":{"X-A":"*","X-B":""}}}`: {
			Match: rules.Match{Methods: []string{"GET", "PUT"}, Paths: []string{"/u/{id}/**"}, Hosts: []string{"*.a.example"}, Headers: map[string]string{"X-A": "*", "X-B": ""}},
		},
		`{"name":"The shop","set":"shops","match":{"paths":["/a","/b/**"],"except":["/b/c"],"hosts":["a.example","*.b.example"]}}`: {
			Name: "The shop", Set: "shops",
			Match: rules.Match{Paths: []string{"/a", "/b/**"}, Except: []string{"/b/c"}, Hosts: []string{"a.example", "*.b.example"}},
		},
		`{"match":{"paths":["/a"],"except":[],"hosts":["a.example"]}}`: {Match: rules.Match{Paths: []string{"/a"}, Hosts: []string{"a.example"}}},
		`{"match":{"attributes":{"plan":"free","tenant":["a","b"]}}}`: {Match: rules.Match{
			Attributes: map[string][]string{"plan": {"free"}, "tenant": {"a", "b"}},
		}},
		`{"scope":"per_ip","missing":"skip"}`:                   {Scope: []string{rules.PerIP}, Missing: rules.MissingSkip},
		`{"scope":["per_user","custom:tier"],"missing":"deny"}`: {Scope: []string{rules.PerUser, rules.Custom("tier")}, Missing: rules.MissingDeny},
		`{"scope":["per_api_key"],"missing":"ip"}`:              {Scope: []string{rules.PerAPIKey}, Missing: rules.MissingIP},
		`{"scope":{"per_ip":{"ipv4":24,"ipv6":56}}}`:            {Scope: []string{rules.PerNetwork(24, 56)}},
		`{"scope":["per_user",{"per_ip":{"ipv6":48}}]}`:         {Scope: []string{rules.PerUser, rules.PerNetwork(0, 48)}},
		`{"cost":5}`:                   {Cost: rules.Cost{Permits: 5}},
		`{"cost":{"header":"X-Cost"}}`: {Cost: rules.Cost{Header: "X-Cost"}},
		`{"cost":{"sum":[{"attribute":"in"},{"header":"X-Cached","weight":0.1,"default":0},{"attribute":"out","weight":4.25,"default":9}]}}`: {
			Cost: rules.Cost{Sum: []rules.CostPart{{Attribute: "in"}, {Header: "X-Cached", Weight: 100}, {Attribute: "out", Weight: 4250, Default: 9}}},
		},
		`{"cost":{"default":7,"attribute":"sum"}}`: {Cost: rules.Cost{Permits: 7, Attribute: "sum"}},
		`{"limits":[{"algorithm":"fixed_window","limit":1,"calendar":"day"},{"algorithm":"fixed_window","limit":2,"window":"1s","name":"b","cost":{"attribute":"tokens"}}],` +
			`"overrides":[{"key":"a","limits":[{"algorithm":"fixed_window","limit":1,"calendar":"day","cost":3}]}]}`: {
			Limits: []stint.Limit{stint.CalendarWindow(1, stint.CalendarDay, ""), stint.FixedWindow(2, time.Second).Named("b")},
			Costs:  []rules.Cost{{}, {Attribute: "tokens"}},
			Overrides: []rules.Override{
				{Key: "a", Limits: []stint.Limit{stint.CalendarWindow(1, stint.CalendarDay, "")}, Costs: []rules.Cost{{Permits: 3}}},
			},
		},
		`{"limits":[{"algorithm":"token_bucket","capacity":9,"refill":"2/3s","lease":"auto"}],"unlimited":false}`: {
			Limits: []stint.Limit{stint.TokenBucket(9, stint.Per(2, 3*time.Second)).WithLease(stint.LeaseAuto)},
		},
		`{"on_exceed":"wait","max_wait":"1.5s","max_waiters":10000}`: {OnExceed: rules.Wait, MaxWait: 1500 * time.Millisecond, MaxWaiters: 10000},
		`{"on_exceed":"shadow","on_store_failure":"local"}`:          {OnExceed: rules.Shadow, OnStoreFailure: rules.FailLocal},
		`{"on_exceed":"reject","timeout":"1ms","banned":true}`:       {Timeout: time.Millisecond, Banned: true},
		`{"overrides":[{"key":"a|b","unlimited":true},{"key":"*","banned":true},{"key":"c","limits":[{"algorithm":"fixed_window","limit":1,"calendar":"day"}]}]}`: {
			Overrides: []rules.Override{
				{Key: "a|b", Unlimited: true},
				{Key: "*", Banned: true},
				{Key: "c", Limits: []stint.Limit{stint.CalendarWindow(1, stint.CalendarDay, "")}},
			},
		},
	} {
		got, err := read("[" + text + "]")
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// Two rules are two, whatever is wrong with one of them.
func TestAFaultyRuleKeepsItsPlace(t *testing.T) {
	got, err := read(`[5, {"id": "b"}]`)
	if err == nil || len(got) != 2 || got[1].ID != "b" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEveryFaultAtOnceWithItsPlace(t *testing.T) {
	const wrong, expected = "testdata/wrong.json", "testdata/wrong.txt"
	data := must.Get(os.ReadFile(wrong))(t)
	_, err := read(string(data))
	if !errors.Is(err, stint.ErrInvalid) {
		t.Fatalf("%v", err)
	}
	got := err.Error() + "\n"
	if *rewrite {
		must.Do(t, os.WriteFile(expected, []byte(got), 0o600))
	}
	want := must.Get(os.ReadFile(expected))(t)
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNotAListOfRules(t *testing.T) {
	if _, err := read(`{"id": "a"}`); err == nil || !strings.Contains(err.Error(), "r.json:1:1: rules is a mapping; allowed: a list of rules") {
		t.Error(err)
	}
}

// There are two sliding windows; a document says which.
func TestSlidingWindowIsNone(t *testing.T) {
	_, _, err := rulefile.Parse("r.yaml", []byte("- {id: a, scope: global, limits: [{algorithm: sliding_window, limit: 5, window: 1s}]}"))
	const want = `limits[0].algorithm is "sliding_window"; allowed: sliding_window_log, which is exact, or sliding_window_counter, which takes less memory`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
