package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

func (r reply) list() (ids []string, page adminapi.RuleList) {
	r.t.Helper()
	r.into(&page)
	for _, text := range page.Rules {
		var rule struct{ ID string }
		if err := json.Unmarshal(text, &rule); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, rule.ID)
	}
	return ids, page
}

// A rule lives from its creation to its removal, and decides all the time.
func TestARulesLife(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	evaluated := func() string {
		t.Helper()
		return d.postPublic(evaluate, `{"path":"/shop","ip":"192.0.2.1"}`).evaluated(200).Rule
	}
	const created = `{"id":"shop","match":{"path":"/shop"},"scope":"per_ip",` + fiveAnHour + `}`
	got := d.ask("POST", "/api/v1/rules?comment=for+the+sale", created).is(201)
	if got.body != created || got.header.Get("Location") != "/api/v1/rules/shop" || got.header.Get(adminapi.HeaderRevision) != "1" {
		t.Errorf("created: %v %s", got.header, got.body)
	}
	if rule := evaluated(); rule != "shop" {
		t.Errorf("rule %q decides right after its creation", rule)
	}
	again := d.ask("POST", "/api/v1/rules", created)
	again.problem(409, "there is a rule shop already")
	if again.etag() != got.etag() {
		t.Errorf("409 with the tag %s, want %s", again.etag(), got.etag())
	}

	read := d.ask("GET", "/api/v1/rules/shop", "").is(200)
	if read.body != created || read.etag() != got.etag() {
		t.Errorf("read: %s %s", read.etag(), read.body)
	}
	d.ask("GET", "/api/v1/rules/shop", "", "If-None-Match: "+read.etag()).is(304)
	d.ask("HEAD", "/api/v1/rules/shop", "").is(200)

	patched := d.ask("PATCH", "/api/v1/rules/shop", `{"enabled":false,"labels":{"team":"shop"},"match":{"methods":["GET"]}}`,
		"Content-Type: application/merge-patch+json", "If-Match: "+read.etag()).is(200)
	const want = `{"id":"shop","enabled":false,"labels":{"team":"shop"},"match":{"methods":["GET"],"path":"/shop"},"scope":"per_ip",` + fiveAnHour + `}`
	if patched.body != want || patched.header.Get(adminapi.HeaderRevision) != "2" {
		t.Errorf("patched: %s, want %s", patched.body, want)
	}
	if rule := evaluated(); rule != "" {
		t.Errorf("rule %q decides though it is disabled", rule)
	}
	stale := d.ask("PATCH", "/api/v1/rules/shop", `{"enabled":true}`, "If-Match: "+read.etag())
	stale.problem(412, "If-Match")
	if stale.etag() != patched.etag() {
		t.Errorf("412 with the tag %s, want that of now, %s", stale.etag(), patched.etag())
	}
	if got := d.ask("PATCH", "/api/v1/rules/shop", `{"enabled":null,"labels":null,"match":{"methods":null}}`).is(200); got.body != created || got.etag() != read.etag() {
		t.Errorf("patched back: %s", got.body)
	}
	d.ask("PATCH", "/api/v1/rules/shop", `{"id":"other"}`).problem(400, "id is \"other\"; allowed: shop")
	d.ask("PATCH", "/api/v1/rules/shop", `{"id":null}`).problem(400, "id")

	put := d.ask("PUT", "/api/v1/rules/shop", "scope: global\nmatch: {path: /shop}\nlimits:\n  - {algorithm: fixed_window, limit: 9, window: 1h}\n", "Content-Type: application/yaml").is(200)
	if !strings.Contains(put.body, `"id":"shop"`) || !strings.Contains(put.body, `"limit":9`) {
		t.Errorf("put: %s", put.body)
	}
	d.ask("PUT", "/api/v1/rules/shop", created, "If-None-Match: *").problem(412, "it exists")
	d.ask("PUT", "/api/v1/rules/other", created).problem(400, `id is "shop"; allowed: other`)
	d.ask("PUT", "/api/v1/rules/new", `{"scope":"global",`+fiveAnHour+`}`, "If-Match: *").problem(412, "does not exist")
	d.ask("PUT", "/api/v1/rules/new", `{"scope":"global",`+fiveAnHour+`}`, "If-None-Match: *").is(201)

	d.ask("DELETE", "/api/v1/rules/shop", "", "If-Match: "+read.etag()).problem(412)
	d.ask("DELETE", "/api/v1/rules/shop", "", "If-Match: "+put.etag()).is(204)
	d.ask("GET", "/api/v1/rules/shop", "").problem(404, `no rule "shop"`)
	d.ask("DELETE", "/api/v1/rules/shop", "").problem(404)
	d.ask("PATCH", "/api/v1/rules/shop", `{}`).problem(404)
	if rule := evaluated(); rule != "new" {
		t.Errorf("rule %q decides after the removal", rule)
	}
}

