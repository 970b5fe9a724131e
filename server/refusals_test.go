package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/server"
)

// Wrong tokens are counted, and told from missing ones; the log tells of some of them, and shows none.
func TestWrongTokensAreCountedAndLogged(t *testing.T) {
	f := newFixture(t, func(c *server.Config) { c.API = server.API{ExplicitKeys: true, Tokens: []string{"right"}} })
	ask := func(token string, status int) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, check+"?key=k", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		if got := f.do(r); got.status != status {
			t.Errorf("%d %s, want %d", got.status, got.body, status)
		}
	}
	ask("right", http.StatusOK)
	for i := range 1000 {
		ask(fmt.Sprintf("guessed-%d", i), http.StatusUnauthorized)
	}
	ask("", http.StatusUnauthorized)
	f.do(httptest.NewRequestWithContext(t.Context(), http.MethodGet, api.PathForwardAuth, nil)).problem(http.StatusForbidden)
	log := f.log.String()
	if lines := strings.Count(log, "outcome=invalid_token"); lines < 10 || lines > 100 {
		t.Errorf("%d lines of 1000 wrong tokens", lines)
	}
	if want := `level=WARN msg=audit service=http who="" from=192.0.2.1:1234 client=192.0.2.1 action=check outcome=invalid_token ` +
		`detail="Authorization holds an unknown token; allowed: Bearer with one of the configured tokens"`; !strings.Contains(log, want) {
		t.Errorf("the log lacks %s:\n%s", want, log)
	}
	if strings.Contains(log, "outcome=unauthenticated") || strings.Contains(log, "outcome=forbidden") {
		t.Errorf("what is no guess is logged:\n%s", log)
	}
	if strings.Contains(log, "guessed") {
		t.Error("the log shows a token")
	}
	metrics := f.get(api.PathMetrics).body
	for outcome, want := range map[string]int{"invalid_token": 1000, "unauthenticated": 1, "forbidden": 1} {
		if line := fmt.Sprintf("rate_limiter_api_refused_total{outcome=%q} %d\n", outcome, want); !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}
