package server_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/server"
)

func (f *fixture) remaining(query string) api.RemainingResponse {
	f.t.Helper()
	var left api.RemainingResponse
	got := f.get(apipath.Remaining + "?" + query)
	if got.status != http.StatusOK {
		f.t.Fatalf("remaining: %d %s", got.status, got.body)
	}
	got.into(&left)
	return left
}

func TestRemaining(t *testing.T) {
	f := newFixture(t, nil)
	for _, algorithm := range stint.Algorithms() {
		query := "key=k&algorithm=" + algorithm.String()
		f.get(check + "?permits=30&" + query)
		first, second := f.remaining(query), f.remaining(query)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("looking changes what is left: %+v, then %+v", first, second)
		}
		if first.Key != "k" || first.Algorithm != algorithm.String() || first.Limit != 100 || first.Remaining != 70 || first.ResetAfterSeconds < 1 {
			t.Errorf("%+v", first)
		}
	}
	if left := f.remaining("key=new"); left.Remaining != 100 || left.ResetAfterSeconds != 0 {
		t.Errorf("an untouched key: %+v", left)
	}
	if left := f.remaining("policy=pair"); left.Policy != "pair" || left.Key != "192.0.2.1" || left.Remaining != 3 {
		t.Errorf("a policy: %+v", left)
	}
	f.get(apipath.Remaining+"?permits=101").problem(400, `permits is "101"; allowed: an integer from 1 to 100`)
	f.get(apipath.Remaining+"?permits=4&policy=pair").problem(400, "an integer from 1 to 3")
	f.get(apipath.Remaining+"?permits=0").problem(400, "permits")
	f.get(apipath.Remaining+"?keep=101").problem(400, `keep is "101"; allowed: an integer from 0 to 100`)
	f.get(apipath.Remaining+"?keep=-1&policy=pair").problem(400, "an integer from 0 to 3")
	f.get(apipath.Remaining+"?cost=1").problem(400, `parameter is "cost"; allowed: key, algorithm, policy, permits, keep, details`)
	f.get(apipath.Remaining+"?key=").problem(400, "key")
	if got := f.get(apipath.Remaining).header.Get("X-RateLimit-Limit"); got != "" {
		t.Errorf("remaining has rate limit fields")
	}
	head := httptest.NewRecorder()
	f.ServeHTTP(head, httptest.NewRequestWithContext(t.Context(), http.MethodHead, apipath.Remaining+"?key=k", nil))
	if head.Code != http.StatusOK {
		t.Errorf("HEAD: %d", head.Code)
	}
}

// TestRemainingTellsWhatACheckWould: whatever the limits and the cost, it is what the check
// after it is told.
func TestRemainingTellsWhatACheckWould(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		c.Policies["paced"] = []stint.Limit{
			stint.SlidingWindowLog(10, time.Minute).WithMinInterval(time.Second),
			stint.SlidingWindowLog(2, 3*time.Second).Named("burst"),
		}
	})
	claims := []string{"policy=paced", "policy=pair", "policy=pair&permits=3", "policy=leak", "policy=leak&permits=2", "policy=pair&keep=2"}
	for _, algorithm := range stint.Algorithms() {
		claims = append(claims, "algorithm="+algorithm.String(), "permits=45&algorithm="+algorithm.String(), "keep=60&algorithm="+algorithm.String())
	}
	denied, delayed := 0, 0
	for range 6 {
		for _, claim := range claims {
			look := f.remaining("key=k&" + claim)
			told := f.get(check + "?key=k&" + claim).check()
			if !told.Allowed && told.RetryAfterMicros > 0 {
				denied++
			}
			if told.DelayMicros > 0 {
				delayed++
			}
			if look.Allowed != told.Allowed || look.RetryAfterSeconds != told.RetryAfterSeconds || look.RetryAfterMicros != told.RetryAfterMicros ||
				look.DelayMicros != told.DelayMicros || look.At != told.At || look.Source != told.Source || look.Key != "k" || look.Policy != told.Policy {
				t.Errorf("%s: a look tells %+v, and a check %+v", claim, look, told)
			}
			if !told.Allowed && (look.Algorithm != told.Algorithm || look.Limit != told.Limit || look.Remaining != told.Remaining ||
				look.ResetAfterSeconds != told.ResetAfterSeconds || look.ResetAfterMicros != told.ResetAfterMicros) {
				t.Errorf("%s: a look tells %+v, and a denial %+v", claim, look, told)
			}
		}
		f.store.advance(300 * time.Millisecond)
	}
	if denied < 20 || delayed < 5 {
		t.Errorf("%d checks were denied and %d delayed: too few to tell", denied, delayed)
	}
}

