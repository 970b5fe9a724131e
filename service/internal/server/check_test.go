package server_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

const check = apipath.Check

// checked is the answer to an admitted check of the fixture's time, but for what follows it.
func checked(key, algorithm string, limit, remaining int, resetAfter time.Duration) string {
	return fmt.Sprintf(`{"allowed":true,"key":%q,"algorithm":%q,"limit":%d,"remaining":%d,`+
		`"resetAfterSeconds":%.0f,"retryAfterSeconds":0,"message":"Request allowed",`+
		`"resetAfterMicros":%d,"retryAfterMicros":0,"delayMicros":0,"at":1790000050500000,"source":"store"`,
		key, algorithm, limit, remaining, math.Ceil(resetAfter.Seconds()), resetAfter.Microseconds())
}

func TestCheck(t *testing.T) {
	f := newFixture(t, nil)
	got := f.get(check + "?key=user:123&algorithm=TOKEN_BUCKET&permits=5")
	if got.status != http.StatusOK {
		t.Fatalf("status %d", got.status)
	}
	want := checked("user:123", "TOKEN_BUCKET", 100, 95, 500*time.Millisecond) + "}"
	if got.body != want {
		t.Errorf("body\n%s, want\n%s", got.body, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "Retry-After": "",
		"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "95", "X-RateLimit-Reset": "1790000051",
		"RateLimit": `"default";r=95;t=1`, "RateLimit-Policy": `"default";q=100;w=10`,
	} {
		if got := got.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestDenial(t *testing.T) {
	f := newFixture(t, nil)
	for _, algorithm := range stint.Algorithms() {
		path := check + "?key=k&algorithm=" + algorithm.String()
		if got := f.get(path + "&permits=100"); got.status != http.StatusOK || got.check().Remaining != 0 {
			t.Errorf("%s: all permits: %d %s", algorithm, got.status, got.body)
		}
		got := f.get(path)
		c := got.check()
		if got.status != http.StatusTooManyRequests || c.Allowed || c.Message != "Rate limit exceeded" || c.Algorithm != algorithm.String() {
			t.Errorf("%s: one more: %d %s", algorithm, got.status, got.body)
		}
		if c.RetryAfterSeconds < 1 || got.header.Get("Retry-After") != fmt.Sprint(c.RetryAfterSeconds) {
			t.Errorf("%s: Retry-After %q, the body says %d", algorithm, got.header.Get("Retry-After"), c.RetryAfterSeconds)
		}
		if want := fmt.Sprintf(`"default";r=0;t=%d`, c.RetryAfterSeconds); got.header.Get("RateLimit") != want {
			t.Errorf("%s: RateLimit %q, want %q", algorithm, got.header.Get("RateLimit"), want)
		}
		f.store.advance(time.Duration(c.RetryAfterMicros-1) * time.Microsecond)
		if got := f.get(path); got.status != http.StatusTooManyRequests {
			t.Errorf("%s: a microsecond before retryAfterMicros: %d", algorithm, got.status)
		}
		f.store.advance(time.Microsecond)
		if got := f.get(path); got.status != http.StatusOK {
			t.Errorf("%s: after retryAfterMicros: %d %s", algorithm, got.status, got.body)
		}
	}
}

func TestAlgorithmNames(t *testing.T) {
	f := newFixture(t, nil)
	for query, want := range map[string]string{
		"":                                 "TOKEN_BUCKET",
		"algorithm=SLIDING_WINDOW":         "SLIDING_WINDOW_LOG",
		"algorithm=SLIDING_WINDOW_COUNTER": "SLIDING_WINDOW_COUNTER",
		"algorithm=LEAKY%5FBUCKET":         "LEAKY_BUCKET",
		"&&algorithm=FIXED_WINDOW&":        "FIXED_WINDOW",
	} {
		if got := f.get(check + "?" + query); got.check().Algorithm != want {
			t.Errorf("%q: %s, want %s", query, got.body, want)
		}
	}
}

func TestLeakyBucketDelays(t *testing.T) {
	f := newFixture(t, nil)
	for i := range int64(3) {
		if c := f.get(check + "?key=k&algorithm=LEAKY_BUCKET").check(); c.DelayMicros != i*100_000 {
			t.Errorf("request %d: delayMicros %d, want %d", i, c.DelayMicros, i*100_000)
		}
	}
}

func TestKeysAreDecoded(t *testing.T) {
	f := newFixture(t, nil)
	longest := strings.Repeat("k", bounds.MaxKeyBytes)
	for query, want := range map[string]string{
		"a%20b": "a b", "a+b": "a b", "a%2Bb": "a+b", "%C3%A9": "é", "é": "é", "a=b": "a=b", "%22%5C%3C": `"\<`,
		"a;b": "a;b", "%26": "&", longest: longest, "%F0%9F%98%80": "\U0001f600",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, check, nil)
		r.URL.RawQuery = "key=" + query
		if c := f.do(r).check(); c.Key != want {
			t.Errorf("key=%s is %q, want %q", query, c.Key, want)
		}
	}
}

func TestPolicy(t *testing.T) {
	f := newFixture(t, nil)
	got := f.get(check + "?key=k&policy=pair")
	c := got.check()
	if c.Policy != "pair" || c.Algorithm != "TOKEN_BUCKET" || c.Limit != 3 || c.Remaining != 2 {
		t.Errorf("the deciding limit is the one with the least left: %s", got.body)
	}
	if got, want := got.header.Get("RateLimit-Policy"), `"default";q=5;w=60, "quick";q=3;w=3`; got != want {
		t.Errorf("RateLimit-Policy %q, want %q", got, want)
	}
	if got, want := got.header.Get("RateLimit"), `"default";r=4;t=50, "quick";r=2;t=1`; got != want {
		t.Errorf("RateLimit %q, want %q", got, want)
	}
	if got := got.header.Get("X-RateLimit-Limit"); got != "3" {
		t.Errorf("X-RateLimit-Limit %q, want the deciding limit's", got)
	}
	f.get(check + "?key=k&policy=pair&permits=2")
	f.store.advance(5 * time.Second)
	f.get(check + "?key=k&policy=pair&permits=2")
	denied := f.get(check + "?key=k&policy=pair&permits=2")
	if c := denied.check(); denied.status != 429 || c.Algorithm != "FIXED_WINDOW" || c.RetryAfterSeconds != 45 {
		t.Errorf("the deciding limit is the one with the longest wait: %d %s", denied.status, denied.body)
	}
	if got := f.get(check + "?key=k&algorithm=FIXED_WINDOW").check(); got.Remaining != 99 {
		t.Errorf("a policy's state mixes with a default's: remaining %d", got.Remaining)
	}
}

func TestHeaderSwitches(t *testing.T) {
	for fields, want := range map[config.Headers]string{
		{IETF: httplimit.IETF166}: "Ratelimit Ratelimit-Policy",
		{}:                        "",
		{XRateLimit: true}:        "X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset",
		{IETF: httplimit.IETF}:    "Ratelimit Ratelimit-Policy",
		{RetryAfter: true}:        "Retry-After",
	} {
		f := newFixture(t, func(c *server.Config) { c.Headers = fields })
		f.get(check + "?key=k&permits=100")
		header := f.get(check + "?key=k").header
		var got []string
		for _, name := range []string{
			"Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
		} {
			if header[name] != nil {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("fields %+v: %v, want %s", fields, got, want)
		}
	}
}

func TestCheckByBody(t *testing.T) {
	f := newFixture(t, nil)
	got := f.post(check, ` {"key":"user:\u00e9\"","algorithm":"FIXED_WINDOW","permits":7} `)
	c := got.check()
	if got.status != 200 || c.Key != `user:é"` || c.Algorithm != "FIXED_WINDOW" || c.Remaining != 93 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got.header.Get("X-RateLimit-Remaining") != "93" {
		t.Errorf("header %v", got.header)
	}
	if c := f.post(check, `{}`).check(); c.Key != "192.0.2.1" || c.Algorithm != "TOKEN_BUCKET" || c.Remaining != 99 {
		t.Errorf("an empty object: %+v", c)
	}
	if got := f.post(check, `{"key":"k","policy":"leak","permits":4}`); got.check().Policy != "leak" {
		t.Errorf("%s", got.body)
	}
	if got := f.post(check, `{"key":"k","policy":"leak"}`); got.status != http.StatusTooManyRequests {
		t.Errorf("a denial: %d", got.status)
	}
}

func TestBatch(t *testing.T) {
	f := newFixture(t, nil)
	got := f.post(check, `[{"key":"k","permits":60},{"key":"k","permits":60},{"key":"k","permits":40},
		{"policy":"pair"},{"key":"k","algorithm":"SLIDING_WINDOW"}]`)
	var all []api.CheckResponse
	got.into(&all)
	if got.status != 200 || len(all) != 5 || f.store.calls.Load() != 1 {
		t.Fatalf("%d, %d answers, %d store calls: %s", got.status, len(all), f.store.calls.Load(), got.body)
	}
	if got.header.Get("X-RateLimit-Limit") != "" || got.header.Get("RateLimit") != "" || got.header.Get("Retry-After") != "" {
		t.Errorf("a batch has rate limit fields: %v", got.header)
	}
	for i, want := range []struct {
		allowed   bool
		key       string
		remaining int64
	}{
		{true, "k", 40}, {false, "k", 40}, {true, "k", 0}, {true, "192.0.2.1", 2}, {true, "k", 99},
	} {
		if c := all[i]; c.Allowed != want.allowed || c.Key != want.key || c.Remaining != want.remaining {
			t.Errorf("element %d: %+v, want %+v", i, c, want)
		}
	}
}

func TestLargestBatch(t *testing.T) {
	f := newFixture(t, nil)
	body := "[" + strings.Repeat(`{"key":"k","algorithm":"FIXED_WINDOW"},`, bounds.MaxBatch-1) + `{"key":"k","algorithm":"FIXED_WINDOW"}]`
	var all []api.CheckResponse
	f.post(check, body).into(&all)
	admitted := 0
	for _, c := range all {
		if c.Allowed {
			admitted++
		}
	}
	if len(all) != bounds.MaxBatch || admitted != 100 {
		t.Errorf("%d answers, %d admitted; want %d and 100", len(all), admitted, bounds.MaxBatch)
	}
}

// One bad element fails a batch, and nothing is consumed.
func TestBadBatch(t *testing.T) {
	f := newFixture(t, nil)
	for body, want := range map[string]string{
		`[{"key":"k"},{"key":"k","permits":0}]`:                 "element 1: permits",
		`[{"key":"k"},{"key":""}]`:                              "element 1: key",
		`[{"key":"k"},{"key":"k","algorithm":"X"}]`:             "element 1: algorithm",
		`[{"key":"k"},{"key":"k","policy":"pair","permits":4}]`: "element 1: permits",
		`[{"key":"k"},{"key":"k"},{"key":"k","extra":1}]`:       "element 2: parameter",
		`[{"key":"k"},[]]`:                                      "element 1: the body",
		`[{"key":"k"},null]`:                                    "element 1: the body",
		`[{"key":"k"}`:                                          "malformed",
		`[{"key":"k"},]`:                                        "element 1",
		`[]`:                                                    "1 to 1000",
		`[{"key":"k"}] x`:                                       "malformed",
		`[` + strings.Repeat(`{"key":"k"},`, 1000) + `{"key":"k"}]`: "1 to 1000",
	} {
		f.post(check, body).problem(400, want)
	}
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestConcurrentChecks(t *testing.T) {
	f := newFixture(t, nil)
	var admitted, denied atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 40 {
				recorder := httptest.NewRecorder()
				f.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, check+"?key=hot&algorithm=FIXED_WINDOW", nil))
				var c api.CheckResponse
				if err := json.Unmarshal(recorder.Body.Bytes(), &c); err != nil || c.Key != "hot" {
					t.Errorf("request %d: %v %s", i, err, recorder.Body)
				}
				if remaining := recorder.Result().Header.Get("X-RateLimit-Remaining"); remaining != fmt.Sprint(c.Remaining) {
					t.Errorf("header says %s, body %d", remaining, c.Remaining)
				}
				if recorder.Code == 200 {
					admitted.Add(1)
				} else {
					denied.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 100 || denied.Load() != 220 {
		t.Errorf("admitted %d, denied %d, want 100 and 220", admitted.Load(), denied.Load())
	}
}
