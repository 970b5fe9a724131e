package server_test

import (
	"bytes"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
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

// The activity of a client says of which class its requests were, and by what they were charged. All are in that of the
// team, also those that the organisation's limit decided.
func TestActivitySaysClassAndVia(t *testing.T) {
	text := must.Get(rulestore.Encode(shared()))(t)
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
	sender := must.Get(alerts.New(alerts.Config{URL: "http://127.0.0.1/", Denials: true}))(t)
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
	s := must.Get(server.New(config))(t)
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
	s := must.Get(server.New(config))(t)
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
	s := must.Get(server.New(config))(t)
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
	s := must.Get(server.New(config))(t)
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
		s := must.Get(server.New(config))(t)
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
	must.Get(server.New(config))(t)
	const line = `msg="a rule can't be decided on a cluster" rule=each detail="requests may meet it and rule all`
	if n := strings.Count(written.String(), line); n != 1 {
		t.Errorf("%d lines:\n%s", n, written)
	}
}
