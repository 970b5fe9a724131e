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
		d.post(evaluate, `{"path":"/","attributes":{"team":"search"}}`)
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
	says(t, text.String(), "client=ads reason=limit", "client=mail reason=limit")
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
