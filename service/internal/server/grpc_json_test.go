package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/server"
)

// The rate limit service over HTTP needs what naming a key needs.
func TestRateLimitJSON(t *testing.T) {
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "ann"}], "limit": {"unit": "YEAR", "requestsPerUnit": 2}}]}`
	tokens := func(c *server.Config) {
		c.GRPCListen, c.API.Tokens = "127.0.0.1:0", []string{"a-token-of-many-letters"}
	}
	ask := func(r *running, body string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.server.Addr().String()+"/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return r.send(request).status
	}
	if got := ask(run(t, tokens), body); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	r := run(t, func(c *server.Config) {
		tokens(c)
		c.OpenJSON = true
	})
	if got := ask(r, body); got != http.StatusServiceUnavailable {
		t.Errorf("without domains: %d", got)
	}
	r.load()
	for i, test := range []struct {
		body string
		want int
	}{{body, 200}, {body, 200}, {body, 429}, {`{"domain": "d"}`, 400}, {`{"domain": 1}`, 400}, {`{`, 400}, {``, 400}} {
		if got := ask(r, test.body); got != test.want {
			t.Errorf("request %d: %d, want %d", i, got, test.want)
		}
	}
	if got := r.get("/healthcheck"); got.status != http.StatusOK || got.body != "OK" {
		t.Errorf("/healthcheck: %d, %s", got.status, got.body)
	}
}
