package server_test

import (
	"bytes"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/alerts"
	"github.com/stint-go/stint/service/internal/decisionlog"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// shared are an organisation's limit of 10, of which team search is sure of 2, and batch jobs leave 2 of the 8 that it may
// borrow to others.
func shared() []rules.Rule {
	return []rules.Rule{
		{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(10, stint.PerHour(10))}},
		{
			ID: "team", Within: "org", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip,
			Guaranteed: map[string]rules.Floor{"search": {Capacity: 2, Refill: stint.Per(1, time.Hour)}}, Borrow: rules.Borrow{Any: true},
			Classes: rules.Classes{By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: map[string]rules.Percent{"batch": 25, "critical": 0}},
		},
	}
}

func withShared(t *testing.T) func(*server.Config) {
	return func(c *server.Config) { c.Rules = compile(t, shared()) }
}

// An evaluation and a reserve say of which class a request is, by what it was charged, what that has left, and what all
// ways have.
func TestEvaluateSaysVia(t *testing.T) {
	f := newFixture(t, withShared(t))
	const body = `{"path":"/","attributes":{"team":"search"}}`
	for i, want := range []struct {
		via                         string
		limit, remaining, available int64
	}{
		{"guaranteed", 2, 1, 5},
		{"guaranteed", 2, 0, 4},
		{"borrowed", 10, 3, 3},
		{"borrowed", 10, 2, 2},
		{"borrowed", 10, 1, 1},
		{"borrowed", 10, 0, 0},
	} {
		e := f.post(evaluate, body).evaluated(200)
		if e.Via != want.via || e.Class != "batch" || e.Rule != "team" || e.Key != "search" {
			t.Errorf("request %d: %+v, want %s", i, e, want.via)
		}
		if e.Limit != want.limit || e.Remaining != want.remaining || e.Available == nil || *e.Available != want.available {
			t.Errorf("request %d: %+v, want %+v", i, e, want)
		}
	}
	if e := f.post(evaluate, body).evaluated(429); e.Via != "" || e.Available == nil || *e.Available != 0 || e.Class != "batch" || e.Key != "search" {
		t.Errorf("denied: %+v", e)
	}
	reserve := `{"path":"/","attributes":{"team":"search","class":"critical"},"id":"h"}`
	got := f.post(apipath.Reserve, reserve)
	if got.status != 200 || !strings.Contains(got.body, `"class":"critical","via":"borrowed","available":1,`) || !strings.Contains(got.body, `"key":"search"`) {
		t.Errorf("reserved: %d %s", got.status, got.body)
	}
}

// A settlement says by which ways rules charged the request; it is refused where that is not said, or is none.
func TestSettleSaysVia(t *testing.T) {
	f := newFixture(t, withShared(t))
	const body = `{"path":"/","attributes":{"team":"search"},"permits":-1`
	f.post(evaluate, `{"path":"/","attributes":{"team":"search"}}`).evaluated(200)
	for more, want := range map[string]string{
		``:                                      "via is missing; allowed: by what rule team charged the request, as its decision said: guaranteed or borrowed",
		`,"via":"otherwise"`:                    "via is \"otherwise\"; allowed: by what rule team",
		`,"via":""`:                             "via is \"\"; allowed: by what the rule charged",
		`,"via":1`:                              "via is a number; allowed: a string",
		`,"via":"borrowed","via":"borrowed"`:    "via is repeated",
		`,"vias":["borrowed"]`:                  "vias is an array; allowed: an object",
		`,"vias":{"team":""}`:                   "vias.team is \"\"",
		`,"vias":{"":"borrowed"}`:               "allowed: the IDs of rules",
		`,"vias":{"team":"limits"}`:             "vias.team is \"limits\"; allowed: by what rule team",
		`,"vias":{"team":"a","team":"b"}`:       "vias.team is repeated",
		`,"via":"guaranteed","key":"k"`:         "key",
		`,"via":"guaranteed","algorithm":"any"`: "algorithm",
	} {
		f.post(apipath.Settle, body+more+`}`).problem(400, want)
	}
	f.post(apipath.Settle, `{"permits":1,"key":"k","via":"guaranteed"}`).problem(400, "via")
	f.post(apipath.Settle, `{"permits":1,"via":"guaranteed"}`).problem(400, "via is \"guaranteed\"; allowed: none, since no rule")
	f.post(evaluate, `{"path":"/","via":"guaranteed"}`).problem(400, "via")
	if got := f.post(apipath.Settle, body+`,"via":"guaranteed"}`); got.status != 200 || !strings.Contains(got.body, `"remaining":2`) {
		t.Errorf("settled: %d %s", got.status, got.body)
	}
}

