package server_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/decisionlog"
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
	if n := len(shadowed.Denials); n != 2 || shadowed.Denials[0].Rule != "shadow" || shadowed.Denials[0].Client != "*" ||
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
		d.postPublic(api.PathEvaluate, `{"path":"/one","ip":"192.0.2.7","attributes":{"apiKey":"key|A"}}`)
	}
	for range 2 {
		d.postPublic(api.PathEvaluate, `{"path":"/both","ip":"192.0.2.7","attributes":{"apiKey":"key-B"}}`)
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
		if !timeline.Sampled || len(timeline.Decisions) == 0 || len(timeline.Denials) != 1 {
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
	d.postPublic(api.PathCheck, `{"key":"alice"}`)
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

// BenchmarkObserved is what observation adds to a check in a memory store of one of 100,000 clients, one check in ten denied: metrics,
// the recorder with its top clients, and the log of denials. Blocks of the same checks with it and without it take turns, so that other
// load of the machine falls on both. ns/observed is the median difference, quiet-ns/observed that of the fifth percentiles, ns/bare the
// median check without observation. A block is four of the recorder's batches.
func BenchmarkObserved(b *testing.B) {
	const block = 256
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, 99_999)
	for _, load := range []struct {
		keys string
		draw func() uint64
	}{{"zipf", zipf.Uint64}, {"uniform", func() uint64 { return random.Uint64N(100_000) }}} {
		requests := make([]*http.Request, 128*block)
		for i := range requests {
			query := fmt.Sprintf("?key=user:%d", load.draw())
			if i%10 == 0 {
				query += "&algorithm=FIXED_WINDOW"
			}
			requests[i] = httptest.NewRequestWithContext(b.Context(), http.MethodGet, api.PathCheck+query, nil)
		}
		for _, log := range []string{"off", "sampled"} {
			b.Run("keys="+load.keys+"/log="+log, func(b *testing.B) {
				with, without := observedAndNot(b, log == "sampled")
				w := &discard{header: http.Header{}}
				run := func(h http.Handler, requests []*http.Request) {
					for _, r := range requests {
						serve(h, w, r)
					}
				}
				var differences, bare, full []float64
				for i := 0; b.Loop(); i++ {
					part := requests[i*block%len(requests):][:block]
					began := time.Now()
					first, second, sign := without, with, 1.0
					if i%2 == 1 {
						first, second, sign = with, without, -1
					}
					run(first, part)
					between := time.Now()
					run(second, part)
					of := [2]time.Duration{between.Sub(began), time.Since(between)}
					differences = append(differences, sign*float64(of[1]-of[0])/block)
					bare = append(bare, float64(of[i%2])/block)
					full = append(full, float64(of[1-i%2])/block)
				}
				slices.Sort(differences)
				slices.Sort(bare)
				slices.Sort(full)
				quiet := len(full) / 20
				b.ReportMetric(full[quiet]-bare[quiet], "quiet-ns/observed")
				b.ReportMetric(differences[len(differences)/2], "ns/observed")
				b.ReportMetric(bare[len(bare)/2], "ns/bare")
				allocations := func(h http.Handler) float64 {
					return testing.AllocsPerRun(len(requests)/block, func() { run(h, requests[:block]) }) / block
				}
				b.ReportMetric(allocations(with)-allocations(without), "allocs/observed")
				b.ReportMetric(0, "ns/op") // of two blocks: it says nothing
			})
		}
	}
}

// observedAndNot are two services on one store: one with metrics, a recorder and a log, perhaps of denials, the other without. Checks of
// FIXED_WINDOW are denied.
func observedAndNot(b *testing.B, denials bool) (with, without http.Handler) {
	b.Helper()
	config, _, _ := testConfig()
	config.Store = memstore.New(memstore.Config{})
	config.Defaults = map[stint.Algorithm]stint.Limit{
		stint.AlgorithmTokenBucket: stint.TokenBucket(1_000_000, stint.PerSecond(1_000_000)), stint.AlgorithmFixedWindow: stint.FixedWindow(1, 24*time.Hour),
	}
	bare, err := server.New(config)
	if err != nil {
		b.Fatal(err)
	}
	bare.SkipObservers()
	config.Activity = activity.New(activity.Config{})
	if denials {
		log := decisionlog.New(decisionlog.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Denials: true})
		config.Observers = []stint.Observer{log.Observe}
	}
	observed, err := server.New(config)
	if err != nil {
		b.Fatal(err)
	}
	return observed.Handler(), bare.Handler()
}