func TestReset(t *testing.T) {
	f := newFixture(t, nil)
	drain := func() {
		for _, algorithm := range stint.Algorithms() {
			f.get(check + "?key=k&permits=50&algorithm=" + algorithm.String())
		}
		f.get(check + "?key=k&permits=2&policy=pair")
		f.get(check + "?key=other&permits=50")
	}
	drain()
	if got := f.delete(apipath.Reset + "?key=k&algorithm=SLIDING_WINDOW"); got.body != `{"key":"k","algorithm":"SLIDING_WINDOW_LOG","reset":true}`+"\n" {
		t.Errorf("body %s", got.body)
	}
	for _, algorithm := range stint.Algorithms() {
		want := int64(50)
		if algorithm == stint.AlgorithmSlidingWindowLog {
			want = 100
		}
		if left := f.remaining("key=k&algorithm=" + algorithm.String()); left.Remaining != want {
			t.Errorf("%s: %d left, want %d", algorithm, left.Remaining, want)
		}
	}
	if got := f.delete(apipath.Reset + "?key=k&policy=pair"); got.body != `{"key":"k","policy":"pair","reset":true}`+"\n" {
		t.Errorf("body %s", got.body)
	}
	if left := f.remaining("key=k&policy=pair"); left.Remaining != 3 {
		t.Errorf("pair: %d left, want 3", left.Remaining)
	}
	drain()
	f.store.calls.Store(0)
	if got := f.delete(apipath.Reset + "?key=k"); got.body != `{"key":"k","reset":true}`+"\n" {
		t.Errorf("body %s", got.body)
	}
	if n := f.store.ops.Load(); f.store.calls.Load() != 1 {
		t.Errorf("resetting everything took %d operations", n)
	}
	for _, algorithm := range stint.Algorithms() {
		if left := f.remaining("key=k&algorithm=" + algorithm.String()); left.Remaining != 100 || left.ResetAfterSeconds != 0 {
			t.Errorf("%s: %+v, want untouched", algorithm, left)
		}
	}
	if left := f.remaining("key=k&policy=pair"); left.Remaining != 3 || left.ResetAfterSeconds != 0 {
		t.Errorf("pair: %+v, want untouched", left)
	}
	if left := f.remaining("key=other"); left.Remaining != 0 {
		t.Errorf("another key was reset: %+v", left)
	}
	f.get(check + "?permits=9")
	if got := f.delete(apipath.Reset); got.body != `{"key":"192.0.2.1","reset":true}`+"\n" {
		t.Errorf("body %s", got.body)
	}
	f.delete(apipath.Reset+"?key=k&permits=1").problem(400, "permits")
	f.delete(apipath.Reset+"?key=k&keep=0").problem(400, `parameter is "keep"; allowed: key, algorithm, policy`)
	f.delete(apipath.Reset+"?key=k&algorithm=X").problem(400, "algorithm")
}

func TestSettle(t *testing.T) {
	f := newFixture(t, nil)
	for _, step := range []struct {
		body               string
		applied, remaining int64
	}{
		{`{"key":"k","algorithm":"FIXED_WINDOW","permits":30}`, 30, 70},
		{`{"key":"k","algorithm":"FIXED_WINDOW","permits":-10}`, -10, 80},
		{`{"key":"k","algorithm":"FIXED_WINDOW","permits":-9223372036854775808}`, -20, 100},
		{`{"key":"k","algorithm":"FIXED_WINDOW","permits":9223372036854775807}`, 200, 0},
		{`{"key":"k","permits":5}`, 5, 95},
		{`{"key":"k","permits":0}`, 0, 95},
		{`{"permits":150}`, 150, 0},
		{`{"key":"k","policy":"pair","permits":1}`, 1, 2},
		{`{"key":"k","algorithm":"LEAKY_BUCKET","permits":7}`, 7, 93},
	} {
		var settled api.SettleResponse
		got := f.post(apipath.Settle, step.body)
		got.into(&settled)
		if want := (settled.ResetAfterMicros + 999_999) / 1_000_000; settled.At != int64(start) || settled.ResetAfterSeconds != want {
			t.Errorf("%s: %s, want at %d and %d seconds", step.body, got.body, start, want)
		}
		if got.status != 200 || settled.Applied != step.applied || settled.Remaining != step.remaining {
			t.Errorf("%s: %d %s, want applied %d and remaining %d", step.body, got.status, got.body, step.applied, step.remaining)
		}
	}
	if got := f.get(check + "?key=k&algorithm=FIXED_WINDOW"); got.status != http.StatusTooManyRequests {
		t.Errorf("a check in debt: %d", got.status)
	}
	for body, want := range map[string]string{
		`{"key":"k"}`: `permits is ""; allowed: any integer of 64 bits`,
		`{"key":"k","permits":9223372036854775808}`:           "64 bits",
		`{"key":"k","permits":-9223372036854775809}`:          "64 bits",
		`{"key":"k","permits":-1,"algorithm":"LEAKY_BUCKET"}`: "a leaky bucket can't be refunded",
		`{"key":"k","permits":-1,"policy":"leak"}`:            "a leaky bucket can't be refunded",
		`[{"key":"k","permits":1}]`:                           "a JSON object",
		`{"key":"","permits":1}`:                              "key",
		`{"key":"k","permits":1,"x":1}`:                       "parameter",
		`{"key":"k","permits":1,"keep":0}`:                    `parameter is "keep"`,
		`{"path":"/","permits":1,"keep":0}`:                   `parameter is "keep"`,
	} {
		f.post(apipath.Settle, body).problem(400, want)
	}
	f.post(apipath.Settle+"?x=1", `{"permits":1}`).problem(400, "the query")
}
