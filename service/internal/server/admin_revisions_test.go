package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

func TestRevisionsAndRollback(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) { c.Admin.Tokens = adminTokens() })
	d.token = adminToken
	d.fill()
	original := d.ask("GET", "/api/v1/rules", "").is(200)
	d.ask("DELETE", "/api/v1/rules/login?comment=it+hurts", "").is(204)
	d.ask("PATCH", "/api/v1/rules/user", `{"priority":7}`).is(200)
	d.ask("PUT", "/api/v1/rules/new", `{"scope":"global","unlimited":true}`).is(201)

	var list adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?limit=3", "").is(200).into(&list)
	if len(list.Revisions) != 3 || list.Next != 2 {
		t.Fatalf("revisions: %+v", list)
	}
	for i, want := range []struct {
		action, comment string
		rules           int
	}{{"put new", "", 0}, {"patch user", "", -1}, {"delete login", "it hurts", -1}} {
		v := list.Revisions[i]
		if v.Action != want.action || v.Comment != want.comment || v.Rules != len(ruleList())+want.rules || v.Bytes == 0 ||
			v.Revision != int64(4-i) || v.At.IsZero() || !strings.HasPrefix(v.By, "token-") {
			t.Errorf("revision %d is %+v", i, v)
		}
	}
	var rest adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?before=2", "").is(200).into(&rest)
	if len(rest.Revisions) != 1 || rest.Revisions[0].Revision != 1 || rest.Next != 0 || rest.Revisions[0].Rules != len(ruleList()) {
		t.Errorf("the first revision: %+v", rest)
	}
	var ofLogin adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?rule=login", "").is(200).into(&ofLogin)
	if len(ofLogin.Revisions) != 2 || ofLogin.Revisions[0].Revision != 2 || ofLogin.Revisions[1].Revision != 1 {
		t.Errorf("revisions of login: %+v", ofLogin)
	}
	one := d.ask("GET", "/api/v1/rule-revisions/3", "").is(200)
	if !strings.Contains(one.body, `"id":"user","before":{`) || !strings.Contains(one.body, `"priority":7`) {
		t.Errorf("revision 3: %s", one.body)
	}
	d.ask("GET", "/api/v1/rule-revisions/3", "", "If-None-Match: "+one.etag()).is(304)
	var since adminapi.RuleRevisionDiff
	d.ask("GET", "/api/v1/rule-revisions/4?since=1", "").is(200).into(&since)
	if len(since.Changes) != 3 || since.Changes[0].ID != "login" || since.Changes[0].After != nil || since.Changes[1].ID != "new" || since.Since != 1 {
		t.Errorf("what revisions 2 to 4 changed: %+v", since)
	}
	d.ask("GET", "/api/v1/rule-revisions/9", "").problem(404, "there is no revision 9; the newest is 4")
	d.ask("GET", "/api/v1/rule-revisions/0", "").problem(404)
	d.ask("GET", "/api/v1/rule-revisions?limit=1001", "").problem(400, "limit")

	d.ask("POST", "/api/v1/rule-revisions/1/rollback", "", "If-Match: "+original.etag()).problem(412)
	d.ask("POST", "/api/v1/rule-revisions/1/rollback", `{}`).problem(400, "body")
	d.ask("POST", "/api/v1/rule-revisions/9/rollback", "").problem(404)
	now := d.ask("GET", "/api/v1/rules", "").etag()
	var edited adminapi.Edited
	back := d.ask("POST", "/api/v1/rule-revisions/1/rollback?comment=back", "", "If-Match: "+now).is(200)
	back.into(&edited)
	if edited.Revision != 5 || strings.Join(edited.Added, " ") != "login" || strings.Join(edited.Removed, " ") != "new" || strings.Join(edited.Changed, " ") != "user" {
		t.Errorf("rolled back: %+v", edited)
	}
	restored := d.ask("GET", "/api/v1/rules", "").is(200)
	_, before := original.list()
	_, after := restored.list()
	if len(before.Rules) != len(after.Rules) || restored.etag() != back.etag() {
		t.Fatalf("%d rules after the rollback, %d before", len(after.Rules), len(before.Rules))
	}
	for i := range before.Rules {
		if string(before.Rules[i]) != string(after.Rules[i]) {
			t.Errorf("rule %s is not %s", after.Rules[i], before.Rules[i])
		}
	}
	if got := d.postPublic(evaluate, `{"method":"POST","path":"/login","ip":"192.0.2.1"}`).evaluated(200); got.Rule != "login" {
		t.Errorf("rule %q decides after the rollback", got.Rule)
	}
	d.ask("POST", "/api/v1/rule-revisions/0/rollback", "").is(200)
	if ids, _ := d.ask("GET", "/api/v1/rules", "").list(); len(ids) != 0 {
		t.Errorf("rules before the first revision: %v", ids)
	}
}

// An edit that changes nothing names the tag of all rules, before the first revision too.
func TestTagBeforeTheFirstRevision(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	list := d.ask("GET", "/api/v1/rules", "").is(200)
	for _, edit := range [][3]string{{"PUT", "/api/v1/rules", `[]`}, {"POST", "/api/v1/rule-revisions/0/rollback", ""}} {
		if got := d.ask(edit[0], edit[1], edit[2], "If-Match: "+list.etag()).is(200); got.etag() != list.etag() {
			t.Errorf("%s %s: the tag is %s, want %s", edit[0], edit[1], got.etag(), list.etag())
		}
	}
	d.ask("PUT", "/api/v1/rules/a", `{"scope":"global","unlimited":true}`).is(201)
	tag := d.ask("GET", "/api/v1/rules/a", "").etag()
	d.ask("GET", "/api/v1/rules/a", "", "If-None-Match: W/"+tag).is(304)
	d.ask("PUT", "/api/v1/rules/a", `{"scope":"global","banned":true}`, "If-None-Match: W/"+tag).problem(412, "it exists")
}

