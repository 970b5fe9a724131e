package server_test

import (
	"net/http"
	"testing"

	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// A cookie is worth nothing once its person has signed out, at any process that shares the store.
func TestSignedOut(t *testing.T) {
	shared := memstore.New(memstore.Config{})
	process := func() *adminFixture {
		return newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
			c.Store = shared
			c.Admin.Tokens = []server.AdminToken{{Token: adminToken, Name: "alice", Role: server.RoleWrite}}
		})
	}
	here, there := process(), process()
	cookie, other := here.signIn(adminToken, ""), here.signIn(adminToken, "")
	for _, d := range []*adminFixture{here, there} {
		d.attack("GET", "/api/v1/rules", "", with(cookie)).is(200)
	}
	here.attack("DELETE", "/session", "", with(cookie)).is(204)
	for name, d := range map[string]*adminFixture{"the process": here, "another process": there} {
		if got := d.attack("GET", "/api/v1/rules", "", with(cookie)); got.status != http.StatusUnauthorized {
			t.Errorf("%s answers a cookie of somebody who signed out: %d", name, got.status)
		}
		d.attack("GET", "/api/v1/rules", "", with(other)).is(200) // a session of its own
	}
}
