package server_test

import (
	"net/http"
	"net/netip"

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