// cuttable is a store that can be made unreachable, and that keeps only revisions from first on.
type cuttable struct {
	rulestore.Store
	cut   atomic.Bool
	first atomic.Int64
}

func (c *cuttable) Load(ctx context.Context, number int64) (rulestore.Revision, error) {
	if number > 0 && number < c.first.Load() {
		return rulestore.Revision{}, rulestore.ErrNotKept
	}
	return c.Store.Load(ctx, number)
}

func (c *cuttable) Head(ctx context.Context) (rulestore.ID, error) {
	if c.cut.Load() {
		return rulestore.ID{}, stint.ErrUnavailable
	}
	return c.Store.Head(ctx)
}

func TestRevisionsThatAreNotKept(t *testing.T) {
	kept := &cuttable{Store: rulestore.NewMemory()}
	d := newAdminFixture(t, kept, nil)
	for i := range 60 {
		d.ask("PUT", "/api/v1/rules/a", fmt.Sprintf(`{"priority":%d,"scope":"global","unlimited":true}`, i+1)).is(map[bool]int{true: 201, false: 200}[i == 0])
	}
	var list adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?limit=60", "").is(200).into(&list) // more than are read at a time
	if len(list.Revisions) != 60 || list.Revisions[59].Revision != 1 || list.Next != 0 {
		t.Errorf("%d revisions, then %d", len(list.Revisions), list.Next)
	}
	kept.first.Store(3)
	d.ask("GET", "/api/v1/rule-revisions/2", "").problem(410, "revision 2, or the revision that it is compared with, is no longer kept")
	d.ask("GET", "/api/v1/rule-revisions/0", "").problem(404, "no revision 0")
	d.ask("POST", "/api/v1/rule-revisions/1/rollback", "").problem(410)
	d.ask("GET", "/api/v1/rule-revisions/3", "").problem(410, "that it is compared with")
	d.ask("GET", "/api/v1/rule-revisions/3?since=0", "").is(200)
	d.ask("POST", "/api/v1/rule-revisions/3/rollback", "").is(200)
	if got := d.ask("GET", "/api/v1/rules/a", "").body; !strings.Contains(got, `"priority":3`) {
		t.Errorf("rolled back to %s", got)
	}
}

func TestRulesWhileTheirStoreIsUnreachable(t *testing.T) {
	kept := &cuttable{Store: rulestore.NewMemory()}
	r, err := rulestore.NewManager(kept, rulestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &adminFixture{manager: r, running: run(t, func(c *server.Config) { c.AdminListen, c.Manager = "127.0.0.1:0", r })}
	d.ask("PUT", "/api/v1/rules/a", `{"scope":"global","unlimited":true}`).is(201)
	kept.cut.Store(true)
	d.ask("GET", "/api/v1/rules", "").problem(503, "could not be read")
	d.ask("GET", "/api/v1/rules/a", "").problem(503)
	d.ask("DELETE", "/api/v1/rules/a", "").problem(503, "nothing was changed")
	lines := d.auditLines()
	if last := lines[len(lines)-1]; !strings.Contains(last, "action=delete outcome=failed rule=a") {
		t.Errorf("the record is %s", last)
	}
	kept.cut.Store(false)
	d.ask("GET", "/api/v1/rules/a", "").is(200)
}

// One rule is put back as it was in a revision, while the others stay; one that was not there goes.
func TestRollbackOfOneRule(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	was := d.ask("GET", "/api/v1/rules/login", "").is(200)
	d.ask("PATCH", "/api/v1/rules/login", `{"priority":7}`).is(200)
	d.ask("PATCH", "/api/v1/rules/user", `{"priority":7}`).is(200)
	d.ask("PUT", "/api/v1/rules/new", `{"scope":"global","unlimited":true}`).is(201)
	d.ask("POST", "/api/v1/rule-revisions/1/rollback?rule=login&comment=back", "").is(200)
	if is := d.ask("GET", "/api/v1/rules/login", "").is(200); is.body != was.body {
		t.Errorf("the rule is %s, was %s", is.body, was.body)
	}
	if user := d.ask("GET", "/api/v1/rules/user", "").is(200); !strings.Contains(user.body, `"priority":7`) {
		t.Errorf("another rule is %s", user.body)
	}
	var list adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?limit=1", "").is(200).into(&list)
	if r := list.Revisions[0]; r.Action != "roll back login to revision 1" || r.Comment != "back" || r.Revision != 5 {
		t.Errorf("the revision is %+v", r)
	}
	d.ask("POST", "/api/v1/rule-revisions/1/rollback?rule=new", "").is(200)
	d.ask("GET", "/api/v1/rules/new", "").is(404)
	d.ask("DELETE", "/api/v1/rules/login", "").is(204)
	d.ask("POST", "/api/v1/rule-revisions/1/rollback?rule=login", "").is(200)
	d.ask("GET", "/api/v1/rules/login", "").is(200)
	d.ask("POST", "/api/v1/rule-revisions/1/rollback?rule=nobody", "").problem(404, "nobody", "revision 1")
	d.ask("POST", "/api/v1/rule-revisions/1/rollback?rule=", "").problem(400, "rule")
	d.ask("POST", "/api/v1/rule-revisions/99/rollback?rule=login", "").problem(404, "99")
}
