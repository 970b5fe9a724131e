package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

func TestOverridesOfARule(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	const path = "/api/v1/rules/user/overrides"
	allowed := func(user string, status int) {
		t.Helper()
		d.postPublic(evaluate, `{"path":"/user","attributes":{"userId":"`+user+`"}}`).evaluated(status)
	}
	var list adminapi.OverrideList
	d.ask("GET", path, "").is(200).into(&list)
	if list.Rule != "user" || list.Revision != 1 || len(list.Overrides) != 3 || string(list.Overrides[2]) != `{"key":"mallory","banned":true}` {
		t.Errorf("overrides: %+v", list)
	}
	created := d.ask("PUT", path+"/a%2Fb%20%C3%A9", `{"banned":true}`, "If-None-Match: *").is(201)
	if created.body != `{"key":"a/b é","banned":true}` || created.header.Get("Location") != path+"/a%2Fb%20%C3%A9" {
		t.Errorf("created: %v %s", created.header, created.body)
	}
	allowed("a/b é", 429)
	d.ask("PUT", path+"/a%2Fb%20%C3%A9", `{"unlimited":true}`, "If-None-Match: *").problem(412)
	changed := d.ask("PUT", path+"/a%2Fb%20%C3%A9", `{"key":"a/b é","unlimited":true}`, "If-Match: "+created.etag()).is(200)
	allowed("a/b é", 200)
	stale := d.ask("DELETE", path+"/a%2Fb%20%C3%A9", "", "If-Match: "+created.etag())
	stale.problem(412)
	if stale.etag() != changed.etag() {
		t.Errorf("412 with %s, want %s", stale.etag(), changed.etag())
	}
	if got := d.ask("GET", path+"/a%2Fb%20%C3%A9", "").is(200); got.body != changed.body || got.etag() != changed.etag() {
		t.Errorf("read: %s", got.body)
	}
	// Another client's override is another thing: its tag stays.
	mallory := d.ask("GET", path+"/mallory", "").is(200)
	d.ask("DELETE", path+"/a%2Fb%20%C3%A9", "").is(204)
	d.ask("DELETE", path+"/a%2Fb%20%C3%A9", "").problem(404, "no override")
	d.ask("DELETE", path+"/mallory", "", "If-Match: "+mallory.etag()).is(204)
	allowed("mallory", 200)

	d.ask("GET", path+"/nobody", "").problem(404, "no override")
	d.ask("GET", "/api/v1/rules/none/overrides", "").problem(404, "no rule")
	d.ask("PUT", "/api/v1/rules/none/overrides/x", `{"banned":true}`).problem(404, "no rule")
	d.ask("PUT", path+"/x", `{"key":"y","banned":true}`).problem(400, "key")
	d.ask("PUT", path+"/x", `{}`).problem(400, "exactly one of them")
	d.ask("PUT", path+"/x", `{"banned":true,"scope":"global"}`).problem(400, "scope")
	d.ask("PUT", path+"/x%7Cy", `{"banned":true}`).problem(400, "1 parts")
	d.ask("PUT", path+"/x", `{"limits":[]}`).problem(400, "limits")
}

// A raised limit keeps the level that the client has, unless its state is reset with the override, once.
func TestOverrideThatResets(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	d.ask("PUT", "/api/v1/rules/quota", `{"scope":"per_user","missing":"deny","match":{"path":"/quota"},"limits":[{"algorithm":"fixed_window","limit":3,"window":"365d"}]}`).is(201)
	ask := func(user string, want ...int) {
		t.Helper()
		for _, status := range want {
			d.postPublic(evaluate, `{"path":"/quota","attributes":{"userId":"`+user+`"}}`).evaluated(status)
		}
	}
	ask("ann", 200, 200, 200, 429)
	ask("bob", 200, 200, 200, 429)
	const path, five = "/api/v1/rules/quota/overrides/ann", `{"limits":[{"algorithm":"fixed_window","limit":5,"window":"365d"}]}`
	d.ask("PUT", path, five).is(201)
	ask("ann", 200, 200, 429) // three of the five are spent
	d.ask("PUT", path+"?reset=yes", five).problem(400, "reset is")
	ask("ann", 429)
	d.ask("PUT", path+"?reset=true", five).is(200)
	ask("ann", 200, 200, 200, 200, 200, 429)
	ask("bob", 429)
	d.ask("PUT", "/api/v1/rules/split", `{"scope":"per_user","missing":"deny","partition_by":"tenant","reserve":{"ttl":"30s","on_expiry":"keep"},"match":{"path":"/split"},`+fiveAnHour+`}`).is(201)
	const split = "/api/v1/rules/split/overrides/ann"
	d.ask("PUT", split+"?reset=true", five).problem(400, "a client behind the value of tenant in braces")
	d.ask("GET", split, "").is(404)
	d.ask("PUT", split, five).is(201)
	d.ask("PUT", path, five+"x").problem(400)
	d.ask("PUT", path, `{"reset":true,`+five[1:]).problem(400, "reset")
}

