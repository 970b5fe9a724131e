package server_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
)

func (r reply) explained() adminapi.Explanation {
	r.t.Helper()
	var x adminapi.Explanation
	r.is(200).into(&x)
	return x
}

func TestExplainARequest(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	const explain = "/api/v1/rules/explain"
	const login = `{"method":"POST","path":"//%6Cogin/","ip":"198.51.100.1"}`
	const want = `{"path":"/login","allowed":true,"rule":"login","why":"rule login decides: it has the fewest permits left, 2 of 2",` +
		`"retryAfterSeconds":0,"retryAfterMicros":0,"rules":[` +
		`{"rule":"login","outcome":"limited","onExceed":"reject","allowed":true,"key":"198.51.100.1","cost":1,"limits":[` +
		`{"algorithm":"FIXED_WINDOW","allowed":true,"limit":2,"remaining":2,"resetAfterSeconds":0,"resetAfterMicros":0,"retryAfterSeconds":0,"retryAfterMicros":0}]},` +
		`{"rule":"site","outcome":"limited","onExceed":"reject","allowed":true,"key":"*","cost":1,"limits":[` +
		`{"algorithm":"FIXED_WINDOW","allowed":true,"limit":5,"remaining":5,"resetAfterSeconds":0,"resetAfterMicros":0,"retryAfterSeconds":0,"retryAfterMicros":0}]}]}` + "\n"
	for range 3 { // it consumes nothing
		if got := d.ask("POST", explain, login).is(200); got.body != want {
			t.Errorf("%s, want\n%s", got.body, want)
		}
	}
	for _, remaining := range []int64{1, 0} {
		if got := d.postPublic(evaluate, login).evaluated(200); got.Remaining != remaining {
			t.Errorf("%d are left after the explanations, want %d", got.Remaining, remaining)
		}
	}
	x := d.ask("POST", explain, login).explained()
	if x.Allowed || x.Rule != "login" || x.RetryAfterSeconds != 50 || x.Why != "rule login decides: it denies for the longest, 49.5s" ||
		x.Rules[0].Allowed || x.Rules[0].Limits[0].RetryAfterMicros != 49_500_000 || !x.Rules[1].Allowed || x.Rules[1].Limits[0].Remaining != 3 {
		t.Errorf("denied: %+v", x)
	}
	for body, want := range map[string]string{
		`{"path":"/banned"}`:                         "rule banned decides: it bans the client",
		`{"path":"/free"}`:                           "no rule limits the request",
		`{"path":"/nowhere"}`:                        "no rule holds for the request",
		`{"path":"/user"}`:                           "rule user decides: the request lacks what it counts by, per_user",
		`{"path":"/cost","headers":{"x-cost":"11"}}`: "rule cost decides: the cost of 11 is above its limit of 10",
	} {
		if x := d.ask("POST", explain, body).explained(); x.Why != want {
			t.Errorf("%s: %q, want %q", body, x.Why, want)
		}
	}
	never := d.ask("POST", explain, `{"path":"/cost","headers":{"x-cost":"11"}}`).explained()
	if never.RetryAfterSeconds != -1 || never.RetryAfterMicros != -1 || never.Rules[0].Limits[0].RetryAfterMicros != -1 {
		t.Errorf("a cost above the limit: %+v", never)
	}
	if x := d.ask("POST", explain, `{"path":"/key","attributes":{"apiKey":"s3cret"}}`).explained(); !strings.HasPrefix(x.Rules[0].Key, `\sha256:`) {
		t.Errorf("the key is %s", x.Rules[0].Key)
	}
	d.ask("POST", explain, `{"path":"/cost","headers":{"x-cost":"many"}}`).problem(400, `rule "cost"`)
	d.ask("PATCH", "/api/v1/rules/cost", `{"on_exceed":"shadow"}`).is(200)
	if x := d.ask("POST", explain, `{"path":"/cost","headers":{"x-cost":"many"}}`).explained(); !x.Allowed || !strings.Contains(x.Rules[0].Error, "many") {
		t.Errorf("a cost that is none, of a rule in shadow: %+v", x)
	}
	d.ask("POST", explain, `{"paths":"/"}`).problem(400, "paths")
	d.ask("POST", explain, `path: /`, "Content-Type: application/yaml").problem(415)
	d.store.fail(stint.ErrUnavailable)
	d.ask("POST", explain, login).problem(503, "the store could not answer; nothing was consumed")
	d.store.fail(nil)
	if lines := d.auditLines(); len(lines) != 2 {
		t.Errorf("explaining is recorded: %q", lines)
	}
}

// A rule that counts networks is kept as it was put, and counts, explains and overrides all addresses of one together.
func TestNetworksOfARule(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	const rule = `{"id":"net","match":{"path":"/net"},"scope":{"per_ip":{"ipv4":24,"ipv6":56}},"limits":[{"algorithm":"fixed_window","limit":2,"window":"1h"}]}`
	if got := d.ask("POST", "/api/v1/rules", rule).is(201); got.body != rule {
		t.Errorf("created: %s", got.body)
	}
	d.ask("POST", "/api/v1/rules", strings.NewReplacer("net", "fine", "56", "65").Replace(rule)).problem(400, "scope.per_ip.ipv6", "1 to 64")
	for i, ip := range []string{"192.0.2.1", "192.0.2.250", "192.0.2.9", "192.0.3.1", "2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1"} {
		status := map[bool]int{false: 200, true: 429}[i == 2 || i == 6]
		d.postPublic(evaluate, `{"path":"/net","ip":"`+ip+`"}`).is(status)
	}
	x := d.ask("POST", "/api/v1/rules/explain", `{"path":"/net","ip":"192.0.2.77"}`).explained()
	if x.Allowed || x.Rules[0].Key != "192.0.2.0/24" {
		t.Errorf("explained: %+v", x)
	}
	d.ask("PUT", "/api/v1/rules/net/overrides/192.0.2.0%2F24", `{"unlimited":true}`).is(201)
	d.ask("PUT", "/api/v1/rules/net/overrides/192.0.2.1", `{"unlimited":true}`).problem(400, "192.0.2.0/24, by which the client is counted")
	d.postPublic(evaluate, `{"path":"/net","ip":"192.0.2.200"}`).is(200)
}