// A request that names more than max_cost is 400, from a proxy too, and takes nothing.
func TestMaxCost(t *testing.T) {
	list := shared()
	list[1].Scope, list[1].Missing, list[1].Guaranteed = []string{rules.Global}, list[0].Missing, map[string]rules.Floor{"*": {Capacity: 2, Refill: stint.Per(1, time.Hour)}}
	list[1].Cost, list[1].MaxCost = rules.Cost{Header: "X-Cost", Permits: 1}, 5
	f := newFixture(t, func(c *server.Config) {
		behindProxies(c)
		c.API.Open, c.Rules = true, compile(t, list)
	})
	const want = `rule "team": X-Cost is 6; allowed: a cost of 1 to 5, the rule's max_cost`
	f.post(evaluate, `{"path":"/","headers":{"x-cost":"6"}}`).problem(400, want)
	f.post(apipath.Reserve, `{"path":"/","headers":{"x-cost":"6"},"id":"h"}`).problem(400, want)
	f.ask("", with(traefik("GET", "/"), "X-Cost", "6")).problem(400, want)
	if n := f.store.calls.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	if e := f.post(evaluate, `{"path":"/","headers":{"x-cost":"5"}}`).evaluated(200); e.Via != "borrowed" {
		t.Errorf("%+v", e)
	}
}

// The activity of a client says of which class its requests were, and by what they were charged. All are in that of the
// team, also those that the organisation's limit decided.
func TestActivitySaysClassAndVia(t *testing.T) {
	text, err := rulestore.Encode(shared())
	if err != nil {
		t.Fatal(err)
	}
	d, advance := newActivityFixture(t, adminTokens()...)
	d.token = adminToken
	d.ask("PUT", "/api/v1/rules", string(text)).is(200)
	for range 7 { // 2 guaranteed, 4 borrowed, as batch jobs leave 4 of 10
		d.postPublic(evaluate, `{"path":"/","attributes":{"team":"search"}}`)
	}
	said := map[string]int{}
	for _, client := range []string{"search", "*"} {
		var timeline activity.Timeline
		d.ask("GET", activity.PathTimeline+"?client="+client, "").is(200).into(&timeline)
		for _, decision := range timeline.Decisions {
			said[strings.TrimSpace(client+" "+decision.Outcome+" "+decision.Class+" "+decision.Via)]++
		}
	}
	want := map[string]int{"search admitted batch guaranteed": 2, "search admitted batch borrowed": 4, "search denied batch": 1}
	if !maps.Equal(said, want) {
		t.Errorf("%v, want %v", said, want)
	}
	advance(2 * time.Second)
	var denials activity.Denials
	d.ask("GET", activity.PathDenials+"?rule=team", "").is(200).into(&denials)
	if len(denials.Denials) != 1 || denials.Denials[0].Class != "batch" || denials.Denials[0].Client != "search" {
		t.Errorf("denials: %+v", denials.Denials)
	}
	var top activity.Top
	d.ask("GET", activity.PathTop, "").is(200).into(&top)
	if len(top.Clients) != 1 || top.Clients[0].Client != "search" || len(top.Denied) != 1 || top.Denied[0].Client != "search" {
		t.Errorf("top: %+v", top)
	}
}

