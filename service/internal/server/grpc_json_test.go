package server_test

import (
	"net/http"
	"testing"

	"github.com/stint-go/stint/service/internal/server"
)

// The rate limit service over HTTP needs what naming a key needs.
func TestRateLimitJSON(t *testing.T) {
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "ann"}], "limit": {"unit": "YEAR", "requestsPerUnit": 2}}]}`
	tokens := func(c *server.Config) {
		c.GRPCListen, c.API.Tokens = "127.0.0.1:0", []string{"a-token-of-many-letters"}
	}
	if got := run(t, tokens).post("/json", body).status; got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	r := run(t, func(c *server.Config) {
		tokens(c)
		c.OpenJSON = true
	})
	if got := r.post("/json", body).status; got != http.StatusServiceUnavailable {
		t.Errorf("without domains: %d", got)
	}
	r.load()
	for i, test := range []struct {
		body string
		want int
	}{{body, 200}, {body, 200}, {body, 429}, {`{"domain": "d"}`, 400}, {`{"domain": 1}`, 400}, {`{`, 400}, {``, 400}} {
		if got := r.post("/json", test.body).status; got != test.want {
			t.Errorf("request %d: %d, want %d", i, got, test.want)
		}
	}
	if got := r.get("/healthcheck"); got.status != http.StatusOK || got.body != "OK" {
		t.Errorf("/healthcheck: %d, %s", got.status, got.body)
	}
}
