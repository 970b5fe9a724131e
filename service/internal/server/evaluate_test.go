package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/server"
)

const evaluate = apipath.Evaluate

// ruleList are the rules of the tests, each for paths of its own but the first.
func ruleList() []rules.Rule {
	perMinute := func(n int64) []stint.Limit { return []stint.Limit{stint.FixedWindow(n, time.Minute)} }
	at := func(id, path string, limits ...stint.Limit) rules.Rule {
		return rules.Rule{ID: id, Match: rules.Match{Paths: []string{path}}, Scope: []string{rules.Global}, Limits: limits}
	}
	login := rules.Rule{
		ID: "login", Priority: 10, Match: rules.Match{Paths: []string{"/login"}, Methods: []string{"POST"}},
		Scope: []string{rules.PerIP}, Limits: perMinute(2),
	}
	site := rules.Rule{ID: "site", Match: rules.Match{Paths: []string{"/login"}}, Scope: []string{rules.Global}, Limits: perMinute(5)}
	user := at("user", "/user", stint.TokenBucket(3, stint.PerSecond(1)))
	user.Scope, user.Missing = []string{rules.PerUser}, rules.MissingDeny
	user.Overrides = []rules.Override{
		{Key: "vip", Limits: perMinute(50)}, {Key: "root", Unlimited: true}, {Key: "mallory", Banned: true},
	}
	key := at("key", "/key", perMinute(4)...)
	key.Scope, key.Missing = []string{rules.PerAPIKey}, rules.MissingIP
	banned := at("banned", "/banned")
	banned.Banned = true
	free := at("free", "/free")
	free.Unlimited = true
	shadow := at("shadow", "/shadow", perMinute(1)...)
	shadow.OnExceed = rules.Shadow
	cost := at("cost", "/cost/**", perMinute(10)...)
	cost.Cost = rules.Cost{Header: "X-Cost"}
	tokens := at("tokens", "/tokens", perMinute(10)...)
	tokens.Cost = rules.Cost{Attribute: "tokens"}
	wait := at("wait", "/wait", stint.TokenBucket(1, stint.Every(100*time.Millisecond)))
	wait.OnExceed, wait.MaxWait = rules.Wait, 10*time.Second
	host := at("host", "/host", perMinute(10)...)
	host.Match.Hosts, host.Match.Headers = []string{"*.example.com"}, map[string]string{"x-plan": "free"}
	host.Scope, host.Missing = []string{rules.Custom("team"), rules.PerIP}, rules.MissingSkip
	return []rules.Rule{login, site, user, key, banned, free, shadow, cost, tokens, wait, host}
}