// Each team is alerted on and logged by itself, whose requests the organisation's limit denies.
func TestDenialsNameTeams(t *testing.T) {
	sender, err := alerts.New(alerts.Config{URL: "http://127.0.0.1/", Denials: true})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	log := decisionlog.New(decisionlog.Config{Logger: slog.New(slog.NewTextHandler(&text, nil)), Denials: true, ShowClients: true})
	f := newFixture(t, func(c *server.Config) {
		c.Rules, c.Observers = compile(t, shared()), []stint.Observer{sender.Observe, log.Observe}
	})
	for i := range 8 { // batch jobs without a floor have 6 of 10
		f.post(evaluate, `{"path":"/","attributes":{"team":"`+[]string{"ads", "mail"}[i%2]+`"}}`)
	}
	if s := sender.Stats(); s.Queued != 2 || s.Repeated != 0 {
		t.Errorf("alerts: %+v, want one for each team", s)
	}
	for _, want := range []string{"client=ads reason=limit", "client=mail reason=limit"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no line has %s:\n%s", want, &text)
		}
	}
}

// Rules that leave little to borrow are said to when they come into force, once.
func TestWarnsOfShortages(t *testing.T) {
	list := shared()
	list[1].Guaranteed = map[string]rules.Floor{"search": {Capacity: 10, Refill: stint.Per(1, time.Hour)}}
	list[0].Limits[0].Capacity = 11
	config, _, log := testConfig()
	config.Rules = compile(t, list)
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	const want = `msg="a rule leaves little to borrow" rule=team detail="1 of 11 permits are in no floor, less than a tenth: those who borrow have small bursts"`
	if n := strings.Count(log.String(), want); n != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	list[0].Priority = 3
	s.SwapRules(compile(t, list))
	if n := strings.Count(log.String(), want); n != 1 {
		t.Errorf("%d lines after rules with the same shortage", n)
	}
}

// Rules that were accepted once come into force with a path that is written as for another router, and the log says so,
// once.
func TestWarnsOfMistakes(t *testing.T) {
	list := []rules.Rule{{ID: "user", Scope: []string{rules.Global}, Banned: true, Match: rules.Match{Paths: []string{"/users/:id"}}}}
	config, _, log := testConfig()
	config.Rules = compile(t, list)
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	const want = `level=WARN msg="a rule has a path that is written as for another router" rule=user detail="match.path is \"/users/:id\"; allowed: /users/{id}, or`
	if n := strings.Count(log.String(), want); n != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	list[0].Priority = 3
	s.SwapRules(compile(t, list))
	if n := strings.Count(log.String(), want); n != 1 {
		t.Errorf("%d lines after rules with the same path", n)
	}
}

// Rules whose floors several clients of the outer rule have in common are said to when they come into force, once.
func TestWarnsOfMixedFloors(t *testing.T) {
	list := shared()
	list[0].Scope = []string{rules.PerIP}
	config, _, log := testConfig()
	config.Rules = compile(t, list)
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	list[0].Priority = 3
	s.SwapRules(compile(t, list))
	const line = `msg="a rule has floors that several clients share" rule=team detail="all clients of rule org have its floors in common`
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("%d lines, want 1:\n%s", n, log)
	}
}

