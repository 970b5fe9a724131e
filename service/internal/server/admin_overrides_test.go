package server_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// An API key that was kept when changes of scope were not refused yet is shown to no reader.
func TestChangesOfScopeShowNoAPIKeys(t *testing.T) {
	const reader, secret = "the-token-of-a-reader", "the-key-of-partner-x"
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Admin.Tokens = []server.AdminToken{{Token: reader}, {Token: adminToken, Role: server.RoleWrite}}
	})
	d.token = adminToken
	const overrides = `"overrides":[{"key":"` + secret + `","unlimited":true}],`
	d.ask("POST", "/api/v1/rules", `{"id":"one","missing":"skip","scope":"per_api_key",`+overrides+fiveAnHour+`}`).is(201)
	must.Get(d.manager.Edit(t.Context(), rulestore.Author{}, func(draft *rulestore.Draft) error {
		rule, _ := draft.Rule("one")
		rule.Scope = []string{rules.PerUser}
		draft.Put(rule)
		return nil
	}))(t)
	d.ask("PATCH", "/api/v1/rules/one", `{"scope":"per_api_key"}`).is(200)
	d.token = reader
	for _, revision := range []string{"2", "3"} {
		got := d.ask("GET", "/api/v1/rule-revisions/"+revision, "").is(200)
		if strings.Contains(got.body, secret) || strings.Count(got.body, `\\`+rules.HashedClient(secret)[1:]) != 2 {
			t.Errorf("revision %s is shown as\n%s", revision, got.body)
		}
	}
}

// The end of an override that a PUT names by how long it is from now is that long from now.
func TestOverrideThatEnds(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	d.ask("PUT", "/api/v1/rules/quota", `{"scope":"per_user","missing":"deny",`+fiveAnHour+`}`).is(201)
	const least, most = 2 * time.Hour, 2*time.Hour + time.Second
	before := time.Now()
	d.ask("PUT", "/api/v1/rules/quota/overrides/ann", `{"unlimited":true,"for":"2h"}`).is(201)
	after := time.Now()
	var shown struct{ Until time.Time }
	text := d.ask("GET", "/api/v1/rules/quota/overrides/ann", "").is(200).body
	must.Do(t, json.Unmarshal([]byte(text), &shown))
	if shown.Until.Before(before.Add(least)) || shown.Until.After(after.Add(most)) {
		t.Errorf("%s, want 2 hours from %v on", text, before)
	}
}
