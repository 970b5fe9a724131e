package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// dashboardPaths are all kinds of what the admin listener answers: a page, a session, what is asked, what is changed.
var dashboardPaths = []struct{ method, path, body string }{
	{"GET", "/", ""},
	{"GET", "/session", ""},
	{"POST", "/session", `{"token":"` + adminToken + `"}`},
	{"GET", "/api/v1/rules", ""},
	{"GET", "/api/v1/stats", ""},
	{"GET", "/api/v1/events", ""},
	{"POST", "/api/v1/simulate", ""},
	{"POST", "/api/v1/rules/login/reset", `{"all":true}`},
	{"GET", "/debug/pprof/cmdline", ""},
}

func (d *adminFixture) attack(method, path, body string, change func(*http.Request)) reply {
	d.t.Helper()
	r := newRequest(method, "http://"+d.server.AdminAddr().String()+path, body)
	r.RequestURI = ""
	r.Header.Set("Content-Type", "application/json")
	change(r)
	return d.send(r)
}

// signIn signs in by a token, with a cookie that was there before, and returns the session's.
func (d *adminFixture) signIn(token, before string) string {
	d.t.Helper()
	lines := d.attack("POST", "/session", `{"token":"`+token+`"}`, with(before)).is(200).header["Set-Cookie"]
	if len(lines) != 1 {
		d.t.Fatalf("signing in sets %q", lines)
	}
	return strings.Split(lines[0], ";")[0]
}

// with gives a request a cookie, or none.
func with(cookie string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Cookie", cookie) }
}

// A page that binds its name to the loopback address (DNS rebinding) is told nothing, with the right token or session too: its
// Host is its own name.
func TestRebinding(t *testing.T) {
	d, _ := newActivityFixture(t, server.AdminToken{Token: adminToken, Name: "alice", Role: server.RoleWrite})
	d.token = adminToken
	d.fill()
	session := d.signIn(adminToken, "")
	_, port, _ := strings.Cut(d.server.AdminAddr().String(), ":")
	for _, host := range []string{"evil.example", "evil.example:" + port, "localhost.evil.example:" + port, "127.0.0.1.evil.example", "192.0.2.1:" + port, "0.0.0.0:" + port} {
		for _, p := range dashboardPaths {
			for name, authorize := range map[string]func(*http.Request){
				"nothing": func(*http.Request) {},
				"token":   func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminToken) },
				"session": with(session),
			} {
				got := d.attack(p.method, p.path, p.body, func(r *http.Request) {
					r.Host = host
					authorize(r)
				})
				if got.status != http.StatusForbidden || len(got.header["Set-Cookie"]) > 0 {
					t.Errorf("%s %s at %s with %s: %d", p.method, p.path, host, name, got.status)
				}
			}
		}
	}
	for _, host := range []string{"localhost:" + port, "LOCALHOST", "[::1]:" + port, "127.0.0.2"} {
		if got := d.attack("GET", "/api/v1/rules", "", func(r *http.Request) {
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+adminToken)
		}); got.status != http.StatusOK {
			t.Errorf("at %s: %d %s", host, got.status, got.body)
		}
	}
}

// No page may show the dashboard in a frame, or post to it.
func TestFrames(t *testing.T) {
	d, _ := newActivityFixture(t, server.AdminToken{Token: adminToken, Name: "alice", Role: server.RoleWrite})
	for _, path := range []string{"/", "/index.html"} {
		got := d.attack("GET", path, "", func(*http.Request) {})
		if policy := got.header.Get("Content-Security-Policy"); got.status == http.StatusOK && (!strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe")) {
			t.Errorf("%s: the policy is %q", path, policy)
		}
	}
	d.attack("POST", "/", "", func(*http.Request) {}).problem(http.StatusMethodNotAllowed, "allowed: GET, HEAD")
}

// Beyond loopback the listener answers to any name, as a proxy may have one, and to nobody without a token.
func TestRebindingElsewhere(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.AdminListen, c.Admin.Tokens = "0.0.0.0:0", []server.AdminToken{{Token: adminToken, Role: server.RoleWrite}}
	})
	for _, p := range dashboardPaths[3:] {
		got := d.attack(p.method, p.path, p.body, func(r *http.Request) { r.Host = "evil.example" })
		if got.status != http.StatusUnauthorized && got.status != http.StatusNotFound {
			t.Errorf("%s %s: %d", p.method, p.path, got.status)
		}
	}
}
