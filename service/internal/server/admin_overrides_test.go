package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// A change of scope does not make a user's name, which all may see, of an API key.
func TestChangesOfScopeShowNoAPIKeys(t *testing.T) {
	const reader, secret = "the-token-of-a-reader", "the-key-of-partner-x"
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Admin.Tokens = []server.AdminToken{{Token: reader}, {Token: adminToken, Role: server.RoleWrite}}
	})
	d.token = adminToken
	sum := sha256.Sum256([]byte(secret))
	hash := `\sha256:` + hex.EncodeToString(sum[:])
	const one = `{"id":"one","missing":"skip","overrides":[{"key":"` + secret + `","unlimited":true}],` + fiveAnHour
	const two = `{"id":"two","missing":"skip","overrides":[{"key":"` + secret + `|ann","unlimited":true}],` + fiveAnHour
	d.ask("POST", "/api/v1/rules", one+`,"scope":"per_api_key"}`).is(201)
	d.ask("POST", "/api/v1/rules", two+`,"scope":["per_api_key","per_user"]}`).is(201)
	for _, c := range [][3]string{
		{"PATCH", "/api/v1/rules/one", `{"scope":"per_user"}`},
		{"PUT", "/api/v1/rules/one", one + `,"scope":"custom:plan"}`},
		{"PUT", "/api/v1/rules", "[" + one + `,"scope":"per_user"}]`},
		{"PATCH", "/api/v1/rules/two", `{"scope":["per_user","per_api_key"]}`},
	} {
		got := d.ask(c[0], c[1], c[2])
		got.problem(400, "scope is ", hash)
		if strings.Contains(got.body, secret) {
			t.Errorf("the problem shows the key: %s", got.body)
		}
	}
	d.ask("PATCH", "/api/v1/rules/two", `{"scope":["per_api_key","per_ip"],"overrides":null}`).is(200)
	d.ask("PATCH", "/api/v1/rules/two", `{"scope":["per_user"],"overrides":[{"key":"ann","banned":true}]}`).is(200)
	// What was kept before such edits were refused is not shown either.
	must.Get(d.manager.Edit(t.Context(), rulestore.Author{}, func(draft *rulestore.Draft) error {
		rule, _ := draft.Rule("one")
		rule.Scope = []string{rules.PerUser}
		draft.Put(rule)
		return nil
	}))(t)
	d.ask("PATCH", "/api/v1/rules/one", `{"scope":"per_api_key"}`).is(200)
	d.token = reader
	for _, revision := range []string{"5", "6"} {
		got := d.ask("GET", "/api/v1/rule-revisions/"+revision, "").is(200)
		if strings.Contains(got.body, secret) || strings.Count(got.body, strings.ReplaceAll(hash, `\`, `\\`)) != 2 {
			t.Errorf("revision %s is shown as\n%s", revision, got.body)
		}
	}
	if got := d.ask("GET", "/api/v1/rules/two", "").is(200); !strings.Contains(got.body, `"ann"`) {
		t.Errorf("a user is not shown: %s", got.body)
	}
}

// An override holds until its end, which a PUT may name by how long it is from now. It is listed as a time.
func TestOverrideThatEnds(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	d.ask("PUT", "/api/v1/rules/quota", `{"scope":"per_user","missing":"deny","match":{"path":"/quota"},"limits":[{"algorithm":"fixed_window","limit":1,"window":"365d"}]}`).is(201)
	ask := func(want ...int) {
		t.Helper()
		for _, status := range want {
			d.postPublic(evaluate, `{"path":"/quota","attributes":{"userId":"ann"}}`).evaluated(status)
		}
	}
	const path = "/api/v1/rules/quota/overrides/ann"
	d.ask("PUT", path, `{"banned":true,"until":"2001-01-01T00:00:00Z"}`).is(201)
	ask(200, 429) // it has ended: the rule's own limit
	before := time.Now()
	d.ask("PUT", path, `{"unlimited":true,"for":"2h"}`).is(200)
	after := time.Now()
	ask(200, 200, 200)
	var list adminapi.OverrideList
	var shown struct {
		Until time.Time `json:"until"`
		For   string    `json:"for"`
	}
	d.ask("GET", "/api/v1/rules/quota/overrides", "").is(200).into(&list)
	if err := json.Unmarshal(list.Overrides[0], &shown); err != nil || shown.For != "" ||
		shown.Until.Before(before.Add(2*time.Hour)) || shown.Until.After(after.Add(2*time.Hour+time.Second)) {
		t.Errorf("%s, %v, want 2 hours from %v on", list.Overrides[0], err, before)
	}
	d.ask("PUT", path, `{"unlimited":true,"for":"2h","until":"2027-01-01T00:00:00Z"}`).problem(400, "for is given as well as until")
	d.ask("PUT", path, `{"unlimited":true,"for":"0s"}`).problem(400, "for is", "1s to 8784h")
	d.ask("PUT", path, `{"unlimited":true,"for":2}`).problem(400, "2 has no unit; did you mean 2s?")
	d.ask("PUT", path, `{"unlimited":true,"until":"tomorrow"}`).problem(400, "until is", "a time such as 2026-12-24T18:00:00Z")
	d.ask("PATCH", "/api/v1/rules/quota", `{"overrides":[{"key":"ann","banned":true,"for":"2h"}]}`).problem(400, `"for" is not a name`)
	ask(200)
}
