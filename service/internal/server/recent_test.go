package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// newActivityFixture is a fixture whose server records what it decides, with time that a test moves.
func newActivityFixture(t *testing.T, tokens ...server.AdminToken) (d *adminFixture, advance func(time.Duration)) {
	t.Helper()
	var late atomic.Int64
	recorder := activity.New(activity.Config{Now: func() time.Time { return time.Now().Add(time.Duration(late.Load())) }})
	d = newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) { c.Activity, c.Admin.Tokens = recorder, tokens })
	return d, func(by time.Duration) { late.Add(int64(by)) }
}

// Every decision of the service is seen on the admin listener: of checks, batches and rules.
func TestActivity(t *testing.T) {
	d, advance := newActivityFixture(t, server.AdminToken{Token: "the-token-of-a-reader"}, server.AdminToken{Token: adminToken, Role: server.RoleWrite})
	d.token = adminToken
	d.fill()
	for range 6 {
		d.post(apipath.Check, `{"key":"alice","policy":"pair"}`)
	}
	d.post(apipath.Check, `[{"key":"bob"},{"key":"bob"},{"key":"bob","algorithm":"FIXED_WINDOW"}]`)
	for range 3 {
		r := d.request("POST", d.server.Addr().String(), apipath.Evaluate, `{"method":"POST","path":"/login","ip":"192.0.2.7"}`)
		r.Header.Set("X-Request-Id", "req-7")
		d.send(r)
	}
	d.post(apipath.Evaluate, `{"path":"/banned","ip":"192.0.2.9"}`)
	for range 3 {
		d.post(apipath.Evaluate, `{"path":"/shadow"}`)
	}
	advance(2 * time.Second)
	d.token = "the-token-of-a-reader"
	var stats activity.Stats
	d.ask("GET", "/api/v1/stats", "").is(200).into(&stats)
	series := map[string][3]uint32{}
	for _, rule := range stats.Rules {
		s := rule.Seconds
		series[rule.Rule] = [3]uint32{total(s.Admitted), total(s.Denied), total(s.ShadowDenied)}
	}
	for rule, want := range map[string][3]uint32{
		"policy/pair": {3, 3}, "algorithm/TOKEN_BUCKET": {2}, "algorithm/FIXED_WINDOW": {1}, "login": {2, 1}, "banned": {0, 1}, "shadow": {1, 0, 2},
	} {
		if series[rule] != want {
			t.Errorf("%s: %v, want %v", rule, series[rule], want)
		}
	}
	var revisions adminapi.RuleRevisionList
	d.ask("GET", "/api/v1/rule-revisions", "").is(200).into(&revisions)
	newest := strconv.FormatInt(revisions.Revisions[0].Revision, 10)
	if len(stats.Changes) == 0 || !strings.Contains(stats.Changes[0].Detail, "login") || stats.Changes[0].State != newest {
		t.Errorf("the changes are %+v", stats.Changes)
	}
	if n := total(stats.Totals.Admitted); n != 3+3+2+3 {
		t.Errorf("%d are admitted", n)
	}
	var shadowed activity.Denials
	d.ask("GET", "/api/v1/denials?scope=process&shadow=true", "").is(200).into(&shadowed)
	if n := len(shadowed.Denials); n != 1 || shadowed.Denials[0].Count != 2 || shadowed.Denials[0].Rule != "shadow" || shadowed.Denials[0].Client != "*" ||
		shadowed.Denials[0].Reason != "limit" || shadowed.Denials[0].RequestID == "" {
		t.Errorf("the denials in shadow are %+v", shadowed.Denials)
	}
	var denials activity.Denials
	d.ask("GET", "/api/v1/denials?rule=login", "").is(200).into(&denials)
	if len(denials.Denials) != 1 || denials.Denials[0].Client != "192.0.2.7" || denials.Denials[0].RequestID != "req-7" || denials.Denials[0].Reason != "limit" {
		t.Errorf("the denials are %+v", denials)
	}
	denials = activity.Denials{}
	d.ask("GET", "/api/v1/denials?reason=banned", "").is(200).into(&denials)
	if len(denials.Denials) != 1 || denials.Denials[0].Client != "192.0.2.9" {
		t.Errorf("the denials are %+v", denials)
	}
	var timeline activity.Timeline
	d.ask("GET", "/api/v1/timeline?client=192.0.2.7", "").is(200).into(&timeline)
	if len(timeline.Decisions) != 3 || timeline.Decisions[0].Outcome != "denied" || timeline.Decisions[2].Path != "/login" {
		t.Errorf("the timeline is %+v", timeline)
	}
	d.ask("GET", "/api/v1/processes", "").is(200)
	d.ask("GET", "/api/v1/top?limit=x", "").problem(400, "1 to 100")
	d.ask("POST", "/api/v1/top", "{}").problem(405)
	d.token = ""
	for _, path := range []string{"stats", "top", "denials", "timeline", "processes", "events"} {
		if got := d.ask("GET", "/api/v1/"+path+"?client=x", ""); got.status != 401 {
			t.Errorf("%s without a token: %d", path, got.status)
		}
	}
}