// An edit by which only reserves are decided for clients is logged once, and names no client, which may be an API key. A rule that is
// new and has a concurrency limit is meant so.
func TestWarnsOfReservesAlone(t *testing.T) {
	places, bucket := []stint.Limit{stint.Concurrency(5)}, []stint.Limit{stint.TokenBucket(10, stint.PerSecond(1))}
	api := rules.Rule{ID: "api", Scope: []string{rules.PerAPIKey}, Missing: rules.MissingDeny, Limits: bucket}
	streams := rules.Rule{ID: "streams", Scope: []string{rules.Global}, Limits: places}
	config, _, log := testConfig()
	config.Rules = compile(t, []rules.Rule{api, streams})
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	override := api
	override.Overrides = []rules.Override{{Key: "a-secret", Limits: bucket}, {Key: "b-secret", Limits: places}, {Key: "c-secret", Limits: places}}
	whole := api
	whole.Limits = places
	for _, step := range []struct {
		rule rules.Rule
		want string // of the lines that are new
	}{
		{api, ""},
		{override, `rule=api detail="it has a concurrency limit in 2 overrides, overrides[1] the first: only reserves are decided by them, evaluate and forward-auth admit their clients without this rule"`},
		{override, ""},
		{whole, `rule=api detail="it has a concurrency limit: only reserves are decided by it, evaluate and forward-auth leave it out"`},
	} {
		before := len(log.String())
		s.SwapRules(compile(t, []rules.Rule{step.rule, streams}))
		got := log.String()[before:]
		if n := strings.Count(got, "left out but for reserves"); n > 1 || (n == 1) != (step.want != "") || !strings.Contains(got, step.want) {
			t.Errorf("%d lines, want %s:\n%s", n, step.want, got)
		}
	}
	if text := log.String(); strings.Contains(text, "secret") || strings.Contains(text, "rule=streams") {
		t.Errorf("it names a client, or the rule of places:\n%s", text)
	}
}

// Rules whose requests are errors in a cluster are said to when they come into force, once, if the store is one.
func TestWarnsOfPartitions(t *testing.T) {
	list := shared()
	for clustered, want := range map[bool]int{false: 0, true: 1} {
		config, _, log := testConfig()
		if config.Rules = compile(t, list); clustered {
			config.Settings.Store.URL = "redis-cluster://h"
		}
		s, err := server.New(config)
		if err != nil {
			t.Fatal(err)
		}
		again := shared()
		again[0].Priority = 3
		s.SwapRules(compile(t, again))
		const line = `msg="a rule can't be decided on a cluster" rule=team detail="its clients and those of rule org are in different partitions`
		if n := strings.Count(log.String(), line); n != want {
			t.Errorf("%d lines, want %d:\n%s", n, want, log)
		}
	}
}

// Nor can a cluster decide by logs of two rules that a request meets.
func TestWarnsOfRulesApart(t *testing.T) {
	log := []stint.Limit{stint.SlidingWindowLog(10, time.Minute)}
	list := []rules.Rule{{ID: "all", Scope: []string{rules.Global}, Limits: log}, {ID: "each", Scope: []string{rules.PerIP}, Limits: log}}
	config, _, written := testConfig()
	config.Rules, config.Settings.Store.URL = compile(t, list), "redis-cluster://h"
	if _, err := server.New(config); err != nil {
		t.Fatal(err)
	}
	const line = `msg="a rule can't be decided on a cluster" rule=each detail="requests may meet it and rule all`
	if n := strings.Count(written.String(), line); n != 1 {
		t.Errorf("%d lines:\n%s", n, written)
	}
}

