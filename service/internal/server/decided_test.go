package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
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
