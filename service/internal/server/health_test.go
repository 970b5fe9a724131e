package server_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/rest"
	"github.com/stint-go/stint/service/internal/server"
)

func TestHealth(t *testing.T) {
	away := func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the store's health is asked without a deadline")
		}
		return errors.New("away")
	}
	there := func(context.Context) error { return nil }
	const storeDown = `"components":{"server":{"status":"UP"},"store":{"status":"DOWN"}}}` + "\n"
	const allUp = `{"status":"UP","components":{"server":{"status":"UP"},"store":{"status":"UP"}}}` + "\n"
	for _, test := range []struct {
		name     string
		required bool
		health   func(context.Context) error
		status   int
		body     string
	}{
		{"no health to ask", true, nil, 200, allUp},
		{"there", true, there, 200, allUp},
		{"away", false, away, 200, `{"status":"UP",` + storeDown},
		{"away, required", true, away, 503, `{"status":"DOWN",` + storeDown},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, func(c *server.Config) { c.StoreRequired, c.StoreHealth = test.required, test.health })
			for _, path := range []string{apipath.Health, apipath.Readiness} {
				if got := f.get(path); got.status != test.status || got.body != test.body {
					t.Errorf("%s: %d %s, want %d %s", path, got.status, got.body, test.status, test.body)
				}
			}
			if got := f.get(apipath.Liveness); got.status != 200 || got.body != `{"status":"UP"}`+"\n" {
				t.Errorf("liveness: %d %s", got.status, got.body)
			}
		})
	}
}

// Until rules were read the service is not ready, and requests get what is asked for while a store is unreachable. Rules
// of a cache are as good as others.
func TestRulesThatAreNotKnown(t *testing.T) {
	for _, test := range []struct {
		name            string
		required        bool
		state           follow.State
		ready, evaluate int
		component, body string
	}{
		{"current", true, follow.Current, 200, 200, `"rules":{"status":"UP"}`, `"allowed":true`},
		{"cached", true, follow.Cached, 200, 200, `"rules":{"status":"UP","detail":"the rules are from rules_cache`, `"allowed":true`},
		{"refused", true, follow.Refused, 200, 200, `"rules":{"status":"UP","detail":"the new rules are refused`, `"allowed":true`},
		{"unreachable", true, follow.Unreachable, 200, 200, `"rules":{"status":"UP","detail":"the rules' source is unreachable`, `"allowed":true`},
		{"not known", false, follow.Unknown, 503, 200, `"rules":{"status":"DOWN","detail":`, `"degraded":true`},
		{"not known, required", true, follow.Unknown, 503, 503, `"rules":{"status":"DOWN","detail":`, "could not be read yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, func(c *server.Config) {
				if c.RulesState = func() follow.State { return test.state }; test.required {
					c.OnStoreFailure = failover.Closed
				}
				c.API.Open, c.ClientIP.TrustedProxies = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			})
			if got := f.get(apipath.Readiness); got.status != test.ready || !strings.Contains(got.body, test.component) {
				t.Errorf("ready: %d %s, want %d with %s", got.status, got.body, test.ready, test.component)
			}
			got := f.post(apipath.Evaluate, `{"path":"/"}`)
			if got.status != test.evaluate || !strings.Contains(got.body, test.body) || strings.Contains(got.body, "degraded") != strings.Contains(test.body, "degraded") {
				t.Errorf("evaluate: %d %s, want %d with %s", got.status, got.body, test.evaluate, test.body)
			}
			if got := f.get(apipath.Check + "?key=k"); got.status != 200 {
				t.Errorf("a check, which asks no rule: %d %s", got.status, got.body)
			}
		})
	}
}

func TestInfo(t *testing.T) {
	f := newFixture(t, nil)
	var info rest.Info
	f.get(apipath.Info).into(&info)
	if want := (rest.Info{Version: "v1.2.3", Commit: "abc", GoVersion: runtime.Version()}); info != want {
		t.Errorf("%+v, want %+v", info, want)
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	f := newFixture(t, nil)
	want := must.Get(os.ReadFile("../rest/openapi.yaml"))(t)
	if got := f.get(apipath.OpenAPI); got.body != string(want) || got.header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%s of %d bytes, want the file's %d", got.header.Get("Content-Type"), len(got.body), len(want))
	}
}

func TestMetrics(t *testing.T) {
	extra := promlimit.NewStatsCollector(func() memstore.Stats { return memstore.Stats{Clients: 42} })
	f := newFixture(t, func(c *server.Config) { c.Collectors = []prometheus.Collector{extra} })
	f.get(check + "?key=secret-key&permits=100")
	f.get(check + "?key=secret-key")
	f.get(check + "?key=secret-key&policy=pair")
	f.post(check, `[{"key":"secret-key"},{"key":"other","algorithm":"FIXED_WINDOW"}]`)
	f.get(check + "?key=")
	f.get(apipath.Remaining + "?key=secret-key")
	f.store.fail(errors.New("away"))
	f.get(check+"?key=secret-key").problem(503, "the store")
	f.post(evaluate, `{"path":"/banned"}`)
	text := f.get(apipath.Metrics).body
	for _, want := range []string{
		`rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 2`,
		`rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false"} 3`,
		`rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 1`,
		`rate_limiter_check_seconds_count{algorithm="TOKEN_BUCKET",allowed="true"} 2`,
		`rate_limiter_degraded_total{allowed="false"} 1`,
		`rate_limiter_store_errors_total 1`,
		`rate_limiter_store_states 42`,
	} {
		says(t, text, want+"\n")
	}
	if strings.Contains(text, "secret-key") {
		t.Error("a metric carries a key")
	}
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^# TYPE (rate_limiter_\S+)`).FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	want := []string{
		"rate_limiter_answer_seconds", "rate_limiter_answers_total",
		"rate_limiter_api_refused_total", "rate_limiter_bodies_refused_total", "rate_limiter_body_bytes", "rate_limiter_check_seconds", "rate_limiter_connections", "rate_limiter_connections_closed_total", "rate_limiter_default_denials_total", "rate_limiter_degraded_total", "rate_limiter_holds_live", "rate_limiter_holds_total", "rate_limiter_overloaded_total", "rate_limiter_requests_total",
		"rate_limiter_rule_decisions_total", "rate_limiter_rules", "rate_limiter_store_bytes",
		"rate_limiter_store_errors_total", "rate_limiter_store_evictions_total", "rate_limiter_store_holds_refused_total", "rate_limiter_store_max_bytes", "rate_limiter_store_reclaimed_total", "rate_limiter_store_states",
		"rate_limiter_untrusted_forwarded_total",
	}
	if !slices.Equal(names, want) {
		t.Errorf("metrics %v, want %v", names, want)
	}
	if alias := f.get(apipath.MetricsAlias); !strings.Contains(alias.body, "rate_limiter_requests_total") {
		t.Error("/metrics does not serve the metrics")
	}
}

// What one request asks for does not change what others are told.
func TestScrapesAreWhole(t *testing.T) {
	f := newFixture(t, nil)
	f.get(apipath.Metrics + "?name[]=none")
	if got := f.get(apipath.Metrics); !strings.Contains(got.body, "rate_limiter_requests_total") {
		t.Errorf("after a request for one metric the next one is told %d bytes: %.80q", len(got.body), got.body)
	}
}
