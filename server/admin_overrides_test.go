package server_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules/registry"
)

func TestOverridesOfARule(t *testing.T) {
	d := newDesk(t, registry.NewMemory(), nil).fill()
	const path = "/api/v1/rules/user/overrides"
	allowed := func(user string, status int) {
		t.Helper()
		d.postPublic(evaluate, `{"path":"/user","attributes":{"userId":"`+user+`"}}`).evaluated(status)
	}
	var list api.OverrideList
	d.ask("GET", path, "").is(200).into(&list)
	if list.Rule != "user" || list.Version != 1 || len(list.Overrides) != 3 || string(list.Overrides[2]) != `{"key":"mallory","banned":true}` {
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

// An API key is in the rule, and nowhere else: neither in an audit record nor in a problem.
func TestAPIKeysStayOutOfTheAudit(t *testing.T) {
	d := newDesk(t, registry.NewMemory(), nil).fill()
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
