package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/server"
)

const evaluate = apipath.Evaluate

// ruleList are the rules of the tests, each for paths of its own but the first.
func ruleList() []rules.Rule {
	perMinute := func(n int64) []stint.Limit { return []stint.Limit{stint.FixedWindow(n, time.Minute)} }
	at := func(id, path string, limits ...stint.Limit) rules.Rule {
		return rules.Rule{ID: id, Match: rules.Match{Paths: []string{path}}, Scope: []string{rules.Global}, Limits: limits}
	}
	login := rules.Rule{
		ID: "login", Priority: 10, Match: rules.Match{Paths: []string{"/login"}, Methods: []string{"POST"}},
		Scope: []string{rules.PerIP}, Limits: perMinute(2),
	}
	site := rules.Rule{ID: "site", Match: rules.Match{Paths: []string{"/login"}}, Scope: []string{rules.Global}, Limits: perMinute(5)}
	user := at("user", "/user", stint.TokenBucket(3, stint.PerSecond(1)))
	user.Scope, user.Missing = []string{rules.PerUser}, rules.MissingDeny
	user.Overrides = []rules.Override{
		{Key: "vip", Limits: perMinute(50)}, {Key: "root", Unlimited: true}, {Key: "mallory", Banned: true},
	}
	key := at("key", "/key", perMinute(4)...)
	key.Scope, key.Missing = []string{rules.PerAPIKey}, rules.MissingIP
	banned := at("banned", "/banned")
	banned.Banned = true
	free := at("free", "/free")
	free.Unlimited = true
	shadow := at("shadow", "/shadow", perMinute(1)...)
	shadow.OnExceed = rules.Shadow
	cost := at("cost", "/cost/**", perMinute(10)...)
	cost.Cost = rules.Cost{Header: "X-Cost"}
	tokens := at("tokens", "/tokens", perMinute(10)...)
	tokens.Cost = rules.Cost{Attribute: "tokens"}
	wait := at("wait", "/wait", stint.TokenBucket(1, stint.Every(100*time.Millisecond)))
	wait.OnExceed, wait.MaxWait = rules.Wait, 10*time.Second
	host := at("host", "/host", perMinute(10)...)
	host.Match.Hosts, host.Match.Headers = []string{"*.example.com"}, map[string]string{"x-plan": "free"}
	host.Scope, host.Missing = []string{rules.Custom("team"), rules.PerIP}, rules.MissingSkip
	return []rules.Rule{login, site, user, key, banned, free, shadow, cost, tokens, wait, host}
}

func compile(t testing.TB, list []rules.Rule) *rules.Set {
	t.Helper()
	return must.Get(rules.Compile(list, rules.Options{}))(t)
}

// evaluated decodes the answer to an evaluation.
func (r reply) evaluated(status int) api.EvaluateResponse {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%d %s, want status %d", r.status, r.body, status)
	}
	var e api.EvaluateResponse
	r.into(&e)
	return e
}

func TestSwapRules(t *testing.T) {
	config, store, log := testConfig()
	config.Rules = compile(t, ruleList())
	s := must.Get(server.New(config))(t)
	f := &fixture{t: t, store: store, log: log, Handler: s.Handler(), router: description(t)}
	f.post(evaluate, `{"path":"/tokens"}`).evaluated(200)
	f.post(evaluate, `{"path":"/cost/1"}`).evaluated(200)
	list := slices.DeleteFunc(ruleList(), func(r rules.Rule) bool { return r.ID != "tokens" && r.ID != "free" })
	list[0].Priority = 3
	set, err := rules.Compile(append(list, rules.Rule{ID: "new", Scope: []string{rules.Global}, Banned: true, Match: rules.Match{Paths: []string{"/new"}}}),
		rules.Options{Previous: config.Rules})
	if err != nil {
		t.Fatal(err)
	}
	changes := s.SwapRules(set)
	if !slices.Equal(changes.Added, []string{"new"}) || !slices.Equal(changes.Changed, []string{list[0].ID}) || len(changes.Removed) != len(ruleList())-2 {
		t.Errorf("changes %+v", changes)
	}
	f.post(evaluate, `{"path":"/new"}`).evaluated(429)
	if e := f.post(evaluate, `{"path":"/tokens"}`).evaluated(200); e.Remaining != 8 {
		t.Errorf("the state of a rule that stays: %+v", e)
	}
	text := f.get(apipath.Metrics).body
	for line, want := range map[string]bool{
		`rate_limiter_rules 3`: true,
		`rate_limiter_rule_decisions_total{outcome="allowed",rule="tokens",set=""} 2`: true,
		`rate_limiter_rule_decisions_total{outcome="banned",rule="new",set=""} 1`:     true,
		`rule="cost"`: false,
	} {
		if strings.Contains(text, line) != want {
			t.Errorf("the metrics have %q: %t, want %t", line, !want, want)
		}
	}
	if changes := s.SwapRules(nil); len(changes.Removed) != 3 || len(changes.Added)+len(changes.Changed) != 0 {
		t.Errorf("no rules: %+v", changes)
	}
	if e := f.post(evaluate, `{"path":"/new"}`).evaluated(200); len(e.Matched) != 0 {
		t.Errorf("after all rules went: %+v", e)
	}
}