func compile(t testing.TB, list []rules.Rule) *rules.Set {
	t.Helper()
	set, err := rules.Compile(list, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// evaluated decodes the answer to an evaluation.
func (r reply) evaluated(status int) api.EvaluateResponse {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%d %s, want status %d", r.status, r.body, status)
	}
	var e api.EvaluateResponse
	r.into(&e)
	return e
}

func TestEvaluate(t *testing.T) {
	f := newFixture(t, nil)
	got := f.post(evaluate, `{"method":"POST","path":"/%6Cogin?x=1","ip":"198.51.100.1"}`)
	want := checked("198.51.100.1", "FIXED_WINDOW", 2, 1, 49500*time.Millisecond) + `,"rule":"login","matched":["login","site"]}`
	if got.status != 200 || got.body != want {
		t.Errorf("%d\n%s, want\n%s", got.status, got.body, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "Retry-After": "",
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "1790000100",
		"RateLimit": `"default";r=1;t=50`, "RateLimit-Policy": `"default";q=2;w=60`,
	} {
		if got := got.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if n := f.store.ops.Load(); n != 1 {
		t.Errorf("two rules are %d operations, want 1", n)
	}
}

// A request that one of two rules denies consumes nothing of the other.
// A denial says why, and by which limit.
func TestEvaluateReasons(t *testing.T) {
	paced := stint.SlidingWindowLog(10, time.Minute).Named("pace").WithMinInterval(time.Second)
	rule := rules.Rule{ID: "paced", Match: rules.Match{Paths: []string{"/paced"}}, Scope: []string{rules.Global}, Limits: []stint.Limit{paced}, Cost: rules.Cost{Header: "Cost"}}
	hidden := rules.Rule{ID: "hidden", Match: rules.Match{Paths: []string{"/hidden"}}, Scope: []string{rules.Global}, Banned: true, OnExceed: rules.Shadow}
	state := follow.Current
	f := newFixture(t, func(c *server.Config) {
		c.DenyByDefault, c.RulesState = true, func() follow.State { return state }
		c.Rules = compile(t, append(ruleList(), rule, hidden))
	})
	for _, test := range []struct{ body, reason, limit string }{
		{`{"path":"/paced"}`, "", ""},
		{`{"path":"/paced"}`, "min_interval", "pace"},
		{`{"path":"/paced","headers":{"cost":"10"}}`, "limit", "pace"},
		{`{"path":"/paced","headers":{"cost":"11"}}`, "never", "pace"},
		{`{"path":"/nowhere"}`, "default", ""},
		{`{"path":"/hidden"}`, "default", ""},
		{`{"path":"/free"}`, "", ""},
		{`{"path":"/cost/x","headers":{"x-cost":"11"}}`, "never", ""},
	} {
		status := 429
		if test.reason == "" {
			status = 200
		}
		got := f.post(evaluate, test.body)
		if e := got.evaluated(status); e.Reason != test.reason || e.LimitName != test.limit || (e.Rule == "") != (test.reason == "default" || test.body == `{"path":"/free"}`) {
			t.Errorf("%s: %s", test.body, got.body)
		}
	}
	state = follow.Unknown // what no rule holds for is not known then
	f.post(evaluate, `{"path":"/nowhere"}`).evaluated(200)
}

// What rules decided is settled by describing the request again.
func TestSettleByRules(t *testing.T) {
	f := newFixture(t, nil)
	const body = `{"path":"/tokens","attributes":{"tokens":4},"permits":`
	f.post(evaluate, `{"path":"/tokens","attributes":{"tokens":4}}`).evaluated(200)
	got := f.post(apipath.Settle, body+`3}`)
	want := `{"key":"*","algorithm":"FIXED_WINDOW","limit":10,"remaining":3,"resetAfterSeconds":50,"resetAfterMicros":49500000,"at":1790000050500000,"rule":"tokens","matched":["tokens"],"applied":3}` + "\n"
	if got.status != 200 || got.body != want {
		t.Errorf("%d\n%s, want\n%s", got.status, got.body, want)
	}
	for _, test := range []struct {
		body   string
		status int
		says   string
	}{
		{body + `-9}`, 200, `"applied":-7`},
		{body + `0}`, 200, `"remaining":10`},
		{`{"permits":1,"path":"/nowhere"}`, 200, `{"matched":[],"applied":0}`},
		{`{"permits":1,"path":"/banned"}`, 200, `{"matched":["banned"],"applied":0}`},
		{body + `"3"}`, 400, "permits"},
		{`{"path":"/tokens"}`, 400, "permits is"},
		{`{"path":"/tokens","key":"a","permits":1}`, 400, "path"},
		{`{"permits":1,"path":"tokens"}`, 400, "a path that begins with a slash"},
		{`{"permits":1,"path":"/tokens","path":"/"}`, 400, "path is repeated"},
		{`{"permits":1,"permits":1,"path":"/"}`, 400, "permits is repeated"},
	} {
		if got := f.post(apipath.Settle, test.body); got.status != test.status || !strings.Contains(got.body, test.says) {
			t.Errorf("%s: %d %s, want %d %s", test.body, got.status, got.body, test.status, test.says)
		}
	}
	f.store.fail(stint.ErrUnavailable)
	if got := f.post(apipath.Settle, body+`3}`); got.status != 503 {
		t.Errorf("without the store: %d %s", got.status, got.body)
	}
}

func TestEvaluateTogether(t *testing.T) {
	f := newFixture(t, nil)
	one := `{"method":"POST","path":"/login","ip":"198.51.100.1"}`
	for range 2 {
		f.post(evaluate, one).evaluated(200)
	}
	for range 4 {
		got := f.post(evaluate, one)
		e := got.evaluated(429)
		if e.Rule != "login" || e.RetryAfterSeconds != 50 || e.Message != "Rate limit exceeded" || got.header.Get("Retry-After") != "50" {
			t.Errorf("the address's third: %s %v", got.body, got.header)
		}
	}
	e := f.post(evaluate, `{"path":"/login","ip":"198.51.100.1"}`).evaluated(200)
	if e.Rule != "site" || e.Remaining != 2 || !slices.Equal(e.Matched, []string{"site"}) || e.Key != "*" {
		t.Errorf("of 5 permits of all, 2 were admitted and one is now: %+v", e)
	}
}

func TestEvaluateWithoutWaiting(t *testing.T) {
	held := rules.Rule{ID: "held", Scope: []string{rules.Global}, OnExceed: rules.Wait, MaxWait: time.Minute, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)}}
	f := newFixture(t, func(c *server.Config) { c.Rules = compile(t, []rules.Rule{held}) })
	f.post(evaluate, `{"wait":true}`).evaluated(200)
	f.post(evaluate, `{"wait":false}`).evaluated(429)
	for body, want := range map[string]string{
		`{"wait":1}`:                  "wait is a number; allowed: true or false",
		`{"wait":"no"}`:               "wait is a string; allowed: true or false",
		`{"wait":false,"wait":false}`: "wait is repeated",
		`{"wait":falsehood}`:          "a comma or the end of the object",
	} {
		f.post(evaluate, body).problem(400, want)
	}
	f.post("/api/v1/rate-limit/settle", `{"path":"/","permits":1,"wait":false}`).problem(400, "none in a settlement")
}

func TestEvaluateStandings(t *testing.T) {
	f := newFixture(t, nil)
	const denied = `{"allowed":false,"retryAfterSeconds":-1,"message":"Rate limit exceeded","retryAfterMicros":-1,"reason":`
	for body, want := range map[string]string{
		`{}`:                 `{"allowed":true,"message":"Request allowed","matched":[]}`,
		`{"path":"/free"}`:   `{"allowed":true,"message":"Request allowed","matched":["free"]}`,
		`{"path":"/banned"}`: denied + `"banned","rule":"banned","matched":["banned"]}`,
		`{"path":"/user"}`:   denied + `"missing","rule":"user","matched":["user"],"missing":["per_user"]}`,
		`{"path":"/user","attributes":{"userId":"mallory"}}`:                  denied + `"banned","rule":"user","matched":["user"]}`,
		`{"path":"/user","attributes":{"userId":"root"}}`:                     `{"allowed":true,"message":"Request allowed","matched":["user"]}`,
		`{"path":"/host","host":"a.example.com","headers":{"X-PLAN":"free"}}`: `{"allowed":true,"message":"Request allowed","matched":[]}`,
	} {
		got := f.post(evaluate, body)
		if got.body != want || (got.status == 200) != strings.Contains(want, "true") {
			t.Errorf("%s: %d\n%s, want\n%s", body, got.status, got.body, want)
		}
		for _, name := range []string{"X-RateLimit-Limit", "RateLimit", "RateLimit-Policy", "Retry-After"} {
			if got.header.Get(name) != "" {
				t.Errorf("%s: has %s though no limit was asked", body, name)
			}
		}
	}
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestEvaluateIdentity(t *testing.T) {
	f := newFixture(t, nil)
	for _, test := range []struct {
		body, rule, key string
		limit           int64
	}{
		{`{"path":"/user","attributes":{"userId":"u"}}`, "user", "u", 3},
		{`{"path":"/user","attributes":{"userId":-42}}`, "user", "-42", 3},
		{`{"path":"/user","attributes":{"userId":"vip"}}`, "user", "vip", 50},
		{`{"path":"/key","ip":"198.51.100.1"}`, "key", `\ip:198.51.100.1`, 4},
		{`{"method":"POST","path":"/login","ip":"[2001:db8:1:2:3::4]:80"}`, "login", "2001:db8:1:2::/64", 2},
		{`{"method":"POST","path":"/login","ip":"::ffff:198.51.100.7"}`, "login", "198.51.100.7", 2},
		{`{"path":"/host","host":"A.Example.com:80","ip":"198.51.100.1","headers":{"x-plan":"free"},"attributes":{"team":"a|b"}}`, "host", `a\|b|198.51.100.1`, 10},
	} {
		e := f.post(evaluate, test.body).evaluated(200)
		if e.Rule != test.rule || e.Key != test.key || e.Limit != test.limit || e.Remaining != test.limit-1 {
			t.Errorf("%s: %+v", test.body, e)
		}
	}
	secret := f.post(evaluate, `{"path":"/key","attributes":{"apiKey":"secret"}}`)
	if e := secret.evaluated(200); !strings.HasPrefix(e.Key, `\sha256:`) || strings.Contains(secret.body, "secret") {
		t.Errorf("an API key: %s", secret.body)
	}
	// The caller's own address does not count.
	if e := f.post(evaluate, `{"method":"POST","path":"/login"}`).evaluated(429); e.Rule != "login" || e.Algorithm != "" {
		t.Errorf("without an address: %+v", e)
	}
}

func TestEvaluateShadow(t *testing.T) {
	f := newFixture(t, nil)
	if got := f.post(evaluate, `{"path":"/shadow"}`); got.body != `{"allowed":true,"message":"Request allowed","matched":["shadow"]}` {
		t.Errorf("the first: %s", got.body)
	}
	if got := f.post(evaluate, `{"path":"/shadow"}`); got.status != 200 || !strings.HasSuffix(got.body, `"matched":["shadow"],"shadowed":["shadow"]}`) {
		t.Errorf("the second: %d %s", got.status, got.body)
	}
}

func TestEvaluateCost(t *testing.T) {
	f := newFixture(t, nil)
	if e := f.post(evaluate, `{"path":"/cost/a","headers":{"x-cost":"7"}}`).evaluated(200); e.Remaining != 3 {
		t.Errorf("a cost of 7 of 10: %+v", e)
	}
	if e := f.post(evaluate, `{"path":"/tokens","attributes":{"tokens":6}}`).evaluated(200); e.Remaining != 4 {
		t.Errorf("a cost of 6 of 10: %+v", e)
	}
	got := f.post(evaluate, `{"path":"/cost/a","headers":{"x-cost":"11"}}`)
	if e := got.evaluated(429); e.RetryAfterSeconds != -1 || e.RetryAfterMicros != -1 || e.Limit != 10 || e.Remaining != 3 {
		t.Errorf("a cost above the limit: %s", got.body)
	}
	if got.header.Get("Retry-After") != "" || got.header.Get("X-RateLimit-Limit") != "10" {
		t.Errorf("a cost above the limit: %v", got.header)
	}
	for _, cost := range []string{"0", "-1", "1.5", "much", "9999999999999999999", " 1"} {
		f.post(evaluate, fmt.Sprintf(`{"path":"/cost/a","headers":{"x-cost":%q}}`, cost)).problem(400, `rule "cost": X-Cost is`, cost)
		f.post(evaluate, fmt.Sprintf(`{"path":"/tokens","attributes":{"tokens":%q}}`, cost)).problem(400, `rule "tokens": tokens is`, cost)
	}
	if e := f.post(evaluate, `{"path":"/cost/a"}`).evaluated(200); e.Remaining != 2 {
		t.Errorf("what was refused was consumed: %+v", e)
	}
}

func TestBadEvaluations(t *testing.T) {
	f := newFixture(t, nil)
	for body, want := range map[string]string{
		``: "malformed", `[]`: "malformed", `{`: "malformed", `{} {}`: "malformed", `{"path":"/a",}`: "malformed",
		"{\"path\":\"/\xff\"}":                     "not UTF-8",
		`{"headers":{"a":"b"}`:                     "malformed",
		`{"headers":{"a"}}`:                        "malformed",
		`{"key":"k"}`:                              `parameter is "key"; allowed: method, path, host, ip, headers, attributes`,
		`{"Path":"/"}`:                             `parameter is "Path"`,
		`{"path":"/","path":"/"}`:                  "path is repeated",
		`{"path":"/","pa\u0074h":"/"}`:             "path is repeated",
		`{"method":"A","method":"A"}`:              "method is repeated",
		`{"host":"","host":""}`:                    "host is repeated",
		`{"ip":"::1","ip":"::1"}`:                  "ip is repeated",
		`{"headers":{},"headers":{}}`:              "headers is repeated",
		`{"attributes":{},"attributes":{}}`:        "attributes is repeated",
		`{"headers":{"X-A":"1","x-a":"2"}}`:        "headers.x-a is repeated",
		`{"attributes":{"a":"1","a":"2"}}`:         "attributes.a is repeated",
		`{"method":1}`:                             "method is a number; allowed: a string",
		`{"path":null}`:                            "path is null; allowed: a string",
		`{"host":[]}`:                              "host is an array",
		`{"ip":true}`:                              "ip is a boolean",
		`{"headers":[]}`:                           "headers is an array; allowed: an object",
		`{"headers":{"a":["b"]}}`:                  "headers.a is an array; allowed: a string",
		`{"headers":{"a":1}}`:                      "headers.a is a number",
		`{"attributes":"a"}`:                       "attributes is a string; allowed: an object",
		`{"attributes":{"a":{}}}`:                  "attributes.a is an object; allowed: a string or an integer",
		`{"attributes":{"a":1.5}}`:                 "attributes.a is 1.5",
		`{"attributes":{"a":-}}`:                   "attributes.a is -",
		`{"attributes":{"a":9223372036854775808}}`: "attributes.a is",
		`{"ip":""}`:                                `ip is ""; allowed: an IPv4 or IPv6 address`,
		`{"ip":"localhost"}`:                       `ip is "localhost"`,
		`{"ip":"1.2.3.4, 5.6.7.8"}`:                `ip is "1.2.3.4, 5.6.7.8"`,
		`{"path":""}`:                              `path is ""; allowed: a path that begins with a slash`,
		`{"path":"http://h/login"}`:                `path is "http://h/login"`,
	} {
		f.post(evaluate, body).problem(400, want)
	}
	f.post(evaluate, `{"path":"//`+strings.Repeat("x", 8<<10)+`"}`).problem(400, "path is", "8194 bytes that can be read in several ways", "up to 8192 bytes")
	f.post(evaluate, `{"host":"x@a.example.com"}`).problem(400, `host is "x@a.example.com"`, "not percent-encoded")
	f.post(evaluate+"?path=/", "{}").problem(400, "the query")
	f.post(evaluate, `{"headers":{"a":"`+strings.Repeat("b", 1<<20)+`"}}`).problem(413, "1048576")
	if n := f.store.calls.Load(); n != 0 || f.log.lines() != 0 {
		t.Errorf("the store was asked %d times; the log:\n%s", n, f.log)
	}
}

func TestEvaluateNeedsAuthority(t *testing.T) {
	guarded := newFixture(t, func(c *server.Config) { c.API.Tokens = []string{apiToken} })
	guarded.post(evaluate, `{`).problem(401, "Authorization")
	remote := newFixture(t, func(c *server.Config) { c.API.Open = false })
	remote.post(evaluate, `{}`).problem(403, "evaluate")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, evaluate, strings.NewReader(`{}`))
	r.Header = bearer(apiToken)
	if got := guarded.do(r); got.status != 200 {
		t.Errorf("with a token: %d %s", got.status, got.body)
	}
}

func TestEvaluateWithoutStore(t *testing.T) {
	f := newFixture(t, nil)
	f.store.fail(stint.ErrUnavailable)
	f.post(evaluate, `{"path":"/tokens"}`).problem(503, "store")
	for path, status := range map[string]int{"/free": 200, "/banned": 429, "/shadow": 200, "/none": 200} {
		f.post(evaluate, `{"path":"`+path+`"}`).evaluated(status)
	}
	f.store.fail(nil)
	f.post(evaluate, `{"path":"/tokens"}`).evaluated(200)
}

// An evaluation that could not be decided is counted as a check would be, and for each of the
// rules that were to decide it.
func TestUndecidedIsCounted(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		behindProxies(c)
		c.API.Open = true
		away, err := failover.New(c.Store, failover.Config{Mode: failover.Closed})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(away.Close)
		c.Store = away
	})
	f.store.fail(stint.ErrUnavailable)
	f.post(evaluate, `{"method":"POST","path":"/login","ip":"198.51.100.1"}`).problem(503)
	f.ask("", traefik("POST", "/login")).problem(503)
	f.post(evaluate, `{"path":"/user","attributes":{"userId":"u"}}`).problem(503)
	f.post(evaluate, `{"path":"/shadow"}`).evaluated(200)
	f.post(evaluate, `{"path":"/tokens","attributes":{"tokens":"x"}}`).problem(400)
	text := f.get(apipath.Metrics).body
	for _, line := range []string{
		`rate_limiter_rule_decisions_total{outcome="unavailable",rule="login",set=""} 2`,
		`rate_limiter_rule_decisions_total{outcome="unavailable",rule="site",set=""} 2`,
		`rate_limiter_rule_decisions_total{outcome="unavailable",rule="user",set=""} 1`,
		`rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 2`,
		`rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false"} 1`,
		`rate_limiter_degraded_total{allowed="false"} 3`,
		`rate_limiter_store_errors_total 3`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %q", line)
		}
	}
	if n := strings.Count(text, "\nrate_limiter_rule_decisions_total"); n != 3 {
		t.Errorf("%d series of decisions, want 3", n)
	}
}

