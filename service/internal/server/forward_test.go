package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// behindProxies trusts 192.0.2.0/24, where the tests' requests come from, and loopback.
func behindProxies(c *server.Config) {
	c.API.Open = false
	c.ClientIP.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.0/8")}
	c.Identity = config.Identity{User: "x-user-id", APIKey: "X-Api-Key"}
}

// traefik are the fields that Traefik and Caddy send.
func traefik(method, uri string) http.Header {
	return http.Header{
		"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {"a.example.com"},
		"X-Forwarded-Proto": {"https"}, "X-Forwarded-For": {"198.51.100.1"},
	}
}

// nginx are the fields that nginx is configured to send.
func nginx(method, uri string) http.Header {
	return http.Header{"X-Original-Method": {method}, "X-Original-Uri": {uri}, "X-Forwarded-For": {"198.51.100.1"}}
}

// with is a copy of the header with a field set, or removed when there are no values.
func with(header http.Header, name string, values ...string) http.Header {
	header = header.Clone()
	header[http.CanonicalHeaderKey(name)] = values
	if values == nil {
		header.Del(name)
	}
	return header
}

func (f *fixture) ask(query string, header http.Header) reply {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), http.MethodGet, apipath.ForwardAuth+query, nil)
	r.Header = header
	return f.do(r)
}

// answered expects an answer without a body.
func (r reply) answered(status int) reply {
	r.t.Helper()
	if r.status != status || r.body != "" || r.header.Get("Cache-Control") != "no-store" {
		r.t.Errorf("%d %v %q, want %d without a body", r.status, r.header, r.body, status)
	}
	return r
}

func TestForwardAuth(t *testing.T) {
	for name, header := range map[string]http.Header{
		"traefik": traefik("POST", "/login?next=/"), "nginx": nginx("POST", "//x/..%2Flogin"),
		"both, alike": with(with(with(traefik("POST", "/login"), "X-Original-Method", "POST"), "X-Original-Uri", "/login"),
			"X-Forwarded-Host", "example.com"), // which is the request's own
	} {
		f := newFixture(t, behindProxies)
		for i, remaining := range []string{"1", "0"} {
			got := f.ask("", header).answered(200).header
			if got.Get("X-RateLimit-Remaining") != remaining || got.Get("RateLimit-Policy") != `"default";q=2;w=60` {
				t.Errorf("%s, request %d: %v", name, i, got)
			}
		}
		got := f.ask("", header).answered(429).header
		if got.Get("Retry-After") != "50" || got.Get("RateLimit") != `"default";r=0;t=50` {
			t.Errorf("%s, denied: %v", name, got)
		}
		f.ask("", with(header, "X-Forwarded-For", "198.51.100.2")).answered(200) // another client
	}
}

// ingress are the fields that ingress-nginx has nginx send; the request's own host is that of auth-url.
func ingress(method, url string) http.Header {
	return http.Header{"X-Original-Method": {method}, "X-Original-Url": {url}, "X-Forwarded-For": {"198.51.100.1"}}
}

func TestForwardAuthIngress(t *testing.T) {
	f := newFixture(t, behindProxies)
	for i, url := range []string{"https://a.example.com/login?next=/", "http://b.example.com:8080//x/..%2Flogin", "http://c/login"} {
		f.ask("", ingress("POST", url)).answered(map[bool]int{false: 200, true: 429}[i == 2])
	}
	for url, want := range map[string]string{
		"/login":        `X-Original-Url is "/login"; allowed: a URL such as https://example.com/path`,
		"ftp://a/login": "allowed: a URL", "https:///login": "allowed: a URL", "https://a": "allowed: a URL", "http//a/b": "allowed: a URL",
		"https://%61.example.com/login": "host is", "": "X-Forwarded-Uri and X-Original-Uri are missing",
	} {
		f.ask("", ingress("POST", url)).problem(400, want)
	}
	f.ask("", with(ingress("POST", "https://a/login"), "X-Original-Url", "https://a/login", "https://a/login")).problem(400, "2 lines")
	f.ask("", with(ingress("POST", "https://a/login"), "X-Original-Method")).problem(400, "X-Forwarded-Method and X-Original-Method are missing")
	// What a client sends in the fields of other proxies has to say the same.
	for name, header := range map[string]http.Header{
		"nginx": with(nginx("GET", "/free"), "X-Original-Url", "http://a.example.com/cost/1"), "a host": with(nginx("GET", "/free"), "X-Original-Url", "http://b.example.com/free"),
		"Traefik": with(traefik("GET", "/free"), "X-Original-Url", "http://a.example.com/cost/1"), "its host": with(traefik("GET", "/free"), "X-Original-Url", "http://b.example.com/free"),
	} {
		if f.ask("", header).problem(400, "X-Original-Url is", "allowed: one of them, or the same in both"); t.Failed() {
			t.Error(name)
		}
	}
	f.ask("", with(traefik("GET", "/free"), "X-Original-Url", "https://a.example.com/free")).answered(200)
	f.ask("", with(nginx("GET", "/free"), "X-Original-Url", "https://example.com/free")).answered(200)
}

