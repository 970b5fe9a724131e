package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// An operation is one of ../admin/openapi.yaml, or a profile.
type operation struct {
	method, path string
	changes      bool // whether it needs the role write
}

// body is one that the operation takes if it takes any.
func (o operation) body() string {
	if o.method == http.MethodGet || o.method == http.MethodDelete {
		return ""
	}
	return "{}"
}

// operations are all of ../admin/openapi.yaml but the stream of events, which does not end.
func (d *adminFixture) operations() []operation {
	d.t.Helper()
	document, err := adminDocument()
	if err != nil {
		d.t.Fatal(err)
	}
	list := []operation{{http.MethodGet, "/debug/pprof/cmdline", true}}
	for path, item := range document.Paths.Map() {
		for method := range item.Operations() {
			ask := method == http.MethodGet
			switch path {
			case "/api/v1/events":
				continue
			case "/api/v1/rules/validate", "/api/v1/rules/explain", "/api/v1/domains/explain":
				ask = true
			}
			for _, name := range []string{"rule", "client", "id"} {
				path = strings.ReplaceAll(path, "{"+name+"}", "login")
			}
			list = append(list, operation{method, strings.ReplaceAll(path, "{number}", "0"), !ask})
		}
	}
	return list
}

func TestAdminRoles(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Admin.Tokens = []server.AdminToken{
			{Token: "the-token-of-a-reader", Name: "ann"}, {Token: adminToken, Role: server.RoleWrite, Name: "ben"},
		}
	})
	d.token = adminToken
	d.fill()
	d.token = "the-token-of-a-reader"
	for _, c := range [][3]string{
		{"GET", "/api/v1/rules"},
		{"GET", "/api/v1/rules/login"},
		{"GET", "/api/v1/rules/user/overrides/root"},
		{"HEAD", "/api/v1/rules"},
		{"POST", "/api/v1/rules/validate", `[]`},
		{"POST", "/api/v1/rules/explain", `{"path":"/"}`},
	} {
		d.ask(c[0], c[1], c[2]).is(200)
	}
	d.ask("GET", "/api/v1/nowhere", "").problem(404)
	all, kinds := d.operations(), map[bool]int{}
	for _, o := range all {
		got := d.ask(o.method, o.path, o.body())
		if kinds[o.changes]++; o.changes {
			got.problem(403, "the token has role read; allowed: role write")
		} else if got.status == 401 || got.status == 403 {
			t.Errorf("%s %s of a reader: %d %s", o.method, o.path, got.status, got.body)
		}
	}
	if kinds[true] < 14 || kinds[false] < 17 {
		t.Errorf("%d operations change something, and %d do not", kinds[true], kinds[false])
	}
	for _, d.token = range []string{"", "no-such-token-at-all", apiToken} {
		for _, o := range all {
			if got := d.ask(o.method, o.path, o.body()); got.status != 401 {
				t.Errorf("%s %s with the token %q: %d %s", o.method, o.path, d.token, got.status, got.body)
			}
		}
	}
	d.token = adminToken
	if got := d.ask("GET", "/api/v1/rules", "").header.Get(adminapi.HeaderRevision); got != "1" {
		t.Errorf("what was refused made revision %s", got)
	}
	d.ask("DELETE", "/api/v1/rules/login", "").is(204)
}