func total(counts []uint32) (n uint32) {
	for _, c := range counts {
		n += c
	}
	return n
}

// A client is found by its API key, as GET /clients/{client} finds it, alone and beside another part.
func TestActivityOfAPIKey(t *testing.T) {
	d, advance := newActivityFixture(t, server.AdminToken{Token: adminToken, Role: server.RoleWrite})
	d.token = adminToken
	d.ask("PUT", "/api/v1/rules", `[{"id":"keys","missing":"skip","match":{"path":"/one"},"scope":"per_api_key",`+fiveAnHour+`},
		{"id":"both","missing":"skip","match":{"path":"/both"},"scope":["per_ip","per_api_key"],"limits":[{"algorithm":"fixed_window","limit":1,"window":"1h"}]}]`).is(200)
	for range 6 {
		d.post(apipath.Evaluate, `{"path":"/one","ip":"192.0.2.7","attributes":{"apiKey":"key|A"}}`)
	}
	for range 2 {
		d.post(apipath.Evaluate, `{"path":"/both","ip":"192.0.2.7","attributes":{"apiKey":"key-B"}}`)
	}
	advance(2 * time.Second)
	hashed := rules.HashedClient(`key\|A`)
	for client, rule := range map[string]string{`key\|A`: "keys", hashed: "keys", "192.0.2.7|key-B": "both"} {
		var denials activity.Denials
		d.ask("GET", "/api/v1/denials?client="+url.QueryEscape(client), "").is(200).into(&denials)
		if len(denials.Denials) != 1 || denials.Denials[0].Rule != rule {
			t.Errorf("the denials of %s are %+v", client, denials.Denials)
		}
		var timeline activity.Timeline
		d.ask("GET", "/api/v1/timeline?client="+url.QueryEscape(client), "").is(200).into(&timeline)
		if !timeline.Sampled || len(timeline.Decisions) == 0 {
			t.Errorf("the timeline of %s is %+v", client, timeline)
		}
	}
	// A key that is not known has none, and the text is found in no answer.
	if got := d.ask("GET", "/api/v1/denials?client=key-C", "").is(200); strings.Contains(got.body, "keys") {
		t.Errorf("the denials of another key are %s", got.body)
	}
	if got := d.ask("GET", "/api/v1/denials", "").is(200); strings.Contains(got.body, "key-B") {
		t.Errorf("the denials show an API key: %s", got.body)
	}
}

// Where nobody needs a token nobody is told names.
func TestActivityWithoutTokens(t *testing.T) {
	d, advance := newActivityFixture(t)
	d.post(apipath.Check, `{"key":"alice"}`)
	advance(2 * time.Second)
	if got := d.ask("GET", "/api/v1/top", "").is(200); strings.Contains(got.body, "alice") || !strings.Contains(got.body, `"client":"client-`) {
		t.Errorf("the top is %s", got.body)
	}
	d.ask("GET", "/api/v1/timeline?client=alice", "").problem(403, "token", "--admin-tokens-file")
	const warning = `level=WARN msg="anyone on this machine may change rules and reset clients, and is shown clients without their names`
	if log := d.log.String(); strings.Count(log, warning) != 1 || !strings.Contains(log, "admin.tokens_file") || !strings.Contains(log, "service=admin") {
		t.Errorf("the log does not say how names are seen: %s", log)
	}
	d, _ = newActivityFixture(t, server.AdminToken{Token: adminToken})
	if log := d.log.String(); strings.Contains(log, warning) {
		t.Errorf("with tokens the log warns: %s", log)
	}
}

// Without a recorder there are no such paths.
func TestNoActivity(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	d.ask("GET", "/api/v1/stats", "").problem(404)
}

// A check allocates no more because it is recorded, or somebody is told of it.
func TestObservedCheckAllocates(t *testing.T) {
	allocations := func(change func(*server.Config)) float64 {
		f := newFixture(t, change)
		w := &discard{header: http.Header{}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, apipath.Check+"?key=user:123&algorithm=FIXED_WINDOW", nil)
		return testing.AllocsPerRun(5000, func() { serve(f, w, r) })
	}
	spare := 0.0
	if raceEnabled {
		spare = 1 // the race detector makes pools forget
	}
	without, denied := allocations(nil), 0
	for name, change := range map[string]func(*server.Config){
		"a recorder": func(c *server.Config) { c.Activity = activity.New(activity.Config{}) },
		"an observer": func(c *server.Config) {
			c.Observers = []stint.Observer{func(_ context.Context, e *stint.Event) {
				if !e.Decision.Allowed {
					denied++
				}
			}}
		},
	} {
		if with := allocations(change); with > without+spare {
			t.Errorf("%v allocations with %s, %v without", with, name, without)
		}
	}
	if denied == 0 {
		t.Error("the observer is told of no denial")
	}
}
