package server_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// behindProxies trusts 192.0.2.0/24, where the tests' requests come from, and loopback.
func behindProxies(c *server.Config) {
	c.API.Open = false
	c.ClientIP.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.0/8")}
	c.Identity = config.Identity{User: "x-user-id", APIKey: "X-Api-Key"}
}

// traefik are the fields that Traefik and Caddy send.
func traefik(method, uri string) http.Header {
	return http.Header{
		"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {"a.example.com"},
		"X-Forwarded-Proto": {"https"}, "X-Forwarded-For": {"198.51.100.1"},
	}
}

// nginx are the fields that nginx is configured to send.
func nginx(method, uri string) http.Header {
	return http.Header{"X-Original-Method": {method}, "X-Original-Uri": {uri}, "X-Forwarded-For": {"198.51.100.1"}}
}

// answered expects an answer without a body.
func (r reply) answered(status int) reply {
	r.t.Helper()
	if r.status != status || r.body != "" || r.header.Get("Cache-Control") != "no-store" {
		r.t.Errorf("%d %v %q, want %d without a body", r.status, r.header, r.body, status)
	}
	return r
}

// Over a connection: trust, a rule in shadow, a rule that waits, and what is counted.
func TestForwardAuthOverHTTP(t *testing.T) {
	r := run(t, behindProxies)
	r.store.enter = func(context.Context) {
		if r.store.calls.Load() == 3 { // the second try of the second request
			r.store.advance(100 * time.Millisecond)
		}
	}
	ask := func(header http.Header) reply {
		request := r.request(http.MethodGet, r.server.Addr().String(), apipath.ForwardAuth)
		request.Header = header
		return r.send(request)
	}
	for range 2 {
		ask(traefik("GET", "/wait")).answered(200)
	}
	if n := r.store.calls.Load(); n != 3 {
		t.Errorf("two requests, one of which is held, asked the store %d times, want 3", n)
	}
	for range 2 {
		ask(nginx("GET", "/shadow")).answered(200)
	}
	text := r.get(apipath.Metrics).body
	for _, line := range []string{
		`rate_limiter_rule_decisions_total{outcome="allowed",rule="wait",set=""} 2`,
		`rate_limiter_rule_decisions_total{outcome="shadow_allowed",rule="shadow",set=""} 1`,
		`rate_limiter_rule_decisions_total{outcome="shadow_denied",rule="shadow",set=""} 1`,
		`rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %q", line)
		}
	}

	alone := run(t, nil)
	request := alone.request(http.MethodGet, alone.server.Addr().String(), apipath.ForwardAuth)
	request.Header = traefik("GET", "/free")
	alone.send(request).problem(403, "trusted_proxies")
}

func TestForwardAuthConfig(t *testing.T) {
	config, _, _ := testConfig()
	config.Identity.User, config.Identity.APIKey, config.Identity.Attributes = "X User", "X-Key:", map[string]string{"plan": "X:"}
	config.Policies[""] = pushLimits()
	_, err := server.New(config)
	for _, want := range []string{`identity.user is "X User"`, `identity.api_key is "X-Key:"`, `identity.attributes.plan is "X:"`, `policies is ""`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %s", err, want)
		}
	}
}
