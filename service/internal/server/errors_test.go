package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server"
)

func TestBadQueries(t *testing.T) {
	f := newFixture(t, nil)
	long := strings.Repeat("k", bounds.MaxKeyBytes+1)
	for query, want := range map[string]string{
		"key=k&algorithm=TOKEN":                    `algorithm is "TOKEN"; allowed: one of TOKEN_BUCKET, LEAKY_BUCKET`,
		"key=k&algorithm=":                         `algorithm is ""`,
		"key=k&algorithm=" + long:                  "algorithm is",
		"key=k&policy=none":                        `policy is "none"; allowed: leak, pair, push`,
		"key=k&policy=":                            `policy is ""`,
		"key=k&policy=pair&algorithm=LEAKY_BUCKET": `allowed: one of the two`,
		"key=k&permits=0":                          `permits is "0"; allowed: an integer from 1 to 100`,
		"key=k&permits=-1":                         `permits is "-1"`,
		"key=k&permits=101":                        `permits is "101"`,
		"key=k&permits=1.5":                        `permits is "1.5"`,
		"key=k&permits=1e2":                        `permits is "1e2"`,
		"key=k&permits=":                           `permits is ""`,
		"key=k&permits=+1":                         `permits is " 1"`,
		"key=k&permits=abc":                        `permits is "abc"`,
		"key=k&permits=9223372036854775808":        `permits is "9223372036854775808"`,
		"key=k&permits=18446744073709551617":       `permits is "18446744073709551617"`,
		"key=k&policy=pair&permits=4":              `permits is "4"; allowed: an integer from 1 to 3`,
		"key=k&keep=-1":                            `keep is "-1"; allowed: an integer from 0 to 100`,
		"key=k&keep=101":                           `keep is "101"`,
		"key=k&keep=1.5":                           `keep is "1.5"`,
		"key=k&keep=":                              `keep is ""`,
		"key=k&keep=+1":                            `keep is " 1"`,
		"key=k&keep=9223372036854775808":           `keep is "9223372036854775808"`,
		"key=k&policy=pair&keep=4":                 `keep is "4"; allowed: an integer from 0 to 3`,
		"keep=1&keep=1":                            "keep is repeated",
		"key=":                                     `key is ""; allowed: 1 to 256 bytes`,
		"key":                                      `key is ""`,
		"key=" + long:                              "it has 257",
		"key=%FF":                                  `key is "\xff"; allowed: UTF-8`,
		"key=a%C3%28":                              "UTF-8",
		"key=%00":                                  `key is "\x00"; allowed: no control characters`,
		"key=a%0Ab":                                "no control characters",
		"key=%7F":                                  "no control characters",
		"key=%C2%85":                               "no control characters",
		"key=%C2%9F":                               "no control characters",
		"key=%zz":                                  `query is "%zz"`,
		"key=%4":                                   "percent-encoding",
		"key=%":                                    "percent-encoding",
		"%k=1":                                     "percent-encoding",
		"key=a&key=b":                              "key is repeated; allowed: once",
		"key=a&%6Bey=b":                            "key is repeated",
		"permits=1&permits=1":                      "permits is repeated",
		"key=a&cost=1":                             `parameter is "cost"; allowed: key, algorithm, policy, permits, keep, details`,
		"Key=a":                                    `parameter is "Key"`,
		"=a":                                       `parameter is ""`,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, check, nil)
		r.URL.RawQuery = query
		f.do(r).problem(400, want)
	}
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	if f.log.lines() != 0 {
		t.Errorf("bad input fills the log:\n%s", f.log)
	}
}