func TestForwardAuthStatus(t *testing.T) {
	f := newFixture(t, behindProxies)
	for query, status := range map[string]int{
		"": 429, "?deny_status=429": 429, "?deny_status=403": 403, "?deny_status=401": 401,
	} {
		got := f.ask(query, traefik("GET", "/banned")).answered(status).header
		if got.Get("Retry-After") != "" || got.Get("RateLimit") != "" {
			t.Errorf("a ban has limits: %v", got)
		}
		// RFC 9110, section 15.5.2: a 401 must have a challenge; no other status is to have one here.
		if want := map[int]string{401: "Stint-RateLimit"}[status]; got.Get("WWW-Authenticate") != want {
			t.Errorf("%d has WWW-Authenticate %q, want %q", status, got.Get("WWW-Authenticate"), want)
		}
		if got := f.ask(query, traefik("GET", "/cost/1")).answered(200).header.Get("WWW-Authenticate"); got != "" {
			t.Errorf("an admission has WWW-Authenticate %q", got)
		}
		if got := f.ask(query, with(traefik("GET", "/cost/1"), "X-Cost", "11")).answered(status).header; got.Get("Retry-After") != "" || got.Get("X-RateLimit-Limit") != "10" {
			t.Errorf("a cost above the limit: %v", got)
		}
	}
	for _, query := range []string{"?deny_status=200", "?deny_status=", "?deny_status=500", "?deny_status=403&deny_status=401", "?status=403"} {
		f.ask(query, traefik("GET", "/banned")).problem(400, "deny_status=401, deny_status=403 or deny_status=429")
	}
	f.ask("", traefik("GET", "/none")).answered(200)
	f.ask("", traefik("GET", "/free")).answered(200)
}

// User and API key come from the identity fields of a trusted proxy alone.
func TestForwardAuthIdentity(t *testing.T) {
	f := newFixture(t, behindProxies)
	user := traefik("GET", "/user")
	f.ask("", user).answered(429) // nobody is told, and the rule denies that
	f.ask("", with(user, "X-User-Id", "mallory")).answered(429)
	if got := f.ask("", with(user, "X-User-Id", "root")).answered(200).header; got.Get("RateLimit") != "" {
		t.Errorf("an unlimited user has a limit: %v", got)
	}
	for id, limit := range map[string]string{"u": "3", "vip": "50"} {
		if got := f.ask("", with(user, "X-User-Id", id)).answered(200).header.Get("X-RateLimit-Limit"); got != limit {
			t.Errorf("user %s has limit %s, want %s", id, got, limit)
		}
	}
	key := traefik("GET", "/key")
	for range 4 {
		f.ask("", with(key, "X-Api-Key", "one")).answered(200)
	}
	f.ask("", with(key, "X-Api-Key", "one")).answered(429)
	f.ask("", with(key, "X-Api-Key", "two")).answered(200)
	f.ask("", key).answered(200) // by the address
	f.ask("", with(user, "X-User-Id", "root", "u")).problem(400, "X-User-Id is", "one line")
	f.ask("", with(key, "X-Api-Key", "one", "two")).problem(400, "X-Api-Key is")

	unnamed := newFixture(t, func(c *server.Config) { behindProxies(c); c.Identity = config.Identity{} })
	unnamed.ask("", with(user, "X-User-Id", "root")).answered(429)
}