func TestListRules(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	d.ask("PATCH", "/api/v1/rules/site", `{"enabled":false,"labels":{"team":"web","tier":"1"}}`).is(200)
	d.ask("PATCH", "/api/v1/rules/user", `{"labels":{"team":"web"}}`).is(200)
	for query, want := range map[string]string{
		"":                               "banned cost free host key login shadow site tokens user wait",
		"?enabled=false":                 "site",
		"?enabled=true&prefix=s":         "shadow",
		"?label=team:web":                "site user",
		"?label=team:web&label=tier:1":   "site",
		"?label=team:":                   "",
		"?limit=2":                       "banned cost | cost",
		"?limit=2&after=tokens":          "user wait",
		"?limit=1&label=team:web":        "site | site",
		"?limit=11":                      "banned cost free host key login shadow site tokens user wait",
		"?prefix=s&limit=1&after=shadow": "site",
		"?after=zzz":                     "",
	} {
		ids, page := d.ask("GET", "/api/v1/rules"+query, "").is(200).list()
		got := strings.Join(ids, " ")
		if page.Next != "" {
			got += " | " + page.Next
		}
		if got != want || page.Revision != 3 || page.At.IsZero() {
			t.Errorf("%s: %q of revision %d, want %q", query, got, page.Revision, want)
		}
	}
	list := d.ask("GET", "/api/v1/rules", "")
	d.ask("GET", "/api/v1/rules", "", "If-None-Match: \"x\", "+list.etag()).is(304)
	for query, want := range map[string]string{
		"?enabled=yes": "enabled is", "?limit=0": "1 to 10000", "?label=team": "NAME:VALUE", "?page=2": `parameter is "page"`, "?limit=1&limit=2": "once", "?a=%zz": "percent-encoding",
	} {
		d.ask("GET", "/api/v1/rules"+query, "").problem(400, want)
	}
}

func TestReplaceAllRules(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	before := d.ask("GET", "/api/v1/rules", "").etag()
	const document = "rules:\n- {id: login, scope: global, limits: [{algorithm: fixed_window, limit: 5, window: 1h}]}\n- {id: new, scope: global, unlimited: true}\n"
	got := d.ask("PUT", "/api/v1/rules", document, "Content-Type: text/yaml", "If-Match: "+before).is(200)
	var edited adminapi.Edited
	got.into(&edited)
	if edited.Revision != 2 || !slices.Equal(edited.Added, []string{"new"}) || !slices.Equal(edited.Changed, []string{"login"}) || len(edited.Removed) != 10 {
		t.Errorf("edited: %+v", edited)
	}
	if ids, _ := d.ask("GET", "/api/v1/rules", "").list(); !slices.Equal(ids, []string{"login", "new"}) {
		t.Errorf("rules %v", ids)
	}
	if now := d.ask("GET", "/api/v1/rules", "").etag(); now != got.etag() || now == before {
		t.Errorf("the tag is %s, the edit said %s", now, got.etag())
	}
	d.ask("PUT", "/api/v1/rules", `[]`, "If-Match: "+before).problem(412)
	d.ask("POST", "/api/v1/rules", `{"id":"x","scope":"global","unlimited":true}`, "If-Match: "+before).problem(412)
	d.ask("PUT", "/api/v1/rules", document, "Content-Type: application/yaml").is(200)
	if got := d.ask("GET", "/api/v1/rules", "").header.Get(adminapi.HeaderRevision); got != "2" {
		t.Errorf("the same rules again make revision %s", got)
	}
	d.ask("PUT", "/api/v1/rules", `[{"id":"a","scope":"global","unlimited":true},`+"\n"+`{"id":"a","scope":"per_moon","unlimited":true}]`).
		problem(400, `body.json:2:19: rule "a": scope`)
	d.ask("PUT", "/api/v1/rules", `[{"id":"a","scope":"global","unlimited":true},`+"\n"+`{"id":"a","scope":"per_user","unlimited":true}]`).
		problem(400, `body.json:2:1: rule "a": missing`, "is given twice, first at body.json:1:2")
}

