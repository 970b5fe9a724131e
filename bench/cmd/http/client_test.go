package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

func TestFetchKeepsTheSpellingOfTheWire(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-RateLimit-Limit"] = []string{"100"}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte("no"))
	}))
	defer server.Close()
	a, err := fetch(strings.TrimPrefix(server.URL, "http://"), "/")
	if err != nil {
		t.Fatal(err)
	}
	if a.StatusCode() != 429 || string(a.Body()) != "no" || !strings.Contains(a.Header.String(), "\r\nX-RateLimit-Limit: 100\r\n") {
		t.Errorf("got %s", a)
	}
}

func TestSameShape(t *testing.T) {
	answer := func(status int, field, value, body string) *fasthttp.Response {
		r := &fasthttp.Response{}
		r.SetStatusCode(status)
		r.Header.Set(field, value)
		r.SetBodyString(body)
		return r
	}
	a := answer(200, "A", "1", "body")
	for name, b := range map[string]*fasthttp.Response{
		"status": answer(429, "A", "1", "body"),
		"field":  answer(200, "B", "1", "body"),
		"sizes":  answer(200, "A", "1", "a longer body"),
	} {
		if err := sameShape(a, b); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := sameShape(a, answer(200, "A", "12", "BODY")); err != nil {
		t.Error(err)
	}
}
