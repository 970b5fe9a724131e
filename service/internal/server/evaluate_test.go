package server_test

import (
	"context"
	"net/http"
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

// A rule that waits holds the call, also for longer than a body may take, and it is counted once.
func TestWaits(t *testing.T) {
	for name, ask := range map[string]func(*running){
		"evaluate": func(r *running) {
			if e := r.post(evaluate, `{"path":"/wait"}`).evaluated(200); e.Rule != "wait" || e.RetryAfterSeconds != 0 {
				r.t.Errorf("%+v", e)
			}
		},
		"forward-auth": func(r *running) {
			request := r.request(http.MethodGet, r.server.Addr().String(), apipath.ForwardAuth)
			request.Header = traefik("GET", "/wait")
			r.send(request).answered(200)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) {
				behindProxies(c)
				c.HTTP.BodyTimeout = 10 * time.Millisecond
			})
			r.store.enter = func(context.Context) {
				if r.store.calls.Load() == 3 { // the second try of the second request
					r.store.advance(100 * time.Millisecond)
				}
			}
			ask(r)
			ask(r)
			if n := r.store.calls.Load(); n != 3 {
				t.Errorf("two requests, one of which is held, asked the store %d times, want 3", n)
			}
			text := r.get(apipath.Metrics).body
			for _, line := range []string{
				`rate_limiter_rule_decisions_total{outcome="allowed",rule="wait",set=""} 2`,
				`rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 2`,
			} {
				says(t, text, line+"\n")
			}
		})
	}
}

// A proxy that is not trusted may not ask, on this machine either.
func TestForwardAuthOverHTTP(t *testing.T) {
	r := run(t, nil)
	request := r.request(http.MethodGet, r.server.Addr().String(), apipath.ForwardAuth)
	request.Header = traefik("GET", "/free")
	r.send(request).problem(403, "trusted_proxies")
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