// All that is wrong with one rule is told at once: how it is written, and what does not make sense in it.
func TestFaultsOfOneRule(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	const rule = `{"id":"new",` + "\n" + `"match":{"path":"login"},` + "\n" + `"scope":"per_moon",` + "\n" + `"limits":[{"algorithm":"fixed_window","limit":5}]}`
	for _, faults := range []reply{d.ask("POST", "/api/v1/rules", rule), d.ask("PUT", "/api/v1/rules/new", rule, "If-None-Match: *")} {
		faults.problem(400, "body.json:2:", "match.path", "body.json:3:", "per_moon", "body.json:4:", "window")
	}
}

func TestValidateRules(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	validate := func(document, mediaType string) adminapi.Validation {
		t.Helper()
		var v adminapi.Validation
		d.ask("POST", "/api/v1/rules/validate", document, "Content-Type: "+mediaType).is(200).into(&v)
		return v
	}
	v := validate(`{"rules":[{"id":"login","scope":"global","unlimited":true},{"id":"new","enabled":false,"scope":"global","unlimited":true}]}`, "application/json")
	if !v.Valid || v.Rules != 2 || v.Enabled != 1 || !slices.Equal(v.Added, []string{"new"}) || !slices.Equal(v.Changed, []string{"login"}) || len(v.Removed) != 10 {
		t.Errorf("valid rules: %+v", v)
	}
	v = validate("- id: a\n  scope: per_moon\n  unlimited: true\n- id: b\n  scop: global\n  limits: 5\n", "application/yaml")
	if v.Valid || len(v.Faults) != 3 || v.Faults[0].Line != 2 || v.Faults[0].Rule != "a" || v.Faults[2].Rule != "b" || v.RuleChanges != nil {
		t.Errorf("ill-written rules: %+v", v)
	}
	v = validate("- id: a\n  scope: per_user\n  unlimited: true\n", "application/yaml")
	if v.Valid || len(v.Faults) != 1 || v.Faults[0].Line != 1 || v.Faults[0].Rule != "a" || v.Rules != 1 || !strings.Contains(v.Faults[0].Detail, "missing") {
		t.Errorf("senseless rules: %+v", v)
	}
	v = validate("- id: a\n  scope: global\n  unlimited: true\n  max_wait: 1s\n- id: b\n  scop: global\n", "application/yaml")
	if v.Valid || len(v.Faults) != 2 || v.Faults[0].Line != 4 || v.Faults[0].Rule != "a" || v.Faults[1].Line != 6 || v.Rules != 2 {
		t.Errorf("a senseless rule beside one that is ill-written: %+v", v)
	}
	if v = validate("{", "application/yaml"); v.Valid || len(v.Faults) != 1 {
		t.Errorf("half a document: %+v", v)
	}
	if got := d.ask("GET", "/api/v1/rules", "").header.Get(adminapi.HeaderRevision); got != "1" {
		t.Errorf("validating makes revision %s", got)
	}
	// A rule may be called so, too.
	d.ask("PUT", "/api/v1/rules/validate", `{"scope":"global","unlimited":true}`).is(201)
	d.ask("GET", "/api/v1/rules/validate", "").is(200)
}

