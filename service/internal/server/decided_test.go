package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/server"
)

// TestRequestID: every answer has the ID that the request came with, else one of its own.
func TestRequestID(t *testing.T) {
	f := newFixture(t, nil)
	made := map[string]bool{}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, test := range []struct {
		path, field, value, want string
	}{
		{check + "?key=ann", "X-Request-Id", "r-1", "r-1"},
		{check + "?key=", "X-Request-Id", "r-2", "r-2"}, // 400
		{"/nothing", "X-Request-Id", "r-3", "r-3"},
		{"/metrics", "Traceparent", "00-" + trace + "-00f067aa0ba902b7-01", trace},
		{check + "?key=ann", "X-Request-Id", "two words", ""},
		{check + "?key=ann", "X-Request-Id", strings.Repeat("x", 129), ""},
		{check + "?key=ann", "X-Other", "r-4", ""},
		{"/nothing", "X-Other", "r-5", ""},
	} {
		r := newRequest(http.MethodGet, test.path, "")
		r.Header.Set(test.field, test.value)
		lines := f.do(r).header["X-Request-Id"]
		if len(lines) != 1 || test.want != "" && lines[0] != test.want || test.want == "" && (len(lines[0]) < 15 || made[lines[0]]) {
			t.Errorf("%s with %s %q: X-Request-ID is %q, want %q", test.path, test.field, test.value, lines, test.want)
		}
		made[lines[0]] = true
	}
	for range 200 {
		id := f.get("/nothing").header.Get("X-Request-Id")
		if made[id] {
			t.Fatalf("%q is given twice", id)
		}
		made[id] = true
	}
}

// TestDecided: the hook is told of every decision of checks, batches and rules, and of no refusal.
func TestDecided(t *testing.T) {
	var told []stint.Event
	f := newFixture(t, func(c *server.Config) {
		c.Observers = []stint.Observer{func(_ context.Context, e *stint.Event) { told = append(told, *e) }}
	})
	f.get(check + "?key=ann&policy=pair&permits=3")
	f.get(check + "?key=ann&policy=pair")
	f.get(check + "?key=ann&permits=many")
	f.post(check, `[{"key":"bob"},{"key":"cyd","algorithm":"FIXED_WINDOW"}]`)
	r := newRequest(http.MethodPost, apipath.Evaluate, `{"path":"/banned","ip":"192.0.2.9"}`)
	r.Header.Set("X-Request-Id", "r-1")
	f.do(r)
	f.post(apipath.Evaluate, `{"path":"/nothing/at/all","ip":"192.0.2.9"}`)
	for range 2 {
		f.post(apipath.Evaluate, `{"path":"/shadow","ip":"192.0.2.9"}`)
	}
	type line struct {
		allowed, shadow              bool
		rule, client, reason         string
		requestID, limited, degraded bool
	}
	var got []line
	for _, d := range told {
		got = append(got, line{
			d.Decision.Allowed, d.Shadow, d.Rule, d.Claim.Key, string(d.Reason), d.RequestID == "r-1", d.Claim.Policy != nil, d.Decision.Degraded,
		})
		if d.RequestID == "" || d.At < stint.Instant(1_600_000_000_000_000) {
			t.Errorf("%+v has no request ID, or no time", d)
		}
	}
	want := []line{
		{true, false, "policy/pair", "ann", "", false, true, false},
		{false, false, "policy/pair", "ann", "limit", false, true, false},
		{true, false, "algorithm/TOKEN_BUCKET", "bob", "", false, true, false},
		{true, false, "algorithm/FIXED_WINDOW", "cyd", "", false, true, false},
		{false, false, "banned", "192.0.2.9", "banned", true, false, false},
		{true, false, "", "", "", false, false, false},
		{true, false, "", "", "", false, false, false},
		{true, true, "shadow", "*", "", false, true, false},
		{true, false, "", "", "", false, false, false},
		{false, true, "shadow", "*", "limit", false, true, false},
	}
	if !slices.Equal(got, want) {
		t.Errorf("told of\n%+v\nwant\n%+v", got, want)
	}
}

// A check allocates no more because somebody is told of it.
func TestDecidedAllocates(t *testing.T) {
	allocations := func(observers ...stint.Observer) float64 {
		f := newFixture(t, func(c *server.Config) { c.Observers = observers })
		w := &discard{header: http.Header{}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, apipath.Check+"?key=user:123&algorithm=FIXED_WINDOW", nil)
		return testing.AllocsPerRun(5000, func() { serve(f, w, r) })
	}
	spare := 0.0
	if raceEnabled {
		spare = 1 // the race detector makes pools forget
	}
	var denied int
	if with, without := allocations(func(_ context.Context, e *stint.Event) {
		if !e.Decision.Allowed {
			denied++
		}
	}), allocations(); with > without+spare || denied == 0 {
		t.Errorf("%v allocations and %d denials with a hook, %v without", with, denied, without)
	}
}