// Role read sees no API keys; the tags are those of the whole rule.
func TestReadersSeeNoAPIKeys(t *testing.T) {
	const reader, secret = "the-token-of-a-reader", "the-key-of-partner-x"
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Admin.Tokens = []server.AdminToken{{Token: reader}, {Token: adminToken, Role: server.RoleWrite}}
	})
	d.token = adminToken
	const overrides = `[{"key":"` + secret + `","unlimited":true},{"key":"a\\|key","banned":true}]`
	d.ask("PUT", "/api/v1/rules/one", `{"scope":"per_api_key","missing":"skip","overrides":`+overrides+`,`+fiveAnHour+`}`).is(201)
	d.ask("PUT", "/api/v1/rules/two", `{"scope":["per_ip","per_api_key"],"missing":"skip","overrides":[{"key":"192.0.2.1|`+secret+`","banned":true}],`+fiveAnHour+`}`).is(201)
	d.ask("PATCH", "/api/v1/rules/one", `{"priority":3}`).is(200)
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return `\\sha256:` + hex.EncodeToString(sum[:])
	}
	ofOne := []string{`{"key":"` + hash(secret) + `","unlimited":true}`, `{"key":"` + hash(`a\|key`) + `","banned":true}`}
	ofTwo := `{"key":"192.0.2.1|` + hash(secret) + `","banned":true}`
	named := "/api/v1/rules/one/overrides/%5C" + strings.TrimPrefix(hash(secret), `\\`)
	for path, want := range map[string][]string{
		"/api/v1/rules":                          append(ofOne, ofTwo),
		"/api/v1/rules/one":                      ofOne,
		"/api/v1/rules/two":                      {ofTwo},
		"/api/v1/rules/one/overrides":            ofOne,
		"/api/v1/rules/one/overrides/" + secret:  ofOne[:1],
		named:                                    ofOne[:1],
		"/api/v1/rules/one/overrides/a%5C%7Ckey": ofOne[1:],
		"/api/v1/rules/two/overrides":            {ofTwo},
		"/api/v1/rule-revisions/2":               {ofTwo},
		"/api/v1/rule-revisions/3":               {`"before":{"id":"one"`, ofOne[0] + "," + ofOne[1] + `]}}]`},
		"/api/v1/rule-revisions":                 nil,
	} {
		d.token = adminToken
		whole := d.ask("GET", path, "").is(200)
		d.token = reader
		shown := d.ask("GET", path, "").is(200)
		for _, text := range want {
			if !strings.Contains(shown.body, text) {
				t.Errorf("%s lacks %s:\n%s", path, text, shown.body)
			}
		}
		if strings.Contains(shown.body, secret) || strings.Contains(shown.body, `|key`) || want != nil && !strings.Contains(whole.body, secret) && !strings.Contains(whole.body, `|key`) {
			t.Errorf("%s is shown as\n%s of\n%s", path, shown.body, whole.body)
		}
		if shown.etag() != whole.etag() {
			t.Errorf("%s has the tag %s, and %s to who may write", path, shown.etag(), whole.etag())
		}
	}
	d.token = adminToken
	d.ask("PATCH", "/api/v1/rules/one", `{"priority":4}`, "If-Match: "+d.ask("GET", "/api/v1/rules/one", "").etag()).is(200)
}

