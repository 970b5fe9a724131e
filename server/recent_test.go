package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/memstore"
	rulestore "github.com/stint-go/stint/rules/store"
	"github.com/stint-go/stint/server"
	"github.com/stint-go/stint/server/activity"
)

// newActivityDesk is a desk whose server records what it decides, with time that a test moves.
func newActivityDesk(t *testing.T, tokens ...server.AdminToken) (d *adminFixture, advance func(time.Duration)) {
	t.Helper()
	var late atomic.Int64
	recorder := activity.New(activity.Config{Now: func() time.Time { return time.Now().Add(time.Duration(late.Load())) }})
	d = newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) { c.Activity, c.AdminTokens = recorder, tokens })
	return d, func(by time.Duration) { late.Add(int64(by)) }
}

// Every decision of the service is seen on the admin listener: of checks, batches and rules.
func TestActivity(t *testing.T) {
	d, advance := newActivityDesk(t, server.AdminToken{Token: "the-token-of-a-reader"}, server.AdminToken{Token: adminToken, Role: server.RoleWrite})
	d.token = adminToken
	d.fill()
	for range 6 {
		d.postPublic(api.PathCheck, `{"key":"alice","policy":"pair"}`)
	}
	d.postPublic(api.PathCheck, `[{"key":"bob"},{"key":"bob"},{"key":"bob","algorithm":"FIXED_WINDOW"}]`)
	for range 3 {
		r := newRequest("POST", "http://"+d.server.Addr().String()+api.PathEvaluate, `{"method":"POST","path":"/login","ip":"192.0.2.7"}`)
		r.Header.Set("X-Request-Id", "req-7")
		r.RequestURI = ""
		d.send(r)
	}
	d.postPublic(api.PathEvaluate, `{"path":"/banned","ip":"192.0.2.9"}`)
	for range 3 {
		d.postPublic(api.PathEvaluate, `{"path":"/shadow"}`)
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
	var versions api.RuleVersionList
	d.ask("GET", "/api/v1/rule-versions", "").is(200).into(&versions)
	newest := strconv.FormatInt(versions.Versions[0].Version, 10)
	if len(stats.Changes) == 0 || !strings.Contains(stats.Changes[0].Detail, "login") || stats.Changes[0].State != newest {
		t.Errorf("the changes are %+v", stats.Changes)
	}
	if n := total(stats.Totals.Admitted); n != 3+3+2+3 {
		t.Errorf("%d are admitted", n)
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

// Where nobody needs a token nobody is told names.
func TestActivityWithoutTokens(t *testing.T) {
	d, advance := newActivityDesk(t)
	d.postPublic(api.PathCheck, `{"key":"alice"}`)
	advance(2 * time.Second)
	if got := d.ask("GET", "/api/v1/top", "").is(200); strings.Contains(got.body, "alice") || !strings.Contains(got.body, `"client":"client-`) {
		t.Errorf("the top is %s", got.body)
	}
	d.ask("GET", "/api/v1/timeline?client=alice", "").problem(403, "token")
}

// Without a recorder there are no such paths.
func TestNoActivity(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	d.ask("GET", "/api/v1/stats", "").problem(404)
}

// A check allocates no more because it is recorded.
func TestObservedCheckAllocates(t *testing.T) {
	allocations := func(recorder *activity.Recorder) float64 {
		f := newFixture(t, func(c *server.Config) { c.Activity = recorder })
		w := &discard{header: http.Header{}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, api.PathCheck+"?key=user:123&algorithm=FIXED_WINDOW", nil)
		return testing.AllocsPerRun(5000, func() { serve(f, w, r) })
	}
	spare := 0.0
	if raceEnabled {
		spare = 1 // the race detector makes pools forget
	}
	if with, without := allocations(activity.New(activity.Config{})), allocations(nil); with > without+spare {
		t.Errorf("%v allocations with a recorder, %v without", with, without)
	}
}

// BenchmarkObserved is a check in a memory store of one of 100,000 clients, with a recorder and without.
func BenchmarkObserved(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, 99_999)
	for keys, draw := range map[string]func() uint64{"zipf": zipf.Uint64, "uniform": func() uint64 { return random.Uint64N(100_000) }} {
		requests := make([]*http.Request, 1<<14)
		for i := range requests {
			requests[i] = httptest.NewRequestWithContext(b.Context(), http.MethodGet, fmt.Sprintf("%s?key=user:%d", api.PathCheck, draw()), nil)
		}
		for name, recorder := range map[string]*activity.Recorder{"off": nil, "on": activity.New(activity.Config{})} {
			b.Run("keys="+keys+"/activity="+name, func(b *testing.B) {
				config, _, _ := testConfig()
				config.Store, config.Activity = memstore.New(memstore.Config{}), recorder
				config.Defaults = map[stint.Algorithm]stint.Limit{stint.AlgorithmTokenBucket: stint.TokenBucket(1_000_000, stint.PerSecond(1_000_000))}
				s, err := server.New(config)
				if err != nil {
					b.Fatal(err)
				}
				w := &discard{header: http.Header{}}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					serve(s.Handler(), w, requests[i%len(requests)])
					i++
				}
			})
		}
	}
}