// Attributes come from the identity fields of a trusted proxy alone, and make a request's class and its client.
func TestForwardAuthAttributes(t *testing.T) {
	list := []rules.Rule{{
		ID: "team", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip,
		Limits: []stint.Limit{stint.FixedWindow(10, time.Minute)},
		Classes: rules.Classes{
			By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"critical": 0, "batch": 50}, Default: "batch",
		},
	}}
	f := newFixture(t, func(c *server.Config) {
		behindProxies(c)
		c.Identity.Attributes = map[string]string{"team": "x-team", "class": "X-Class"}
		c.Rules = compile(t, list)
	})
	remaining := func(header http.Header) string {
		t.Helper()
		return f.ask("", header).answered(200).header.Get("X-RateLimit-Remaining")
	}
	search := with(nginx("GET", "/"), "X-Team", "search")
	critical := with(search, "X-Class", "critical")
	for _, test := range []struct {
		what   string
		header http.Header
		want   string
	}{
		{"a critical request", critical, "9"},
		{"a batch request, for which 5 are kept", with(search, "X-Class", "batch"), "3"},
		{"a request of the default class", search, "2"},
		{"an unknown class", with(search, "X-Class", "urgent"), "1"},
		{"an empty class", with(search, "X-Class", ""), "0"},
		{"a critical request after these", critical, "4"},
		{"another team", with(critical, "X-Team", "ads"), "9"},
		{"no team", nginx("GET", "/"), ""},
		{"an empty team", with(search, "X-Team", ""), ""},
		{"a field that is none of the identity's", with(nginx("GET", "/"), "Team", "search"), ""},
	} {
		if got := remaining(test.header); got != test.want {
			t.Errorf("%s: %s remaining, want %s", test.what, got, test.want)
		}
	}
	f.ask("", search).answered(429)
	f.ask("", with(search, "X-Class", "critical", "batch")).problem(400, "X-Class is", "one line")
	f.ask("", with(search, "X-Team", "search", "ads")).problem(400, "X-Team is", "one line")

	// From another peer they are no more believed than the user is.
	r := newRequest(http.MethodGet, apipath.ForwardAuth, "")
	r.Header, r.RemoteAddr = critical, "198.51.100.1:80"
	f.do(r).problem(403, "trusted_proxies")
	if got := remaining(critical); got != "3" {
		t.Errorf("after another peer %s remaining, want 3", got)
	}
	open := newFixture(t, func(c *server.Config) { behindProxies(c); c.Rules = compile(t, list) })
	if got := open.ask("", critical).answered(200).header.Get("X-RateLimit-Remaining"); got != "" {
		t.Errorf("without identity.attributes %s remaining", got)
	}
}

