package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// FuzzHandler drives the whole handler with requests of any method, path, query,
// fields and body. Whatever comes, nothing panics, no answer is a 5xx, what is refused
// is a problem document that says what is allowed, and every answer is one that
// openapi.yaml describes.
func FuzzHandler(f *testing.F) {
	for _, seed := range []struct{ method, path, query, fields, body string }{
		{"GET", check, "", "", ""},
		{"GET", check, "key=user:123&algorithm=TOKEN_BUCKET&permits=5", "Authorization: Bearer " + apiToken, ""},
		{"GET", check, "key=%F0%9F%98%80&policy=pair", "", ""},
		{"GET", check, "algorithm=SLIDING_WINDOW_LOG&permits=101", "X-Forwarded-For: 198.51.100.1, 10.0.0.1", ""},
		{"HEAD", check, "", "", ""},
		{"POST", check, "", "Content-Type: application/json", `{"key":"k","algorithm":"LEAKY_BUCKET","permits":2}`},
		{"POST", check, "", "", `{"key":"k","algorithm":"LEAKy_BUCKET"}`},
		{"POST", check, "", "", `[{"key":"a"},{"policy":"push"},{}]`},
		{"POST", check, "", "Authorization: Basic YTpi", `{"key":"\ud83d\ude00"}`},
		{"GET", apipath.Remaining, "key=k&policy=leak", "", ""},
		{"GET", apipath.Remaining, "key=k&permits=3&algorithm=SLIDING_WINDOW", "", ""},
		{"HEAD", apipath.Remaining, "permits=9", "", ""},
		{"GET", check, "key=k&permits=3&keep=98", "", ""},
		{"POST", check, "", "", `[{"key":"a","keep":100},{"keep":-1}]`},
		{"DELETE", apipath.Reset, "key=k", "", ""},
		{"DELETE", apipath.Reset, "policy=pair", "", ""},
		{"POST", apipath.Settle, "", "", `{"key":"k","algorithm":"FIXED_WINDOW","permits":-3}`},
		{"POST", apipath.Settle, "", "", `{"permits":9223372036854775807}`},
		{"GET", check, "key=k", "Authorization: Bearer 0123456789abL.,cdef", ""},
		{"POST", apipath.Evaluate, "", "", `{}`},
		{"POST", apipath.Evaluate, "", "", `{"path":"/wait"}`},
		{"POST", apipath.Evaluate, "", "", `{"method":"POST","path":"/login","ip":"198.51.100.1","attributes":{"userId":7}}`},
		{"POST", apipath.Evaluate, "", "", `{"path":"/cost/1","host":"h:80","headers":{"X-Cost":"2"},"attributes":{"a":"\u00e9"}}`},
		{"POST", apipath.Evaluate, "", "", `{"path":"/banned","ip":"2001:db8::1"}`},
		{"POST", apipath.Evaluate, "", "", `{"path":"/key","attributes":{"apiKey":"k"}}`},
		{"GET", apipath.ForwardAuth, "", "X-Forwarded-Method: POST\nX-Forwarded-Uri: /login?a=b\nX-Forwarded-Host: h\nX-Forwarded-For: 198.51.100.1", ""},
		{"GET", apipath.ForwardAuth, "deny_status=403", "X-Original-Method: GET\nX-Original-Uri: /banned", ""},
		{"GET", apipath.ForwardAuth, "", "X-Original-Uri: /%62anned\nX-Original-Uri: /", ""},
		{"GET", apipath.Health, "", "", ""},
		{"GET", apipath.Liveness, "", "", ""},
		{"GET", apipath.Readiness, "", "", ""},
		{"GET", apipath.Info, "", "", ""},
		{"GET", apipath.Metrics, "", "Accept: application/openmetrics-text; version=1.0.0\nAccept-Encoding: gzip", ""},
		{"GET", apipath.MetricsAlias, "", "", ""},
		{"GET", apipath.OpenAPI, "", "", ""},
		{"GET", "/debug/pprof/", "", "", ""},
		{"OPTIONS", "*", "", "", ""},
		{"BREW", "//etc/../passwd", "%zz;&=", "Host: evil\nX-Real-IP: ::1%eth0", "\x00"},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.fields, seed.body)
	}
	open := newFixture(f, func(c *server.Config) {
		c.HTTP.WriteTimeout = time.Millisecond // too short for a rule to hold a request
		c.ClientIP.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	})
	guarded := newFixture(f, func(c *server.Config) {
		c.HTTP.WriteTimeout = time.Millisecond
		c.API = config.API{ExplicitKeys: true, Tokens: []string{apiToken}}
	})
	f.Fuzz(func(t *testing.T, method, path, query, fields, body string) {
		for _, fixture := range []*fixture{open, guarded} {
			one := *fixture
			one.t = t
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader(body))
			r.Method, r.URL = method, &url.URL{Path: path, RawQuery: query}
			for line := range strings.SplitSeq(fields, "\n") {
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Add(name, value)
			}
			logged := one.log.lines() - sampled(one.log.String())
			got := one.serve(r, body)
			if got.status >= 500 {
				t.Fatalf("%d %s", got.status, got.body)
			}
			denied := path == apipath.ForwardAuth && got.body == ""
			if got.status >= 400 && got.status != http.StatusTooManyRequests && !denied && method != http.MethodHead {
				got.problem(got.status, "allowed")
			}
			if one.log.lines()-sampled(one.log.String()) > logged {
				t.Fatalf("input fills the log:\n%s", one.log)
			}
		}
	})
}

// sampled is how many lines are there that are logged at a bounded rate.
func sampled(log string) int {
	return strings.Count(log, "outcome=invalid_token") + strings.Count(log, "a forwarded header is ignored")
}

// serve serves a request and holds the response against openapi.yaml, as do does; it
// leaves out requests that net/url and the service read differently.
func (f *fixture) serve(r *http.Request, body string) reply {
	f.t.Helper()
	recorder := httptest.NewRecorder()
	f.ServeHTTP(recorder, r)
	response := recorder.Result()
	got := reply{t: f.t, status: response.StatusCode, header: response.Header, body: recorder.Body.String()}
	if !strings.Contains(r.URL.RawQuery, ";") && strings.HasPrefix(r.URL.Path, "/") {
		f.conform(r, []byte(body), got)
	}
	return got
}