func TestBadEdits(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) { c.HTTP.MaxBodyBytes = 1000 }).fill()
	for _, test := range []struct {
		method, path, body string
		fields             []string
		status             int
		detail             string
	}{
		{"POST", "/api/v1/rules", `{"id":"x"}`, nil, 400, `rule "x": scope`},
		{"POST", "/api/v1/rules", `{"id":"x","scope":"global","scope":"global"}`, nil, 400, `"scope" is given twice`},
		{"POST", "/api/v1/rules", `{"id":"x","colour":"red"}`, nil, 400, "colour"},
		{"POST", "/api/v1/rules", `{"id":"x","scope":"global","limits":[{"algorithm":"fixed_window","limit":0,"window":"1h"}],"max_wait":"1h"}`, nil, 400, "max_wait"},
		{"POST", "/api/v1/rules", `{`, nil, 400, "not JSON"},
		{"POST", "/api/v1/rules", `[]`, nil, 400, "a mapping"},
		{"POST", "/api/v1/rules", `{"scope":"global","unlimited":true}`, nil, 400, "id"},
		{"POST", "/api/v1/rules", "a: &b c", []string{"Content-Type: application/yaml"}, 400, "anchors"},
		{"POST", "/api/v1/rules", `{"id":"x"}`, []string{"Content-Type: text/plain"}, 415, "Content-Type"},
		{"PATCH", "/api/v1/rules/user", `[]`, nil, 400, "the patch"},
		{"PATCH", "/api/v1/rules/user", `{"limits":[]}`, nil, 400, "limits"},
		{"PATCH", "/api/v1/rules/user", `{}`, []string{"Content-Type: application/yaml"}, 415, "merge-patch"},
		{"PUT", "/api/v1/rules/user", `{"labels":{"a":"` + strings.Repeat("x", 1000) + `"}}`, nil, 413, "1000 bytes"},
		{"PUT", "/api/v1/rules", `[] ` + strings.Repeat(" ", rulefile.MaxBytes), nil, 413, "33554432 bytes"},
		{"PUT", "/api/v1/rules/user?colour=red", `{}`, nil, 400, "parameter"},
		{"PUT", "/api/v1/rules/user", `{}`, []string{"If-Match: user"}, 400, "If-Match"},
		{"DELETE", "/api/v1/rules/user?comment=%01", "", nil, 400, "comment"},
		{"DELETE", "/api/v1/rules", "", nil, 400, "set=NAME, label=NAME:VALUE or prefix=TEXT"},
		{"PATCH", "/api/v1/rules?enabled=true", `{"enabled":false}`, nil, 400, "set=NAME, label=NAME:VALUE or prefix=TEXT"},
		{"PATCH", "/api/v1/rules?prefix=u", `{"id":"x"}`, nil, 400, "an ID can't be changed"},
		{"OPTIONS", "/api/v1/rules", "", nil, 405, "GET, HEAD, PUT, POST, PATCH, DELETE"},
		{"POST", "/api/v1/rules/user", "", nil, 405, "GET, HEAD, PUT, PATCH, DELETE"},
		{"POST", "/api/v1/rule-revisions", "", nil, 405, "GET, HEAD"},
		{"GET", "/api/v1/rule", "", nil, 404, "path"},
		{"GET", "/api/v1/rules/", "", nil, 404, "path"},
		{"GET", "/api/v1/rules//overrides", "", nil, 404, "path"},
		{"GET", "/api/v1/rule-revisions/one", "", nil, 404, "path"},
		{"GET", "/api/v1/rule-revisions/01", "", nil, 404, "path"},
	} {
		got := d.ask(test.method, test.path, test.body, test.fields...)
		got.problem(test.status, test.detail)
		if test.status == 405 && got.header.Get("Allow") != test.detail {
			t.Errorf("%s %s: Allow is %q", test.method, test.path, got.header.Get("Allow"))
		}
	}
	if got := d.ask("GET", "/api/v1/rules", "").header.Get(adminapi.HeaderRevision); got != "1" {
		t.Errorf("bad edits make revision %s", got)
	}
}

