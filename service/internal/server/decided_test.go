package server_test

import (
	"net/http"
	"strings"
	"testing"
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
