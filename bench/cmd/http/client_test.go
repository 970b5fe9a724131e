package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestFetchKeepsTheSpellingOfTheWire(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-RateLimit-Limit"] = []string{"100"}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte("no"))
	}))
	defer server.Close()
	a, err := fetch(t.Context(), strings.TrimPrefix(server.URL, "http://"), "/")
	if err != nil {
		t.Fatal(err)
	}
	if a.status != 429 || string(a.body) != "no" || !slices.Contains(a.fields, field{"X-RateLimit-Limit", "100"}) {
		t.Errorf("got %+v", a)
	}
}

// The connection of one exchange serves the next, and another follows one that fails.
func TestClientKeepsItsConnection(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chunked" {
			_ = http.NewResponseController(w).Flush() // so that no length is stated
			return
		}
		w.Header().Set("X-From", r.RemoteAddr)
	}))
	defer server.Close()
	c := &client{addr: strings.TrimPrefix(server.URL, "http://")}
	defer c.close()
	var from []string
	for _, path := range []string{"/", "/", "/chunked", "/"} {
		var a answer
		status, err := c.get(t.Context(), path, &a)
		if (err != nil) != (path == "/chunked") || err == nil && status != 200 {
			t.Fatalf("%s: status %d, error %v", path, status, err)
		}
		for _, f := range a.fields {
			if f.name == "X-From" {
				from = append(from, f.value)
			}
		}
	}
	if len(from) != 3 || from[0] != from[1] || from[2] == from[0] {
		t.Errorf("connections %q", from)
	}
}

func TestSameShape(t *testing.T) {
	a := &answer{200, []field{{"A", "1"}}, []byte("body")}
	for name, b := range map[string]*answer{
		"status": {429, []field{{"A", "1"}}, []byte("body")},
		"field":  {200, []field{{"B", "1"}}, []byte("body")},
		"sizes":  {200, []field{{"A", "1"}}, []byte("a longer body")},
	} {
		if err := sameShape(a, b); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := sameShape(a, &answer{200, []field{{"A", "12"}}, []byte("BODY")}); err != nil {
		t.Error(err)
	}
}
