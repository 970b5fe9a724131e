package server_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// FuzzHandler drives the whole handler with requests of any method, path, query,
// fields and body. Whatever comes, nothing panics, no answer is a 5xx, what is refused
// is a problem document that says what is allowed, and every answer is one that
// openapi.yaml describes.
func FuzzHandler(f *testing.F) {
	for _, seed := range []struct{ method, path, query, fields, body string }{
		{"GET", apipath.Metrics, "", "Accept: application/openmetrics-text; version=1.0.0\nAccept-Encoding: gzip", ""},
		{"OPTIONS", "*", "", "", ""},
		{"BREW", "//etc/../passwd", "%zz;&=", "Host: evil\nX-Real-IP: ::1%eth0", "\x00"},
		{"GET", check, "key=k", "Authorization: Bearer 0123456789abL.,cdef", ""},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.fields, seed.body)
	}
	for _, path := range must.Get(filepath.Glob("testdata/*.txt"))(f) { // and all requests of the transcripts
		method, target, body, fields := "", "", "", []string{}
		for line := range strings.Lines(string(must.Get(os.ReadFile(path))(f)) + "\n") {
			line = strings.TrimSuffix(line, "\n")
			if field, isField := strings.CutPrefix(line, "  "); isField && field[0] != ' ' {
				fields = append(fields, field)
				continue
			}
			if method != "" && len(line) < 1000 {
				path, query, _ := strings.Cut(target, "?")
				f.Add(method, path, query, strings.Join(fields, "\n"), body)
			}
			method, fields = "", nil
			if word, rest, _ := strings.Cut(line, " "); slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "DELETE"}, word) {
				method = word
				target, body, _ = strings.Cut(rest, " ")
			}
		}
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
			denied := path == apipath.ForwardAuth && got.body == "" || strings.Contains(got.body, "urn:stint:hold") // is not there
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