// An override may name an API key by its SHA-256, so that the key is kept nowhere, and takes the place of
// one that names the key itself.
func TestOverridesByHash(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	const secret = "the-key-of-partner-x"
	sum := sha256.Sum256([]byte(secret))
	hash := `\sha256:` + hex.EncodeToString(sum[:])
	overrides := "/api/v1/rules/key/overrides/"
	evaluated := func(status int) {
		t.Helper()
		d.postPublic(evaluate, `{"path":"/key","attributes":{"apiKey":"`+secret+`"}}`).evaluated(status)
	}
	d.ask("PUT", overrides+secret, `{"unlimited":true}`).is(201)
	d.ask("PUT", overrides+url.PathEscape(hash), `{"banned":true}`).is(200)
	evaluated(429)
	if got := d.ask("GET", "/api/v1/rules/key", "").is(200); strings.Contains(got.body, secret) || !strings.Contains(got.body, hash[1:]) {
		t.Errorf("the rule is %s", got.body)
	}
	d.ask("GET", overrides+secret, "").is(200)
	if got := d.auditLines(); !strings.Contains(got[len(got)-1], `outcome=done rule=key client=`+hash) {
		t.Errorf("the record is %s", got[len(got)-1])
	}
	d.ask("POST", "/api/v1/rules/key/reset", `{"key":"\`+hash+`"}`).is(200)
	d.ask("DELETE", overrides+secret, "").is(204)
	evaluated(200)
}

// An API key is in the rule, and nowhere else: neither in an audit record nor in a problem.
func TestAPIKeysStayOutOfTheAudit(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	const secret = "the-key-of-partner-x"
	const path = "/api/v1/rules/key/overrides/" + secret
	d.ask("PUT", path, `{"unlimited":true}`).is(201)
	bad := d.ask("PUT", path+"%7C2", `{"unlimited":true}`).is(400)
	d.ask("POST", "/api/v1/rules/key/reset", `{"key":"`+secret+`"}`).is(200)
	wrong := d.ask("POST", "/api/v1/rules/key/reset", `{"key":"`+secret+`|"}`).is(400)
	if strings.Contains(d.log.String()+bad.body+wrong.body, secret) {
		t.Errorf("the key is shown: %s\n%s\n%s", bad.body, wrong.body, d.log)
	}
	sum := sha256.Sum256([]byte(secret))
	if got := d.auditLines()[1]; !strings.Contains(got, `action=put_override outcome=done rule=key client=\sha256:`+hex.EncodeToString(sum[:])) {
		t.Errorf("the record is %s", got)
	}
	if got := d.postPublic(evaluate, `{"path":"/key","attributes":{"apiKey":"`+secret+`"}}`).evaluated(200); got.Limit != 0 {
		t.Errorf("the override is not in force: %+v", got)
	}
}

// A client by address has one name, under which it is counted; what would never apply is refused.
func TestAddressesAreNamedAsTheyAreCounted(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	const path = "/api/v1/rules/login/overrides/"
	for key, says := range map[string]string{
		"10.0.0.1/8":       "10.0.0.0/8, as the network is written",
		"2001:db8::1":      "2001:db8::/64, by which the client is counted",
		"2001:db8::/72":    "a network of up to 64 bits",
		"2001:DB8::/64":    "2001:db8::/64, by which the client is counted",
		"::ffff:192.0.2.1": "192.0.2.1, by which the client is counted",
		"foo":              "or unknown",
	} {
		d.ask("PUT", path+url.PathEscape(key), `{"banned":true}`).problem(400, says)
		d.ask("POST", "/api/v1/rules/login/reset", `{"key":"`+key+`"}`).problem(400, "allowed: ")
		text := `[{"id":"login","scope":"per_ip","banned":true,"overrides":[{"key":"` + key + `","unlimited":true}]}]`
		var valid adminapi.Validation
		d.ask("POST", "/api/v1/rules/validate", text).is(200).into(&valid)
		if valid.Valid || len(valid.Faults) != 1 || !strings.Contains(valid.Faults[0].Detail, says) {
			t.Errorf("%s: %+v", key, valid)
		}
		d.ask("PUT", "/api/v1/rules", text).problem(400, says)
	}
	for _, method := range []string{"GET", "DELETE"} {
		d.ask(method, path+"10.0.0.1%2F8", "").problem(400, "10.0.0.0/8, as the network is written")
		d.ask(method, path+"10.0.0.0%2F8", "").problem(404)
	}
	d.ask("PUT", path+"198.51.100.0%2F24", `{"banned":true}`).is(201)
	d.ask("GET", path+"198.51.100.0%2F24", "").is(200)
	d.postPublic(evaluate, `{"method":"POST","path":"/login","ip":"198.51.100.7"}`).evaluated(429)
	d.ask("POST", "/api/v1/rules/login/reset", `{"key":"198.51.100.0/24"}`).problem(400, "a single address of IPv4")
	d.ask("DELETE", path+"198.51.100.0%2F24", "").is(204)
	d.ask("PUT", path+"2001:db8::%2F64", `{"banned":true}`).is(201)
	d.postPublic(evaluate, `{"method":"POST","path":"/login","ip":"2001:db8::7"}`).evaluated(429)
	d.ask("POST", "/api/v1/rules/login/reset", `{"key":"2001:db8::/64"}`).is(200)
}

// The prefix of the configuration holds for documents of rules.
func TestDocumentsNameNetworksOfTheConfiguredPrefix(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) { c.ClientIP.IPv6Prefix = 56 })
	for key, want := range map[string]bool{"2001:db8::/56": true, "2001:db8::/64": false} {
		var valid adminapi.Validation
		d.ask("POST", "/api/v1/rules/validate", `[{"id":"a","scope":"per_ip","banned":true,"overrides":[{"key":"`+key+`","unlimited":true}]}]`).is(200).into(&valid)
		if valid.Valid != want {
			t.Errorf("%s: %+v", key, valid)
		}
	}
}

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
	if _, err := d.manager.Edit(t.Context(), rulestore.Author{}, func(draft *rulestore.Draft) error {
		rule, _ := draft.Rule("one")
		rule.Scope = []string{rules.PerUser}
		draft.Put(rule)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
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