// An explanation over HTTP has the ways of a rule, whose limits have their number, and says which rule is decided by another.
func TestExplainSaysWays(t *testing.T) {
	text, err := rulestore.Encode(shared())
	if err != nil {
		t.Fatal(err)
	}
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	d.ask("PUT", "/api/v1/rules", string(text)).is(200)
	const body = `{"path":"/","attributes":{"team":"search"}}`
	for range 2 {
		d.postPublic(evaluate, body).evaluated(200)
	}
	x := d.ask("POST", "/api/v1/rules/explain", body).explained()
	if org := x.Rules[0]; org.Outcome != "included" || org.By != "team" || !org.Allowed {
		t.Errorf("%+v", org)
	}
	team := x.Rules[1]
	want := []adminapi.ExplainedWay{
		{Via: "guaranteed", Why: "guaranteed of rule team has 0 of 2 permits left"}, {Via: "borrowed", Allowed: true},
	}
	if team.Key != "search" || team.Class != "batch" || !slices.Equal(team.Ways, want) || len(team.Limits) != 3 {
		t.Fatalf("%+v", team)
	}
	if team.Available == nil || *team.Available != 4 {
		t.Errorf("%v are available, want 4", team.Available)
	}
	for i, want := range []adminapi.ExplainedLimit{
		{Way: 1, Name: "guaranteed", Via: "guaranteed"},
		{Way: 1, Rule: "org", Key: "*", Via: "guaranteed"},
		{Way: 2, Rule: "org", Key: "*", Via: "borrowed", Keep: 4},
	} {
		l := team.Limits[i]
		if got := (adminapi.ExplainedLimit{Way: l.Way, Name: l.Name, Via: l.Via, Rule: l.Rule, Key: l.Key, Keep: l.Keep}); got != want {
			t.Errorf("limit %d is %+v, want %+v", i, got, want)
		}
	}
	x = d.ask("POST", "/api/v1/rules/explain", `{"path":"/","attributes":{"team":"ads"}}`).explained()
	if ads := x.Rules[1]; ads.Key != "ads" || len(ads.Limits) != 1 || ads.Limits[0].Key != "*" {
		t.Errorf("of a team without a floor: %+v", ads)
	}
}

// A rule that is within another one is made and changed by itself, and refused if the other is missing.
func TestEditWithin(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	text := func(r rules.Rule) string {
		t.Helper()
		written, err := rulefile.JSON(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(written)
	}
	list := shared()
	d.ask("PUT", "/api/v1/rules/team", text(list[1])).problem(400, `within is "org"; allowed: the ID of another rule of the set`)
	d.ask("PUT", "/api/v1/rules/org", text(list[0])).is(201)
	d.ask("PUT", "/api/v1/rules/team", text(list[1])).is(201)
	d.ask("PATCH", "/api/v1/rules/team", `{"guaranteed":{"search":{"capacity":11}}}`).problem(400, "allowed: at most 10, what rule org has")
	d.ask("PATCH", "/api/v1/rules/team", `{"guaranteed":{"search":{"capacity":3}}}`).is(200)
	d.ask("DELETE", "/api/v1/rules/org", "").problem(400, "within")
}

// A rule is checked as a part of those in force, with what it does to others, and warnings.
func TestValidateAPart(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	const org, team = `{"id":"org","scope":"global","limits":[{"algorithm":"token_bucket","capacity":CAPACITY,"refill":"10/1h"}]}`,
		`{"id":"team","within":"org","scope":"custom:team","missing":"skip","borrow":true,"guaranteed":{"search":{"capacity":10,"refill":"1/1h"}}}`
	capacity := func(n string) string { return strings.ReplaceAll(org, "CAPACITY", n) }
	d.ask("PUT", "/api/v1/rules", "["+capacity("100")+"]").is(200)
	d.ask("POST", "/api/v1/rules/validate?partial=yes", "[]").problem(400, `partial is "yes"; allowed: true, or none`)
	check := func(query, document, valid, says string) {
		t.Helper()
		got := d.ask("POST", "/api/v1/rules/validate"+query, "["+document+"]").is(200).body
		if !strings.Contains(got, `"valid":`+valid) || !strings.Contains(got, says) {
			t.Errorf("validate%s of %s is %s", query, document, got)
		}
	}
	check("", team, "false", `within is \"org\"; allowed: the ID of another rule`)
	check("?partial=true", team, "true", `"rules":1,"enabled":1,"added":["team"],"removed":[],"changed":[]`)
	d.ask("PUT", "/api/v1/rules/team", team).is(201)
	check("?partial=true", capacity("9"), "false", `{"line":0,"column":0,"rule":"team","detail":"rule \"team\": guaranteed is capacities of 10 together`)
	check("?partial=true", capacity("9")+","+capacity("9"), "false", `rule \"org\" is given twice`)
	check("?partial=true", capacity("11"), "true", `"warnings":["rule team: 1 of 11 permits are in no floor`)
	d.ask("PUT", "/api/v1/rules/org", capacity("11")).is(200)
	check("?partial=true", capacity("11"), "true", `"rules":1,"enabled":1,"added":[]`) // what is said of others was said before
	check("", capacity("11")+","+team, "true", `"warnings":["rule team: 1 of 11 permits`)
}

// Readers see API keys that have a floor or a weight by their hash, and no edit shows them.
func TestFloorsShowNoAPIKeys(t *testing.T) {
	const reader, secret = "the-token-of-a-reader", "the-key-of-partner-x"
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Admin.Tokens = []server.AdminToken{{Token: reader}, {Token: adminToken, Role: server.RoleWrite}}
	})
	d.token = adminToken
	const org = `{"id":"org","scope":"global","limits":[{"algorithm":"token_bucket","capacity":10,"refill":"10/1h"}]}`
	for _, floors := range []string{`"guaranteed":{"` + secret + `":{"capacity":2,"refill":"1/1h"}}`, `"weights":{"` + secret + `":1}`} {
		d.token = adminToken
		team := `{"id":"team","scope":"per_api_key","missing":"skip","within":"org",` + floors + `}`
		d.ask("PUT", "/api/v1/rules", "["+org+","+team+"]").is(200)
		got := d.ask("PATCH", "/api/v1/rules/team", `{"scope":"per_user"}`)
		if got.problem(400, "scope is ", "names the API key"); strings.Contains(got.body, secret) {
			t.Errorf("the problem shows the key: %s", got.body)
		}
		if shown := d.ask("GET", "/api/v1/rules/team", "").is(200); !strings.Contains(shown.body, secret) {
			t.Errorf("whoever may write is shown %s", shown.body)
		}
		d.token = reader
		for _, path := range []string{"/api/v1/rules/team", "/api/v1/rules", "/api/v1/rule-revisions/1"} {
			if shown := d.ask("GET", path, "").is(200); strings.Contains(shown.body, secret) || !strings.Contains(shown.body, "sha256:") {
				t.Errorf("%s shows %s", path, shown.body)
			}
		}
	}
}