// Two servers on one store are two processes: what one creates is in force in the other, and of
// two editors with one tag the second is told so.
func TestTwoProcessesOfOneRegistry(t *testing.T) {
	kept := rulestore.NewMemory()
	one, two := newAdminFixture(t, kept, nil), newAdminFixture(t, kept, nil)
	created := one.ask("POST", "/api/v1/rules", `{"id":"a","scope":"per_ip",`+fiveAnHour+`}`).is(201)
	eventually(t, func() bool {
		return two.postPublic(evaluate, `{"path":"/","ip":"192.0.2.1"}`).evaluated(200).Rule == "a"
	})
	if got := two.ask("GET", "/api/v1/rules/a", "").is(200); got.body != created.body || got.etag() != created.etag() {
		t.Errorf("in the other process: %s", got.body)
	}
	one.ask("PATCH", "/api/v1/rules/a", `{"priority":1}`, "If-Match: "+created.etag()).is(200)
	two.ask("PATCH", "/api/v1/rules/a", `{"priority":2}`, "If-Match: "+created.etag()).problem(412)
	if got := two.ask("GET", "/api/v1/rules/a", "").body; !strings.Contains(got, `"priority":1`) {
		t.Errorf("the rule is %s", got)
	}
}

// Concurrent edits with tags, in several processes, lose no edit.
func TestConcurrentEditorsLoseNoEdit(t *testing.T) {
	t.Parallel()
	kept := rulestore.NewMemory()
	fixtures := []*adminFixture{newAdminFixture(t, kept, nil), newAdminFixture(t, kept, nil)}
	fixtures[0].ask("POST", "/api/v1/rules", `{"id":"a","priority":0,"scope":"per_ip",`+fiveAnHour+`}`).is(201)
	const editors = 32
	var editing sync.WaitGroup
	for i := range editors {
		d := fixtures[i%2]
		editing.Go(func() {
			for { // read, add one, write: until nobody came between
				read := d.ask("GET", "/api/v1/rules/a", "")
				var rule struct{ Priority int }
				if err := json.Unmarshal([]byte(read.body), &rule); err != nil {
					t.Error(err)
					return
				}
				got := d.ask("PATCH", "/api/v1/rules/a", fmt.Sprintf(`{"priority":%d}`, rule.Priority+1), "If-Match: "+read.etag())
				switch got.status {
				case http.StatusOK:
					return
				case http.StatusPreconditionFailed, http.StatusConflict:
				default:
					t.Errorf("%d %s", got.status, got.body)
					return
				}
			}
		})
	}
	editing.Wait()
	if got := fixtures[1].ask("GET", "/api/v1/rules/a", "").is(200); !strings.Contains(got.body, fmt.Sprintf(`"priority":%d`, editors)) || got.header.Get(adminapi.HeaderRevision) != fmt.Sprint(editors+1) {
		t.Errorf("after %d edits: revision %s of %s", editors, got.header.Get(adminapi.HeaderRevision), got.body)
	}
}

