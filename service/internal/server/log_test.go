package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rest"
	"github.com/stint-go/stint/service/internal/server"
)

// An algorithm that does not exist is refused, or decided by TOKEN_BUCKET where the configuration says so.
func TestUnknownAlgorithm(t *testing.T) {
	f := newFixture(t, nil)
	f.get(check+"?key=k&algorithm=LOTTERY").problem(400, "LOTTERY", "TOKEN_BUCKET, LEAKY_BUCKET")
	f = newFixture(t, func(c *server.Config) { c.API.UnknownFallsBack = true })
	for _, r := range []*http.Request{ // which openapi.yaml does not allow
		newRequest(http.MethodGet, check+"?key=k&algorithm=LOTTERY", ""),
		newRequest(http.MethodPost, check, `{"key":"k","algorithm":"LOTTERY"}`),
	} {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		if c := (reply{t: t, status: w.Code, body: w.Body.String()}).check(); c.Algorithm != "TOKEN_BUCKET" || !c.Allowed {
			t.Errorf("%+v", c)
		}
	}
	if left := f.remaining("key=k&algorithm=TOKEN_BUCKET").Remaining; left != 98 {
		t.Errorf("%d left, want 98 of TOKEN_BUCKET", left)
	}
	f.get(check+"?key=k&policy=lottery").problem(400, "policy")
	if log := f.log.String(); strings.Count(log, "algorithm=LOTTERY") != 1 || !strings.Contains(log, "level=WARN") {
		t.Errorf("the log: %s", log)
	}
}

// Details of health are shown to callers with the right to name keys.
func TestHealthDetails(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		c.API = config.API{ExplicitKeys: true, Tokens: []string{"right"}}
		c.StoreHealth = func(context.Context) error { return nil }
		c.HealthDetails = func() map[string]map[string]any {
			return map[string]map[string]any{"store": {"on_store_failure": "open"}, "rules": {"rules": 3}}
		}
	})
	ask := func(query, token string) reply {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, apipath.Health+query, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return f.do(r)
	}
	if got := ask("", "right"); got.status != 200 || strings.Contains(got.body, "details") {
		t.Errorf("nobody asked: %d %s", got.status, got.body)
	}
	ask("?details=true", "").problem(401, "Authorization is missing")
	ask("?details=true", "wrong").problem(401)
	ask("?details=1", "right").problem(400, `details is "1"; allowed: true or false`)
	var health rest.Health
	ask("?details=true", "right").into(&health)
	store, rules := health.Components["store"], health.Components["rules"]
	if _, known := store.Details["latencyMicros"]; !known || store.Details["on_store_failure"] != "open" || rules.Details["rules"] != 3.0 || rules.Status != rest.StatusUp {
		t.Errorf("%+v", health)
	}
}

// Wrong tokens are counted, and told from missing ones; the log tells of some of them, and shows none.
func TestWrongTokensAreCountedAndLogged(t *testing.T) {
	f := newFixture(t, func(c *server.Config) { c.API = config.API{ExplicitKeys: true, Tokens: []string{"right"}} })
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
	f.do(httptest.NewRequestWithContext(t.Context(), http.MethodGet, apipath.ForwardAuth, nil)).problem(http.StatusForbidden)
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
	metrics := f.get(apipath.Metrics).body
	for outcome, want := range map[string]int{"invalid_token": 1000, "unauthenticated": 1, "forbidden": 1} {
		says(t, metrics, fmt.Sprintf("rate_limiter_api_refused_total{outcome=%q} %d\n", outcome, want))
	}
}