func TestBadBodies(t *testing.T) {
	f := newFixture(t, nil)
	for body, want := range map[string]string{
		"":                        "malformed",
		"  ":                      "malformed",
		"null":                    "malformed",
		`"key"`:                   "malformed",
		"\x00":                    "malformed",
		"\ufeff{}":                "malformed",
		"{":                       "malformed",
		`{"key"}`:                 "malformed",
		`{"key":}`:                "malformed",
		`{"key":"k"`:              "malformed",
		`{"key":"k",}`:            "malformed",
		`{"key":"k" "permits":1}`: "malformed",
		`{'key':"k"}`:             "malformed",
		`{"key":"k`:               "malformed",
		"{\"key\":\"a\nb\"}":      "malformed",
		`{"key":"\x"}`:            "malformed",
		`{"key":"\u12"}`:          "malformed",
		`{"key":"\`:               "malformed",
		`{"key":"\ud800"}`:        "malformed",
		`{"key":"\ud800\u0041"}`:  "malformed",
		`{"key":"\udc00\ud800"}`:  "malformed",
		`{"key":"\ud800udc00"}`:   "malformed",
		`{"key":"k"} {}`:          "malformed",
		`{"key":"k"}]`:            "malformed",
		"{\"key\":\"\xff\"}":      "not UTF-8",
		`{"key":"\u0000"}`:        "no control characters",
		`{"key":""}`:              "1 to 256 bytes",
		`{"key":1}`:               "key is a number; allowed: a string",
		`{"key":null}`:            "key is null",
		`{"key":["a"]}`:           "key is an array",
		`{"key":{}}`:              "key is an object",
		`{"key":true}`:            "key is a boolean",
		`{"permits":"1"}`:         "permits is a string; allowed: an integer",
		`{"permits":false}`:       "permits is a boolean",
		`{"permits":1.0}`:         "permits is 1.0",
		`{"permits":1e1}`:         "permits is 1e1",
		`{"permits":01}`:          "permits is 01",
		`{"permits":-}`:           "permits is -",
		`{"permits":0}`:           "permits",
		`{"permits":-5}`:          "permits",
		`{"permits":101}`:         "1 to 100",
		`{"keep":"1"}`:            "keep is a string; allowed: an integer",
		`{"keep":null}`:           "keep is null",
		`{"keep":0.5}`:            "keep is 0.5",
		`{"keep":-5}`:             "keep",
		`{"keep":101}`:            "0 to 100",
		`[{},{"keep":101}]`:       `element 1: keep is "101"`,
		`{"keep":0,"keep":0}`:     "keep is repeated",
		`{"permits":1` + strings.Repeat("0", 300) + `}`: "permits",
		`{"algorithm":7}`:   "algorithm is a number",
		`{"algorithm":"X"}`: "algorithm",
		`{"policy":"X"}`:    "policy",
		`{"policy":"pair","algorithm":"FIXED_WINDOW"}`: "one of the two",
		`{"key":"a","key":"a"}`:                        "key is repeated",
		`{"key":"a","k\u0065y":"a"}`:                   "key is repeated",
		`{"Key":"a"}`:                                  `parameter is "Key"`,
		`{"extra":{"deep":[1]}}`:                       `parameter is "extra"`,
		`{"":1}`:                                       `parameter is ""`,
	} {
		f.post(check, body).problem(400, want)
	}
	f.post(check+"?key=k", "{}").problem(400, "the query")
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	if f.log.lines() != 0 {
		t.Errorf("bad input fills the log:\n%s", f.log)
	}
}

func TestBodyTooLarge(t *testing.T) {
	f := newFixture(t, nil)
	body := `{"key":"k"` + strings.Repeat(" ", 1<<20) + "}"
	f.post(check, body).problem(413, "allowed: up to 1048576 bytes")
	chunked := httptest.NewRequestWithContext(t.Context(), http.MethodPost, apipath.Settle, strings.NewReader(body))
	chunked.ContentLength = -1
	f.do(chunked).problem(413, "1048576")
	most := `{"key":"k"` + strings.Repeat(" ", 1<<20-len(`{"key":"k"}`)) + "}"
	if got := f.post(check, most); got.status != 200 {
		t.Errorf("a body of 1 MiB: %d %s", got.status, got.body)
	}
}

func TestNotFound(t *testing.T) {
	f := newFixture(t, nil)
	for _, path := range []string{
		"/", "/api/v1/rate-limit", check + "/", "//api/v1/rate-limit/check", "/API/v1/rate-limit/check",
		"/actuator", "/actuator/health/", "/debug/pprof/", apipath.Evaluate + "/", apipath.ForwardAuth + "/",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.URL.Path = path
		f.do(r).problem(404, "path is", "allowed")
	}
}

func TestMethods(t *testing.T) {
	f := newFixture(t, nil)
	for path, allowed := range map[string]string{
		check: "GET, POST", apipath.Reset: "DELETE", apipath.Settle: "POST", apipath.Evaluate: "POST", apipath.ForwardAuth: "GET", apipath.Remaining: "GET, HEAD",
		apipath.Health: "GET, HEAD", apipath.Liveness: "GET, HEAD", apipath.Readiness: "GET, HEAD",
		apipath.Info: "GET, HEAD", apipath.Metrics: "GET, HEAD", apipath.MetricsAlias: "GET, HEAD", apipath.OpenAPI: "GET, HEAD",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			if strings.Contains(", "+allowed+",", ", "+method+",") {
				continue
			}
			got := f.do(httptest.NewRequestWithContext(t.Context(), method, path, nil))
			got.problem(405, method, allowed)
			if got.header.Get("Allow") != allowed {
				t.Errorf("%s %s: Allow %q, want %q", method, path, got.header.Get("Allow"), allowed)
			}
		}
	}
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("a refused method asked the store %d times", n)
	}
}

func TestPanic(t *testing.T) {
	f := newFixture(t, nil)
	f.store.enter = func(context.Context) { panic("a secret of the store") }
	got := f.get(check + "?key=k")
	got.problem(500)
	if strings.Contains(got.body, "secret") || strings.Contains(got.body, ".go") {
		t.Errorf("the response tells what went wrong inside: %s", got.body)
	}
	if f.log.lines() != 1 || !strings.Contains(f.log.String(), "a secret of the store") {
		t.Errorf("the log, want one line that says what:\n%s", f.log)
	}
}

// surviving puts the fixture's store into one of package failover.
func surviving(t *testing.T, mode failover.Mode) func(*server.Config) {
	return func(c *server.Config) {
		away := c.Store.(*store)
		local := memstore.New(memstore.Config{Now: func() time.Time { return time.UnixMicro(away.now.Load()) }})
		store, err := failover.New(away, failover.Config{Mode: mode, Local: local, Instances: func() int { return 1 }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		c.Store = store
	}
}

func TestStoreAwayOpen(t *testing.T) {
	f := newFixture(t, surviving(t, failover.Open))
	f.store.fail(errors.New("no route"))
	got := f.get(check + "?key=k&policy=pair&permits=2")
	c := got.check()
	if got.status != 200 || !c.Allowed || !c.Degraded || c.Source != "failure-policy" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if c.Limit != 3 || c.Remaining != 3 || c.Algorithm != "TOKEN_BUCKET" || c.Policy != "pair" || c.At <= 0 {
		t.Errorf("a degraded answer tells the untouched limits, the least first: %s", got.body)
	}
	for _, name := range []string{"X-RateLimit-Limit", "RateLimit", "RateLimit-Policy", "Retry-After"} {
		if got.header.Get(name) != "" {
			t.Errorf("a degraded answer has %s", name)
		}
	}
	var all []api.CheckResponse
	f.post(check, `[{"key":"k"},{"key":"k"}]`).into(&all)
	if len(all) != 2 || !all[0].Degraded || !all[1].Allowed {
		t.Errorf("batch: %+v", all)
	}
	f.get(apipath.Remaining+"?key=k").problem(503, "the store could not answer; nothing was consumed")
	f.delete(apipath.Reset+"?key=k").problem(503, "the store did not confirm the reset; whether it was made is not known")
	f.post(apipath.Settle, `{"key":"k","permits":1}`).problem(503, "the store did not confirm the settlement; whether it was made is not known")
	if text := f.get(apipath.Metrics).body; !strings.Contains(text, "rate_limiter_store_errors_total 6\n") ||
		!strings.Contains(text, `rate_limiter_degraded_total{allowed="true"} 3`+"\n") {
		t.Error("the metrics do not count six operations that the store did not decide, three of them admitted")
	}
	f.store.fail(nil)
	for start := time.Now(); ; runtime.Gosched() {
		if c := f.get(check + "?key=k").check(); !c.Degraded {
			if c.Remaining != 99 {
				t.Errorf("the store is back: %+v", c)
			}
			break
		}
		if time.Since(start) > 5*time.Minute {
			t.Fatal("the store does not come back")
		}
	}
}

func TestStoreAwayClosed(t *testing.T) {
	for name, change := range map[string]func(*server.Config){"closed": surviving(t, failover.Closed), "bare": nil} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, change)
			f.store.fail(errors.New("no route"))
			f.get(check+"?key=k").problem(503, "the store could not decide; whether anything was consumed is not known")
			f.post(check, `[{"key":"k"}]`).problem(503, "element 0: the store could not decide")
			f.get(check + "?key=k&permits=0").problem(400)
			f.get(apipath.Remaining+"?key=k").problem(503, "the store could not answer; nothing was consumed")
			if text := f.get(apipath.Metrics).body; !strings.Contains(text, "rate_limiter_store_errors_total 3\n") ||
				!strings.Contains(text, `rate_limiter_degraded_total{allowed="false"} 2`+"\n") {
				t.Error("the metrics do not count three operations that the store did not decide, two of them refused")
			}
		})
	}
}

func TestStoreAwayLocal(t *testing.T) {
	f := newFixture(t, surviving(t, failover.Local))
	f.store.fail(errors.New("no route"))
	for i := range 4 {
		got := f.get(check + "?key=k&policy=leak")
		if c := got.check(); got.status != 200 || !c.Degraded || c.Remaining != int64(3-i) || got.header.Get("RateLimit") != "" {
			t.Errorf("check %d: %d %s", i, got.status, got.body)
		}
	}
	got := f.get(check + "?key=k&policy=leak&permits=4")
	if c := got.check(); got.status != 429 || !c.Degraded || c.RetryAfterMicros <= 0 || got.header.Get("Retry-After") != "" {
		t.Errorf("beyond the limit: %d %s", got.status, got.body)
	}
}

// A store that finds fault with an operation is not away.
func TestStoreFindsFault(t *testing.T) {
	f := newFixture(t, nil)
	f.store.fail(stint.Invalid("key", "k", "another"))
	f.get(check+"?key=k").problem(400, `key is "k"; allowed: another`)
	f.post(check, `[{"key":"k"}]`).problem(400, "element 0: key")
	if f.log.lines() != 0 {
		t.Errorf("the log:\n%s", f.log)
	}
}

// A client that hangs up says nothing about the store.
func TestClientGone(t *testing.T) {
	f := newFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, check+"?key=k", nil).WithContext(ctx)
	f.do(r).problem(503, "the client")
	if f.log.lines() != 0 {
		t.Errorf("the log:\n%s", f.log)
	}
	if got := f.get(apipath.Metrics); !strings.Contains(got.body, "rate_limiter_store_errors_total 0") {
		t.Error("a client that hung up is counted as a failure of the store")
	}
}