// Without a manager, the rules in force are shown, and edits say where to make them.
func TestRulesOfAFileAreNotEditedHere(t *testing.T) {
	r := run(t, func(c *server.Config) { c.AdminListen, c.RulesPlace = "127.0.0.1:0", "the file /etc/stint/rules.yaml" })
	d := &adminFixture{running: r}
	ids, page := d.ask("GET", "/api/v1/rules", "").is(200).list()
	if len(ids) != len(ruleList()) || page.Revision != 0 {
		t.Errorf("rules %v of revision %d", ids, page.Revision)
	}
	list := d.ask("GET", "/api/v1/rules", "")
	d.ask("GET", "/api/v1/rules", "", "If-None-Match: "+list.etag()).is(304)
	d.server.SwapRules(nil)
	if now := d.ask("GET", "/api/v1/rules", "").is(200); now.etag() == list.etag() {
		t.Error("other rules have the same tag")
	}
	d.ask("DELETE", "/api/v1/rules/login", "").problem(409, "they come from the file /etc/stint/rules.yaml")
	d.ask("POST", "/api/v1/rule-revisions/1/rollback", "").problem(409)
	if got, want := d.ask("GET", "/api/v1/rule-revisions", "").is(200).body, `{"revisions":[],"rulesFrom":"the file /etc/stint/rules.yaml"}`; strings.TrimSpace(got) != want {
		t.Errorf("the revisions are %s, want %s", got, want)
	}
	d.ask("GET", "/api/v1/rule-revisions/1", "").problem(404, "the file /etc/stint/rules.yaml")
	d.ask("POST", "/api/v1/rules/validate", `[]`).is(200)
}

// Rules are disabled, enabled and removed together, by label or by the prefix of their ID.
func TestSelectedRules(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	for _, rule := range []string{"a-1", "a-2", "b-1"} {
		d.ask("PUT", "/api/v1/rules/"+rule, fmt.Sprintf(`{"labels":{"team":"%s"},"scope":"global","unlimited":true}`, rule[:1])).is(201)
	}
	stale := d.ask("GET", "/api/v1/rules", "").etag()
	edited := func(method, query, body string, revision int64, added, removed, changed string, fields ...string) {
		t.Helper()
		var got adminapi.Edited
		d.ask(method, "/api/v1/rules?"+query, body, fields...).is(200).into(&got)
		if got.Revision != revision || strings.Join(got.Added, " ") != added || strings.Join(got.Removed, " ") != removed || strings.Join(got.Changed, " ") != changed {
			t.Errorf("%s ?%s: %+v", method, query, got)
		}
	}
	edited("PATCH", "label=team:a", `{"enabled":false}`, 4, "", "", "a-1 a-2", "If-Match: "+stale)
	d.ask("DELETE", "/api/v1/rules?prefix=b", "", "If-Match: "+stale).problem(412)
	if ids, _ := d.ask("GET", "/api/v1/rules?enabled=false", "").list(); strings.Join(ids, " ") != "a-1 a-2" {
		t.Errorf("disabled are %v", ids)
	}
	edited("PATCH", "prefix=a-2&enabled=false", `{"enabled":true}`, 5, "", "", "a-2")
	edited("PATCH", "label=team:nobody", `{"enabled":true}`, 5, "", "", "")
	edited("DELETE", "label=team:a&enabled=true&comment=unused", "", 6, "", "a-2", "")
	edited("PATCH", "prefix=a-1", `{"set":"first"}`, 7, "", "", "a-1")
	if ids, _ := d.ask("GET", "/api/v1/rules?set=first", "").list(); strings.Join(ids, " ") != "a-1" {
		t.Errorf("of the set are %v", ids)
	}
	edited("DELETE", "set=first", "", 8, "", "a-1", "")
	d.ask("GET", "/api/v1/rules?set=", "").problem(400, "set is")
	var list adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?before=7&limit=1", "").is(200).into(&list)
	if v := list.Revisions[0]; v.Action != "delete rules of label team:a" || v.Comment != "unused" {
		t.Errorf("the revision is %+v", v)
	}
}