// A rule that waits holds the call, also for longer than a body may take, and not for longer
// than the server's answer may.
func TestEvaluateWaits(t *testing.T) {
	r := run(t, func(c *server.Config) { c.HTTP.BodyTimeout = 10 * time.Millisecond })
	var held bool
	r.store.enter = func(context.Context) {
		if r.store.calls.Load() == 3 { // of the second request
			held = true
			r.store.advance(100 * time.Millisecond)
		}
	}
	post := func(path string) reply {
		request := r.request(http.MethodPost, r.server.Addr().String(), evaluate)
		body := `{"path":"` + path + `"}`
		request.Body, request.ContentLength = httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body)).Body, int64(len(body))
		return r.send(request)
	}
	for i := range 2 {
		if e := post("/wait").evaluated(200); e.Rule != "wait" || e.RetryAfterSeconds != 0 {
			t.Errorf("request %d: %+v", i, e)
		}
	}
	if !held {
		t.Error("the second request was not held")
	}
}

func TestEvaluateDoesNotWaitForever(t *testing.T) {
	f := newFixture(t, func(c *server.Config) { c.HTTP.WriteTimeout = 50 * time.Millisecond })
	f.post(evaluate, `{"path":"/wait"}`).evaluated(200)
	if e := f.post(evaluate, `{"path":"/wait"}`).evaluated(429); e.RetryAfterMicros != 100_000 {
		t.Errorf("%+v", e)
	}
}

// A rule that may hold requests for longer than the service can says so when it comes into
// force, and with what it would not be cut short.
func TestWaitsThatAreCutShort(t *testing.T) {
	config, _, log := testConfig()
	waiting := func(id string, maxWait time.Duration) rules.Rule {
		return rules.Rule{
			ID: id, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)},
			OnExceed: rules.Wait, MaxWait: maxWait,
		}
	}
	long := waiting("long", 25*time.Second)
	config.Rules = compile(t, []rules.Rule{long, waiting("short", 20*time.Second)})
	s := must.Get(server.New(config))(t)
	expect := func(ids ...string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(log.String()) {
			if _, rest, found := strings.Cut(line, "its max_wait"); found {
				_, id, _ := strings.Cut(rest, " rule=")
				id, _, _ = strings.Cut(id, " ")
				got = append(got, id)
			}
		}
		if !slices.Equal(got, ids) {
			t.Errorf("warned of %v, want %v:\n%s", got, ids, log)
		}
	}
	expect("long")
	if want := "rule=long max_wait=25s bound=20s http.write_timeout=30s needed=35s\n"; !strings.Contains(log.String(), want) {
		t.Errorf("the log is %q, want in it %q", log, want)
	}
	long.Priority = 1 // another wait does not come into force
	off := waiting("off", time.Minute)
	off.Disabled = true
	s.SwapRules(compile(t, []rules.Rule{long, off}))
	expect("long")
	off.Disabled, long.MaxWait = false, 5*time.Minute
	s.SwapRules(compile(t, []rules.Rule{long, off}))
	expect("long", "long", "off")

	config.HTTP.WriteTimeout = 35 * time.Second
	config.Rules = compile(t, []rules.Rule{waiting("needed", 25*time.Second)})
	must.Get(server.New(config))(t)
	expect("long", "long", "off")
}

func TestEvaluateAllocates(t *testing.T) {
	f := newFixture(t, nil)
	w := &discard{header: http.Header{}}
	text := `{"method":"POST","path":"/login","host":"h","ip":"198.51.100.1","headers":{"X-A":"b"},"attributes":{"userId":"u"}}`
	n := testing.AllocsPerRun(200, func() { serve(f, w, newRequest(http.MethodPost, evaluate, text)) })
	request := testing.AllocsPerRun(200, func() { newRequest(http.MethodPost, evaluate, text) })
	budget := 20.0
	if raceEnabled {
		budget *= 2
	}
	t.Logf("%v allocations", n-request)
	if n-request > budget {
		t.Errorf("an evaluation allocates %v times, want at most %v", n-request, budget)
	}
}

// While no rules are known, what no rule holds for is not denied by default.
func TestUnknownRulesDenyNothing(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		c.DenyByDefault, c.RulesState = true, func() follow.State { return follow.Unknown }
	})
	f.post(evaluate, `{"path":"/nowhere"}`).evaluated(200)
}