func TestEvaluateDegraded(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		away, err := failover.New(c.Store, failover.Config{Mode: failover.Open})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(away.Close)
		c.Store = away
	})
	f.store.fail(stint.ErrUnavailable)
	got := f.post(evaluate, `{"method":"POST","path":"/login","ip":"198.51.100.1"}`)
	e := got.evaluated(200)
	if !e.Degraded || e.Source != "failure-policy" || e.Rule == "" || len(e.Matched) != 2 || got.header.Get("RateLimit") != "" {
		t.Errorf("%s %v", got.body, got.header)
	}
}

func TestSwapRules(t *testing.T) {
	config, store, log := testConfig()
	config.Rules = compile(t, ruleList())
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, store: store, log: log, Handler: s.Handler(), router: description(t)}
	f.post(evaluate, `{"path":"/tokens"}`).evaluated(200)
	f.post(evaluate, `{"path":"/cost/1"}`).evaluated(200)
	list := slices.DeleteFunc(ruleList(), func(r rules.Rule) bool { return r.ID != "tokens" && r.ID != "free" })
	list[0].Priority = 3
	set, err := rules.Compile(append(list, rules.Rule{ID: "new", Scope: []string{rules.Global}, Banned: true, Match: rules.Match{Paths: []string{"/new"}}}),
		rules.Options{Previous: config.Rules})
	if err != nil {
		t.Fatal(err)
	}
	changes := s.SwapRules(set)
	if !slices.Equal(changes.Added, []string{"new"}) || !slices.Equal(changes.Changed, []string{list[0].ID}) || len(changes.Removed) != len(ruleList())-2 {
		t.Errorf("changes %+v", changes)
	}
	f.post(evaluate, `{"path":"/new"}`).evaluated(429)
	if e := f.post(evaluate, `{"path":"/tokens"}`).evaluated(200); e.Remaining != 8 {
		t.Errorf("the state of a rule that stays: %+v", e)
	}
	text := f.get(apipath.Metrics).body
	for line, want := range map[string]bool{
		`rate_limiter_rules 3`: true,
		`rate_limiter_rule_decisions_total{outcome="allowed",rule="tokens",set=""} 2`: true,
		`rate_limiter_rule_decisions_total{outcome="banned",rule="new",set=""} 1`:     true,
		`rule="cost"`: false,
	} {
		if strings.Contains(text, line) != want {
			t.Errorf("the metrics have %q: %t, want %t", line, !want, want)
		}
	}
	if changes := s.SwapRules(nil); len(changes.Removed) != 3 || len(changes.Added)+len(changes.Changed) != 0 {
		t.Errorf("no rules: %+v", changes)
	}
	if e := f.post(evaluate, `{"path":"/new"}`).evaluated(200); len(e.Matched) != 0 {
		t.Errorf("after all rules went: %+v", e)
	}
}

