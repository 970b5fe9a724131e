package server_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// statistics asks for them, and checks what they count.
func (d *adminFixture) statistics(want adminapi.RuleStatistics) *adminapi.RuleChangeTime {
	d.t.Helper()
	var got adminapi.RuleStatistics
	d.ask("GET", "/api/v1/rule-statistics", "").is(200).into(&got)
	change := got.LastChange
	if got.LastChange = nil; got != want {
		d.t.Errorf("the statistics are %+v, want %+v", got, want)
	}
	return change
}

// Rules of a store are counted as they are now; the last change is the newest revision.
func TestRuleStatistics(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Admin.Tokens = []server.AdminToken{{Token: adminToken, Role: server.RoleWrite, Name: "ann"}}
	})
	d.token = adminToken
	if change := d.statistics(adminapi.RuleStatistics{}); change != nil {
		t.Errorf("before the first revision the last change is %+v", change)
	}
	d.ask("PUT", "/api/v1/rules", `[
		{"id":"a","scope":"global","unlimited":true,"set":"one"},
		{"id":"b","scope":"global","unlimited":true,"set":"one","enabled":false},
		{"id":"c","scope":"global","banned":true,"set":"two","on_exceed":"shadow"},
		{"id":"d","scope":"global","banned":true,"on_exceed":"shadow","enabled":false},
		{"id":"e","scope":"global","banned":true}
	]`).is(200)
	counts := adminapi.RuleStatistics{Revision: 1, Total: 5, Enabled: 3, Disabled: 2, Shadow: 1, Sets: 2}
	d.statistics(counts)
	d.ask("PATCH", "/api/v1/rules/b", `{"enabled":true}`).is(200)
	counts.Revision, counts.Enabled, counts.Disabled = 2, 4, 1
	change := d.statistics(counts)
	var revisions adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions?limit=1", "").is(200).into(&revisions)
	if change == nil || change.By != "ann" || !change.At.Equal(revisions.Revisions[0].At) {
		t.Errorf("the last change is %+v, want that of %+v", change, revisions.Revisions[0])
	}
	d.ask("GET", "/api/v1/rule-statistics?set=one", "").problem(400, "set")
}

// Rules that are not kept in a store have the time when they were loaded, and no author.
func TestRuleStatisticsOfFiles(t *testing.T) {
	before := time.Now()
	d := &adminFixture{running: run(t, func(c *server.Config) { c.AdminListen = "127.0.0.1:0" })}
	counts := adminapi.RuleStatistics{Total: len(ruleList()), Enabled: len(ruleList()), Shadow: 1}
	first := d.statistics(counts)
	if first == nil || first.At.Before(before) || first.By != "" {
		t.Fatalf("the last change is %+v, want one after %v", first, before)
	}
	d.server.SwapRules(compile(t, ruleList()))
	again := d.statistics(counts)
	if again == nil || !again.At.After(first.At) {
		t.Errorf("the last change is %+v, after it was %+v", again, first)
	}
}