// Readers see the names of floors that leave the API key out by their hash, too, so that no edit turns a key into a name that is shown.
func TestFloorsBehindAPIKeys(t *testing.T) {
	const reader, secret = "the-token-of-a-reader", "the-key-of-partner-x"
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Admin.Tokens = []server.AdminToken{{Token: reader}, {Token: adminToken, Role: server.RoleWrite}}
	})
	const key, model = `{"id":"key","scope":"per_api_key","missing":"skip","limits":[{"algorithm":"token_bucket","capacity":10,"refill":"10/1h"}]}`,
		`{"id":"model","scope":"per_api_key","missing":"skip","within":"key","guaranteed":{"` + secret + `":{"capacity":2,"refill":"1/1h"}}}`
	d.token = adminToken
	d.ask("PUT", "/api/v1/rules", "["+key+","+model+"]").is(200)
	d.ask("PATCH", "/api/v1/rules/model", `{"scope":["per_api_key","custom:model"]}`).is(200)
	got := d.ask("PATCH", "/api/v1/rules/model", `{"scope":["per_user"]}`)
	if got.problem(400, "scope is "); strings.Contains(got.body, secret) {
		t.Errorf("the problem is %s", got.body)
	}
	d.token = reader
	if shown := d.ask("GET", "/api/v1/rules/model", "").is(200); strings.Contains(shown.body, secret) || !strings.Contains(shown.body, "sha256:") {
		t.Errorf("a reader is shown %s", shown.body)
	}
}