func TestRuleMetrics(t *testing.T) {
	f := newFixture(t, nil)
	for _, body := range []string{
		`{"path":"/user","attributes":{"userId":"u"}}`, `{"path":"/user","attributes":{"userId":"mallory"}}`, `{"path":"/user"}`,
		`{"path":"/shadow"}`, `{"path":"/shadow"}`, `{"path":"/tokens","attributes":{"tokens":11}}`, `{"path":"/free"}`, `{}`,
	} {
		f.post(evaluate, body)
	}
	text := f.get(apipath.Metrics).body
	for _, line := range []string{
		`rate_limiter_rules 11`,
		`rate_limiter_rule_decisions_total{outcome="allowed",rule="user",set=""} 1`,
		`rate_limiter_rule_decisions_total{outcome="banned",rule="user",set=""} 1`,
		`rate_limiter_rule_decisions_total{outcome="missing",rule="user",set=""} 1`,
		`rate_limiter_rule_decisions_total{outcome="shadow_allowed",rule="shadow",set=""} 1`,
		`rate_limiter_rule_decisions_total{outcome="shadow_denied",rule="shadow",set=""} 1`,
		`rate_limiter_rule_decisions_total{outcome="denied",rule="tokens",set=""} 1`,
		`rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 1`,
		`rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 1`,
		`rate_limiter_check_seconds_count{algorithm="FIXED_WINDOW",allowed="false"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %q", line)
		}
	}
	if n := strings.Count(text, "\nrate_limiter_rule_decisions_total"); n != 6 {
		t.Errorf("%d series of decisions, want 6", n)
	}
}

// A rule that waits holds the call, also for longer than a body may take, and not for longer
// than the server's answer may.
func TestEvaluateWaits(t *testing.T) {
	r := run(t, func(c *server.Config) { c.HTTP.BodyTimeout = 10 * time.Millisecond })
	var held bool
	r.store.enter = func(context.Context) {
		if r.store.calls.Load() == 3 { // of the second request
			held = true
			r.store.advance(100 * time.Millisecond)
		}
	}
	post := func(path string) reply {
		request := r.request(http.MethodPost, r.server.Addr().String(), evaluate)
		body := `{"path":"` + path + `"}`
		request.Body, request.ContentLength = httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body)).Body, int64(len(body))
		return r.send(request)
	}
	for i := range 2 {
		if e := post("/wait").evaluated(200); e.Rule != "wait" || e.RetryAfterSeconds != 0 {
			t.Errorf("request %d: %+v", i, e)
		}
	}
	if !held {
		t.Error("the second request was not held")
	}
}

func TestEvaluateDoesNotWaitForever(t *testing.T) {
	f := newFixture(t, func(c *server.Config) { c.HTTP.WriteTimeout = 50 * time.Millisecond })
	f.post(evaluate, `{"path":"/wait"}`).evaluated(200)
	if e := f.post(evaluate, `{"path":"/wait"}`).evaluated(429); e.RetryAfterMicros != 100_000 {
		t.Errorf("%+v", e)
	}
}

// A rule that may hold requests for longer than the service can says so when it comes into
// force, and with what it would not be cut short.
func TestWaitsThatAreCutShort(t *testing.T) {
	config, _, log := testConfig()
	waiting := func(id string, maxWait time.Duration) rules.Rule {
		return rules.Rule{
			ID: id, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)},
			OnExceed: rules.Wait, MaxWait: maxWait,
		}
	}
	long := waiting("long", 25*time.Second)
	config.Rules = compile(t, []rules.Rule{long, waiting("short", 20*time.Second)})
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(ids ...string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(log.String()) {
			if _, rest, found := strings.Cut(line, "its max_wait"); found {
				_, id, _ := strings.Cut(rest, " rule=")
				id, _, _ = strings.Cut(id, " ")
				got = append(got, id)
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("warned of %v, want %v:\n%s", got, ids, log)
		}
	}
	expect("long")
	if want := "rule=long max_wait=25s bound=20s http.write_timeout=30s needed=35s\n"; !strings.Contains(log.String(), want) {
		t.Errorf("the log is %q, want in it %q", log, want)
	}
	long.Priority = 1 // another wait does not come into force
	off := waiting("off", time.Minute)
	off.Disabled = true
	s.SwapRules(compile(t, []rules.Rule{long, off}))
	expect("long")
	off.Disabled, long.MaxWait = false, 5*time.Minute
	s.SwapRules(compile(t, []rules.Rule{long, off}))
	expect("long", "long", "off")

	config.HTTP.WriteTimeout = 35 * time.Second
	config.Rules = compile(t, []rules.Rule{waiting("needed", 25*time.Second)})
	if _, err = server.New(config); err != nil {
		t.Fatal(err)
	}
	expect("long", "long", "off")
}

func TestEvaluateAllocates(t *testing.T) {
	f := newFixture(t, nil)
	w := &discard{header: http.Header{}}
	text := `{"method":"POST","path":"/login","host":"h","ip":"198.51.100.1","headers":{"X-A":"b"},"attributes":{"userId":"u"}}`
	n := testing.AllocsPerRun(200, func() { serve(f, w, newRequest(http.MethodPost, evaluate, text)) })
	request := testing.AllocsPerRun(200, func() { newRequest(http.MethodPost, evaluate, text) })
	budget := 20.0
	if raceEnabled {
		budget *= 2
	}
	t.Logf("%v allocations", n-request)
	if n-request > budget {
		t.Errorf("an evaluation allocates %v times, want at most %v", n-request, budget)
	}
}