// A path that is written as for another router is a fault wherever a rule is written, at its place where there is one.
func TestMistakesOfRules(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	const rule = "{\"id\":\"new\",\n\"match\":{\"path\":\"/users/:id\"},\n\"scope\":\"global\",\n\"limits\":[{\"algorithm\":\"fixed_window\",\"limit\":5,\"window\":\"1m\"}]}"
	const want = `rule "new": match.path is "/users/:id"; allowed: /users/{id}, or /users/%3Aid for :id itself`
	d.ask("POST", "/api/v1/rules", rule).problem(400, "body.json:2:17: "+want)
	d.ask("PUT", "/api/v1/rules/new", rule).problem(400, "body.json:2:17: "+want)
	d.ask("PUT", "/api/v1/rules", "["+rule+"]").problem(400, "body.json:2:17: "+want)
	var v adminapi.Validation
	for _, query := range []string{"", "?partial=true"} {
		d.ask("POST", "/api/v1/rules/validate"+query, "["+rule+"]").is(200).into(&v)
		if v.Valid || len(v.Faults) != 1 || v.Faults[0].Line != 2 || v.Faults[0].Column != 17 || v.Faults[0].Detail != want {
			t.Errorf("validating%s: %+v", query, v)
		}
	}
	d.ask("PUT", "/api/v1/rules/new", strings.Replace(rule, ":id", "{id}", 1)).is(201)
	d.ask("PATCH", "/api/v1/rules/new", `{"match":{"path":"/users/:id"}}`).problem(400, want)
	d.ask("PATCH", "/api/v1/rules?prefix=new", `{"match":{"path":null,"paths":["/a","/b/[0-9]+"]}}`).problem(400, `rule "new": match.paths[1] is "/b/[0-9]+"`)
	d.ask("PATCH", "/api/v1/rules/new", `{"match":{"path":"/v1/items:batchGet"}}`).is(200)
	const costly = `{"id":"costly","scope":"global","cost":11,"limits":[{"algorithm":"token_bucket","capacity":10,"refill":"10/s"}]}`
	d.ask("PUT", "/api/v1/rules/costly", costly).problem(400, `body.json:1:40: rule "costly": cost is 11; allowed: at most 10, all that limits[0] has`)
	d.ask("PUT", "/api/v1/rules/costly", strings.Replace(costly, "11", "10", 1)).is(201)
	d.ask("PATCH", "/api/v1/rules/costly", `{"cost":11}`).problem(400, `rule "costly": cost is 11`)
	d.ask("PUT", "/api/v1/rules/costly/overrides/*", `{"limits":[{"algorithm":"token_bucket","capacity":9,"refill":"1/s"}]}`).
		problem(400, `rule "costly": overrides[0].limits[0] is a limit of 9; allowed: at least 10, the cost`)
	v = adminapi.Validation{}
	d.ask("POST", "/api/v1/rules/validate", `[{"id":"odata","match":{"path":"/$metadata"},"scope":"global","unlimited":true}]`).is(200).into(&v)
	if !v.Valid || len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0], "rule odata: match.path is \"/$metadata\"; allowed: /{metadata}, or /%24metadata") {
		t.Errorf("a path of OData: %+v", v)
	}
}

// Edits that are lost when the process ends are warned of once, and the dashboard is told.
func TestForgottenRules(t *testing.T) {
	for _, forgotten := range []bool{true, false} {
		d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
			c.RulesPlace, c.RulesForgotten = "somewhere", forgotten
		})
		const warning = `level=WARN msg="edited rules are kept in the memory of this process`
		edit := func(enabled bool) string {
			body := fmt.Sprintf(`{"id":"a","scope":"per_ip","enabled":%v,`+fiveAnHour+`}`, enabled)
			d.ask("PUT", "/api/v1/rules/a", body)
			return d.log.String()
		}
		if log := d.log.String(); strings.Contains(log, warning) {
			t.Errorf("before the first edit: %s", log)
		}
		want := map[bool]int{true: 1}[forgotten]
		for _, enabled := range []bool{true, false, false} {
			if log := edit(enabled); strings.Count(log, warning) != want {
				t.Errorf("forgotten %v: the log is %s", forgotten, log)
			}
		}
		session := d.attack("GET", "/session", "", func(*http.Request) {}).is(200).body
		if want := fmt.Sprintf(`"rules":{"from":"somewhere","editable":true,"forgotten":%v}`, forgotten); !strings.Contains(session, want) {
			t.Errorf("the session is %s, want %s", session, want)
		}
	}
}