func TestForwardAuthIsForProxies(t *testing.T) {
	f := newFixture(t, behindProxies)
	for _, peer := range []string{"198.51.100.1:80", "[2001:db8::1]:80", "@"} {
		r := newRequest(http.MethodGet, apipath.ForwardAuth, "")
		r.Header, r.RemoteAddr = traefik("GET", "/free"), peer
		f.do(r).problem(403, "trusted_proxies")
	}
	newFixture(t, nil).ask("", traefik("GET", "/free")).problem(403, "trusted_proxies")
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestForwardAuthMisuse(t *testing.T) {
	f := newFixture(t, behindProxies)
	for want, header := range map[string]http.Header{
		"X-Forwarded-Method and X-Original-Method are missing":    with(traefik("", "/"), "X-Forwarded-Method"),
		"X-Forwarded-Uri and X-Original-Uri are missing":          with(nginx("GET", "/"), "X-Original-Uri"),
		"X-Forwarded-Host is missing":                             with(traefik("GET", "/"), "X-Forwarded-Host"),
		"X-Forwarded-Method is \"2 lines\"":                       with(traefik("GET", "/"), "X-Forwarded-Method", "GET", "GET"),
		"X-Forwarded-Uri is \"2 lines\"":                          with(traefik("GET", "/"), "X-Forwarded-Uri", "/", "/login"),
		"X-Forwarded-Host is \"2 lines\"":                         with(traefik("GET", "/"), "X-Forwarded-Host", "a", "b"),
		"X-Forwarded-Host is \"a, b\"":                            with(traefik("GET", "/"), "X-Forwarded-Host", "a, b"),
		"X-Original-Method is \"2 lines\"":                        with(nginx("GET", "/"), "X-Original-Method", "GET", "POST"),
		"X-Original-Uri is \"2 lines\"":                           with(nginx("GET", "/"), "X-Original-Uri", "/", "/"),
		`X-Forwarded-Uri is "/free" beside X-Original-Uri "/cost`: with(nginx("GET", "/cost/1"), "X-Forwarded-Uri", "/free"),
		`X-Forwarded-Method is "GET" beside X-Original-Method "P`: with(traefik("GET", "/"), "X-Original-Method", "POST"),
		`X-Forwarded-Uri is "http://h/login"; allowed: a path`:    traefik("GET", "http://h/login"),
		`X-Original-Uri is "login"; allowed: a path that begins`:  nginx("GET", "login"),
		`host is "%61.example.com"; allowed: a name`:              with(traefik("GET", "/"), "X-Forwarded-Host", "%61.example.com"),
		`bytes that can be read in several ways`:                  traefik("GET", "/"+strings.Repeat("%2F", 3000)),
		`rule "cost": X-Cost is "-1"; allowed: a cost`:            with(traefik("GET", "/cost/1"), "X-Cost", "-1"),
		`rule "cost": X-Cost is "2 lines"; allowed: one`:          with(traefik("GET", "/cost/1"), "X-Cost", "1", "2"),
	} {
		f.ask("", header).problem(400, want)
	}
	if n := f.store.calls.Load(); n != 0 || f.log.lines() != 0 {
		t.Errorf("the store was asked %d times; the log:\n%s", n, f.log)
	}
}

// With ambiguous_paths: reject, a path that programs take apart in different ways is a bad request, of evaluate as well.
func TestAmbiguousPaths(t *testing.T) {
	f := newFixture(t, func(c *server.Config) { behindProxies(c); c.API.Open, c.RejectAmbiguousPaths = true, true })
	for _, path := range []string{"//login", "/x/../login", `/x\login`, "/login%2F", "/login#x", "/login;x=1"} {
		f.ask("", traefik("POST", path)).problem(400, "path is", "a path that all programs take for the same")
		f.ask("?deny_status=403", nginx("POST", path)).problem(400, "path is")
		f.post(evaluate, fmt.Sprintf(`{"method":"POST","path":%q}`, path)).problem(400, "path is")
	}
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	f.ask("", traefik("POST", "/%6cogin/?next=//x")).answered(200)
	f.ask("", nginx("GET", "/caf%C3%A9/a%20b")).answered(200)
	unruled := newFixture(t, func(c *server.Config) { behindProxies(c); c.Rules, c.RejectAmbiguousPaths = nil, true })
	unruled.ask("", traefik("POST", "//login")).problem(400, "path is")
}

// nginx passes the host on as the request's own, unless it is told to do it otherwise.
func TestForwardAuthHost(t *testing.T) {
	list := ruleList()
	last := &list[len(list)-1]
	last.Scope, last.Missing = []string{rules.PerIP}, rules.MissingUnset
	f := newFixture(t, func(c *server.Config) { behindProxies(c); c.Rules = compile(t, list) })
	ask := func(header http.Header, host string) string {
		r := newRequest(http.MethodGet, apipath.ForwardAuth, "")
		r.Header, r.Host = with(header, "X-Plan", "free"), host
		return f.do(r).answered(200).header.Get("X-RateLimit-Limit")
	}
	for _, test := range []struct {
		header http.Header
		host   string
		limit  string
	}{
		{nginx("GET", "/host"), "A.example.com:8443", "10"},
		{nginx("GET", "/host"), "example.org", ""},
		{with(nginx("GET", "/host"), "X-Forwarded-Host", "example.org"), "a.example.com", "10"}, // the client's own
		{traefik("GET", "/host"), "stint", "10"},
		{ingress("GET", "https://A.example.com:8443/host"), "stint", "10"},
		{ingress("GET", "https://example.org/host"), "a.example.com", ""},
		{with(traefik("GET", "/host"), "X-Forwarded-Host", "example.org"), "a.example.com", ""},
	} {
		if got := ask(test.header, test.host); got != test.limit {
			t.Errorf("%v, Host %s: limit %q, want %q", test.header, test.host, got, test.limit)
		}
	}
}

// A client behind nginx must not choose the host by telling the URI in the other proxies' way as well.
func TestForwardAuthHostCannotBeChosen(t *testing.T) {
	f := newFixture(t, behindProxies)
	header := nginx("GET", "/tokens")
	header = with(header, "X-Forwarded-Method", "GET")
	header = with(header, "X-Forwarded-Uri", "/tokens")
	header = with(header, "X-Forwarded-Host", "elsewhere.example.com")
	f.ask("", header).problem(400, "X-Forwarded-Host is \"elsewhere.example.com\" beside Host")
}

func TestForwardAuthWithoutStore(t *testing.T) {
	f := newFixture(t, behindProxies)
	f.store.fail(stint.ErrUnavailable)
	f.ask("?deny_status=403", traefik("GET", "/tokens")).problem(503, "store")
	f.ask("?deny_status=403", traefik("GET", "/banned")).answered(403)

	degraded := newFixture(t, func(c *server.Config) {
		behindProxies(c)
		away, err := failover.New(c.Store, failover.Config{Mode: failover.Open})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(away.Close)
		c.Store = away
	})
	degraded.store.fail(stint.ErrUnavailable)
	if got := degraded.ask("", traefik("GET", "/tokens")).answered(200).header; got.Get("RateLimit") != "" {
		t.Errorf("a failure policy's answer has rate limit fields: %v", got)
	}
}

// Over a connection: trust, a rule in shadow, a rule that waits, and what is counted.
func TestForwardAuthOverHTTP(t *testing.T) {
	r := run(t, behindProxies)
	r.store.enter = func(context.Context) {
		if r.store.calls.Load() == 3 { // the second try of the second request
			r.store.advance(100 * time.Millisecond)
		}
	}
	ask := func(header http.Header) reply {
		request := r.request(http.MethodGet, r.server.Addr().String(), apipath.ForwardAuth)
		request.Header = header
		return r.send(request)
	}
	for range 2 {
		ask(traefik("GET", "/wait")).answered(200)
	}
	if n := r.store.calls.Load(); n != 3 {
		t.Errorf("two requests, one of which is held, asked the store %d times, want 3", n)
	}
	for range 2 {
		ask(nginx("GET", "/shadow")).answered(200)
	}
	text := r.get(apipath.Metrics).body
	for _, line := range []string{
		`rate_limiter_rule_decisions_total{outcome="allowed",rule="wait",set=""} 2`,
		`rate_limiter_rule_decisions_total{outcome="shadow_allowed",rule="shadow",set=""} 1`,
		`rate_limiter_rule_decisions_total{outcome="shadow_denied",rule="shadow",set=""} 1`,
		`rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %q", line)
		}
	}

	alone := run(t, nil)
	request := alone.request(http.MethodGet, alone.server.Addr().String(), apipath.ForwardAuth)
	request.Header = traefik("GET", "/free")
	alone.send(request).problem(403, "trusted_proxies")
}

func TestForwardAuthConfig(t *testing.T) {
	config, _, _ := testConfig()
	config.Identity.User, config.Identity.APIKey, config.Identity.Attributes = "X User", "X-Key:", map[string]string{"plan": "X:"}
	config.Policies[""] = pushLimits()
	_, err := server.New(config)
	for _, want := range []string{`identity.user is "X User"`, `identity.api_key is "X-Key:"`, `identity.attributes.plan is "X:"`, `policies is ""`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %s", err, want)
		}
	}
}

// TestMissingStatus: a rule may have a request that does not say who sends it answered 401, whatever the proxy wants of
// other denials.
func TestMissingStatus(t *testing.T) {
	known := rules.Rule{
		ID: "known", Scope: []string{rules.PerUser}, Missing: rules.MissingDeny, MissingStatus: 401,
		Limits: []stint.Limit{stint.FixedWindow(1, time.Hour)},
	}
	f := newFixture(t, func(c *server.Config) {
		behindProxies(c)
		c.API.Open, c.Rules = true, compile(t, []rules.Rule{known})
	})
	for i, query := range []string{"", "?deny_status=403", "?deny_status=429"} {
		got := f.ask(query, nginx("GET", "/"))
		if got.answered(401); got.header.Get("WWW-Authenticate") != "Stint-RateLimit" {
			t.Errorf("query %d: %v", i, got.header)
		}
	}
	got := f.post(evaluate, `{"path":"/"}`)
	if got.status != 401 || got.header.Get("WWW-Authenticate") != "Stint-RateLimit" || !strings.Contains(got.body, `"reason":"missing"`) {
		t.Errorf("evaluate: %d %v %s", got.status, got.header, got.body)
	}
	for _, want := range []int{200, 429} { // whoever says it is limited as others are
		if got := f.post(evaluate, `{"path":"/","attributes":{"userId":"ann"}}`); got.status != want {
			t.Errorf("with a user: %d, want %d", got.status, want)
		}
	}
}
