package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

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
	r := must.Get(rulestore.NewManager(kept, rulestore.Options{}))(t)
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
