package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

// holding is a service with a policy "5 at once, 100 tokens an hour", and rules that say so of a path.
func holding(t *testing.T) *fixture {
	return newFixture(t, func(c *server.Config) {
		c.Policies["gateway"] = []stint.Limit{
			stint.Concurrency(2).WithCost(1), stint.FixedWindow(100, time.Hour).Named("tokens"),
		}
		c.Rules = compile(t, []rules.Rule{{
			ID: "chat", Scope: []string{rules.PerUser}, Missing: rules.MissingDeny, Match: rules.Match{Paths: []string{"/chat"}},
			Cost:    rules.Cost{Attribute: "tokens", Permits: 10},
			Limits:  []stint.Limit{stint.Concurrency(2), stint.FixedWindow(100, time.Hour)},
			Costs:   []rules.Cost{{Permits: 1}, {Attribute: "tokens", Permits: 10}},
			Reserve: rules.Reserve{TTL: 2 * time.Minute},
		}})
	})
}

func (f *fixture) hold(path, body string, status int) (r api.ReserveResponse, end api.HoldEndResponse) {
	f.t.Helper()
	got := f.post(path, body)
	if got.status != status {
		f.t.Fatalf("%s %s: %d %s", path, body, got.status, got.body)
	}
	if path == apipath.Reserve {
		got.into(&r)
	} else {
		got.into(&end)
	}
	return r, end
}

// holdProblem expects a problem of a type, whose detail has a text in it.
func (r reply) holdProblem(status int, kind, detail string) {
	r.t.Helper()
	var p api.Problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || r.status != status || p.Status != status || p.Type != kind || !strings.Contains(p.Detail, detail) {
		r.t.Errorf("%d %s, want %d, %s and %q in it", r.status, r.body, status, kind, detail)
	}
}

func TestHoldsOfAKey(t *testing.T) {
	f := holding(t)
	first, _ := f.hold(apipath.Reserve, `{"id":"a","key":"k","policy":"gateway","permits":30,"ttl":"90s"}`, http.StatusOK)
	if !first.Allowed || first.Replayed || first.ExpiresAt != first.At+90_000_000 || first.Policy != "gateway" {
		t.Errorf("%+v", first)
	}
	again, _ := f.hold(apipath.Reserve, `{"id":"a","key":"k","policy":"gateway","permits":30}`, http.StatusOK)
	if !again.Replayed {
		t.Errorf("again: %+v", again)
	}
	f.hold(apipath.Reserve, `{"id":"b","key":"k","policy":"gateway","permits":30}`, http.StatusOK)
	got := f.post(apipath.Reserve, `{"id":"c","key":"k","policy":"gateway","permits":30}`)
	if rate := got.header.Get("Ratelimit"); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" || !strings.HasPrefix(rate, `"default";r=0;t=1,`) {
		t.Errorf("denied: %d, RateLimit: %s", got.status, rate)
	}
	var denied api.ReserveResponse
	got.into(&denied)
	if denied.Algorithm != "CONCURRENCY" || denied.Reason != "limit" || denied.ExpiresAt != 0 || denied.RetryAfterMicros != 60_000_000 {
		t.Errorf("denied: %+v", denied)
	}
	commit := fmt.Sprintf(`{"id":"a","key":"k","policy":"gateway","permits":12,"expiresAt":%d}`, first.ExpiresAt)
	_, end := f.hold(apipath.Commit, commit, http.StatusOK)
	if end.Applied != -18 || end.Late || end.Replayed || end.Rest == nil || end.Remaining != 1 {
		t.Errorf("commit: %+v", end)
	}
	if _, end := f.hold(apipath.Commit, commit, http.StatusOK); end.Applied != -18 || !end.Replayed {
		t.Errorf("commit again: %+v", end)
	}
	if _, end := f.hold(apipath.Cancel, `{"id":"b","key":"k","policy":"gateway"}`, http.StatusOK); end.Applied != -30 {
		t.Errorf("cancel: %+v", end)
	}
	// A cancel takes what a commit does, but for permits.
	same := fmt.Sprintf(`{"id":"b","key":"k","policy":"gateway","ttl":"90s","expiresAt":%d}`, first.ExpiresAt)
	if _, end := f.hold(apipath.Cancel, same, http.StatusOK); end.Applied != -30 || !end.Replayed {
		t.Errorf("cancel again: %+v", end)
	}
	f.post(apipath.Cancel, `{"id":"b","key":"k","policy":"gateway","permits":1}`).problem(http.StatusBadRequest, `parameter is "permits"`)
	f.post(apipath.Commit, strings.Replace(commit, "12", "13", 1)).holdProblem(http.StatusConflict, apipath.ProblemHoldResolved, `the hold "a" was committed at`)
	f.post(apipath.Cancel, `{"id":"b","key":"other","policy":"gateway"}`).holdProblem(http.StatusConflict, apipath.ProblemHoldResolved, `was cancelled at`)
	f.post(apipath.Commit, `{"id":"never","key":"k","policy":"gateway","permits":1}`).holdProblem(http.StatusNotFound, apipath.ProblemHoldUnknown, "not known")
	f.hold(apipath.Reserve, `{"id":"d","key":"k","algorithm":"TOKEN_BUCKET","permits":5}`, http.StatusOK)
	f.post(apipath.Reserve, `{"id":"d","key":"k","policy":"gateway","permits":5}`).holdProblem(http.StatusConflict, apipath.ProblemHoldOtherClaims, "other claims")
	f.hold(apipath.Reserve, `{"id":"kept","key":"money","onExpiry":"keep","permits":5,"ttl":"1s"}`, http.StatusOK)
	metrics := f.get(apipath.Metrics).body
	for outcome, want := range map[string]int{
		"reserved": 4, "replayed": 3, "denied": 1, "committed": 1, "cancelled": 1, "resolved": 2, "unknown": 1, "late": 0, "lost": 0,
		"full": 0, "degraded": 0, "reset": 0, "expired": 0,
	} {
		if line := fmt.Sprintf("rate_limiter_holds_total{outcome=%q} %d\n", outcome, want); !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if want := "rate_limiter_holds_live 2\n"; !strings.Contains(metrics, want) { // d and kept
		t.Errorf("the metrics lack %s", want)
	}
	if left := f.remaining("key=k&policy=gateway"); left.Remaining != 2 {
		t.Errorf("left: %+v", left)
	}
}

func TestHoldsByRules(t *testing.T) {
	f := holding(t)
	body := func(id, rest string) string {
		return `{"id":"` + id + `","path":"/chat"` + rest + `,"attributes":{"userId":"alice","tokens":40}}`
	}
	first, _ := f.hold(apipath.Reserve, body("a", ""), http.StatusOK)
	if first.Rule != "chat" || len(first.Matched) != 1 || first.ExpiresAt != first.At+120_000_000 {
		t.Errorf("%+v", first)
	}
	f.hold(apipath.Reserve, body("b", `,"ttl":"5s"`), http.StatusOK)
	if denied, _ := f.hold(apipath.Reserve, body("c", ""), http.StatusTooManyRequests); denied.Reason != "limit" {
		t.Errorf("denied: %+v", denied)
	}
	if _, end := f.hold(apipath.Commit, body("a", `,"permits":25`), http.StatusOK); end.Applied != -15 || end.Matched == nil {
		t.Errorf("commit: %+v", end)
	}
	if _, end := f.hold(apipath.Commit, body("b", ""), http.StatusOK); end.Applied != 0 { // as the request says
		t.Errorf("commit without permits: %+v", end)
	}
	// A plain evaluation leaves the rule out: nobody would give its place back.
	if got := f.post(apipath.Evaluate, `{"path":"/chat","attributes":{"userId":"alice"}}`); !strings.Contains(got.body, `"matched":[]`) {
		t.Errorf("evaluate: %s", got.body)
	}
	if free, _ := f.hold(apipath.Reserve, `{"id":"e","path":"/elsewhere"}`, http.StatusOK); !free.Allowed || len(free.Matched) != 0 {
		t.Errorf("no rule: %+v", free)
	}
	small := func(rest string) string {
		return `{"id":"h","path":"/chat"` + rest + `,"attributes":{"userId":"alice","tokens":5}}`
	}
	held, _ := f.hold(apipath.Reserve, small(""), http.StatusOK)
	if _, end := f.hold(apipath.Cancel, small(fmt.Sprintf(`,"ttl":"120s","expiresAt":%d`, held.ExpiresAt)), http.StatusOK); end.Applied != -5 {
		t.Errorf("cancel: %+v", end)
	}
	f.hold(apipath.Reserve, `{"id":"f","path":"/chat"}`, http.StatusTooManyRequests) // without a user
	f.post(apipath.Reserve, `{"id":"g","path":"/chat","permits":3}`).problem(http.StatusBadRequest, "permits")
}

// A client that has as many holds as the store allows is denied for that, by a policy and by rules.
func TestHoldsBeyondTheMost(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		c.Store = memstore.New(memstore.Config{MaxHolds: 1})
		c.Policies["many"] = []stint.Limit{stint.Concurrency(50)}
		c.Rules = compile(t, []rules.Rule{{ID: "many", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.Concurrency(50)}}})
	})
	for _, claim := range []string{`"key":"k","policy":"many"`, `"path":"/many"`} {
		f.hold(apipath.Reserve, fmt.Sprintf(`{"id":%q,%s}`, "a-"+claim[1:4], claim), http.StatusOK)
		if got, _ := f.hold(apipath.Reserve, fmt.Sprintf(`{"id":"b",%s}`, claim), http.StatusTooManyRequests); got.Reason != string(stint.ReasonHolds) {
			t.Errorf("by %s the reason is %q", claim, got.Reason)
		}
	}
}

// An end by rules ends the hold, or says that it did not.
func TestEndsByRulesThatEndNothing(t *testing.T) {
	f := holding(t)
	f.hold(apipath.Reserve, `{"id":"a","path":"/chat","attributes":{"userId":"alice","tokens":40}}`, http.StatusOK)
	f.post(apipath.Commit, `{"id":"a","path":"/chat","permits":40}`).
		holdProblem(http.StatusNotFound, apipath.ProblemHoldUnknown, "rule chat: the request lacks what it counts by, per_user")
	f.post(apipath.Cancel, `{"id":"a","path":"/elsewhere"}`).
		holdProblem(http.StatusNotFound, apipath.ProblemHoldUnknown, "no limit holds for the request")
	f.post(apipath.Commit, `{"id":"a","path":"/chat","permits":1,"attributes":{"userId":"bob"}}`).
		holdProblem(http.StatusConflict, apipath.ProblemHoldOtherClaims, "other claims than the rules have for the request")
	commit := func(of string) string {
		return `{"id":"a","path":"/chat","permits":1,"rules":` + of + `,"attributes":{"userId":"alice"}}`
	}
	f.post(apipath.Commit, commit(`[]`)).holdProblem(http.StatusNotFound, apipath.ProblemHoldUnknown, "no limit holds")
	f.post(apipath.Commit, commit(`["other"]`)).holdProblem(http.StatusNotFound, apipath.ProblemHoldUnknown, "no limit holds")
	f.post(apipath.Commit, commit(`"chat"`)).problem(http.StatusBadRequest, "rules is a string; allowed: a list of strings")
	f.post(apipath.Commit, commit(`["chat",]`)).problem(http.StatusBadRequest, "allowed: a string")
	f.post(apipath.Commit, commit(`["chat" "b"]`)).problem(http.StatusBadRequest, "a comma or the end of the list")
	f.post(apipath.Commit, `{"id":"a","key":"k","rules":["chat"],"permits":1}`).problem(http.StatusBadRequest, `parameter is "rules"`)
	f.post(apipath.Commit, `{"id":"a","rules":["chat"],"permits":1}`).holdProblem(http.StatusNotFound, apipath.ProblemHoldUnknown, "")
	if _, end := f.hold(apipath.Commit, commit(`["chat","other"]`), http.StatusOK); end.Applied != -39 || end.Rule != "chat" || len(end.Matched) != 1 {
		t.Errorf("%+v", end)
	}
}

// A hold that has expired, and whose place another has, is denied, by a policy and by rules.
func TestLostHolds(t *testing.T) {
	f := holding(t)
	for _, claim := range []string{`"key":"k","policy":"gateway"`, `"path":"/chat","attributes":{"userId":"alice","tokens":4}`} {
		body := func(id, ttl string) string {
			return `{"id":"` + id + claim[1:4] + `","ttl":"` + ttl + `",` + claim + `}`
		}
		f.hold(apipath.Reserve, body("a", "1s"), http.StatusOK)
		f.hold(apipath.Reserve, body("b", "60s"), http.StatusOK)
		f.store.advance(2 * time.Second)
		f.hold(apipath.Reserve, body("c", "60s"), http.StatusOK)
		if got, _ := f.hold(apipath.Reserve, body("a", "60s"), http.StatusTooManyRequests); !got.Lost || got.Reason != "limit" {
			t.Errorf("%s: %+v", claim, got)
		}
	}
}

// A client that has as many holds as the store allows is told so, by rules too.
func TestTooManyHoldsByRules(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		c.Rules = compile(t, []rules.Rule{{ID: "many", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.Concurrency(5000)}}})
	})
	for i := range bounds.DefaultMaxHolds {
		f.hold(apipath.Reserve, fmt.Sprintf(`{"id":"%d","path":"/"}`, i), http.StatusOK)
	}
	if got, _ := f.hold(apipath.Reserve, `{"id":"one-more","path":"/"}`, http.StatusTooManyRequests); got.Reason != string(stint.ReasonHolds) {
		t.Errorf("%+v", got)
	}
}

// Without its store, the service frees the places of its share, by a policy and by rules; the end is said again when the
// store is back.
func TestHoldsEndLocally(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		surviving(t, failover.Local)(c)
		c.Policies["place"] = []stint.Limit{stint.Concurrency(1)}
		c.Rules = compile(t, []rules.Rule{{ID: "place", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.Concurrency(1)}}})
	})
	f.store.fail(errors.New("no route"))
	for _, claim := range []string{`"key":"k","policy":"place"`, `"path":"/"`} {
		for i, end := range []string{apipath.Cancel, apipath.Commit, apipath.Cancel} {
			body := fmt.Sprintf(`{"id":"%d%s",%s`, i, claim[1:4], claim)
			f.hold(apipath.Reserve, body+`}`, http.StatusOK)
			if end == apipath.Commit {
				body += `,"permits":1`
			}
			f.post(end, body+`}`).problem(http.StatusServiceUnavailable, "send it again")
		}
		f.post(apipath.Cancel, `{"id":"another",`+claim+`}`).problem(http.StatusServiceUnavailable, "send it again")
	}
}

// A limit of a rule whose cost is a number is one of a policy with that cost: an expiry leaves it, and what was applied is
// of the others.
func TestNumbersStay(t *testing.T) {
	clock := storetest.NewClock(1_800_000_000_000_000)
	requests, tokens := stint.FixedWindow(100, 24*time.Hour).Named("requests"), stint.FixedWindow(1000, 24*time.Hour).Named("tokens")
	f := newFixture(t, func(c *server.Config) {
		c.Store = memstore.New(memstore.Config{Now: clock.Now})
		c.Policies["llm"] = []stint.Limit{requests.WithCost(1), tokens}
		c.Rules = compile(t, []rules.Rule{{
			ID: "llm", Scope: []string{rules.Global}, Reserve: rules.Reserve{TTL: time.Minute}, Limits: []stint.Limit{requests, tokens},
			Costs: []rules.Cost{{Permits: 1}, {Attribute: "tokens"}},
		}})
	})
	for _, hold := range []string{`"key":"k","policy":"llm","permits":500`, `"path":"/","attributes":{"tokens":500}`} {
		end := strings.Replace(strings.Replace(hold, `,"permits":500`, "", 1), `"tokens":500`, "", 1)
		f.hold(apipath.Reserve, `{"id":"a`+hold[1:4]+`",`+hold+`}`, http.StatusOK)
		if _, told := f.hold(apipath.Cancel, `{"id":"a`+hold[1:4]+`",`+end+`}`, http.StatusOK); told.Applied != -500 {
			t.Errorf("cancelled: %+v", told)
		}
		f.hold(apipath.Reserve, `{"id":"b`+hold[1:4]+`",`+hold+`,"ttl":"1s"}`, http.StatusOK)
		clock.Advance(2 * time.Second)
		again, _ := f.hold(apipath.Reserve, `{"id":"c`+hold[1:4]+`",`+hold+`}`, http.StatusOK)
		if again.LimitName != "" || again.Remaining != 98 {
			t.Errorf("after one that has expired: %+v", again)
		}
		if _, told := f.hold(apipath.Commit, `{"id":"b`+hold[1:4]+`",`+end+`,"permits":9}`, http.StatusOK); told.Applied != 9 || !told.Late {
			t.Errorf("committed late: %+v", told)
		}
	}
}

func TestHoldsRefused(t *testing.T) {
	f := holding(t)
	for body, want := range map[string]string{
		`{"key":"k"}`: "id is \"\"; allowed: 1 to 128 printable characters",
		`{"path":"/chat","attributes":{"userId":"ann"}}`:   "id is \"\"; allowed: 1 to 128 printable characters",
		`{"id":"","path":"/none"}`:                         "id is \"\"; allowed: 1 to 128 printable characters",
		`{"id":"é","key":"k"}`:                             "id is",
		`{"id":"a","key":"k","ttl":"1ms"}`:                 "ttl is",
		`{"id":"a","key":"k","ttl":"0s"}`:                  `ttl is "0s"; allowed: 1s to 1h`,
		`{"id":"a","path":"/chat","ttl":"0"}`:              `ttl is "0"; allowed: 1s to 1h`,
		`{"id":"a","key":"k","ttl":"soon"}`:                `ttl is "soon"; allowed: 1s to 1h`,
		`{"id":"a","key":"k","onExpiry":"burn"}`:           `onExpiry is "burn"; allowed: release or keep`,
		`{"id":"a","key":"k","ttl":5}`:                     `ttl is a number; allowed: a string such as "120s"`,
		`{"id":7,"key":"k"}`:                               "id is a number",
		`{"id":"a","key":"k","permits":0}`:                 "permits",
		`{"id":"a","key":"k","keep":101}`:                  `keep is "101"; allowed: an integer from 0 to 100`,
		`{"id":"a","key":"k","keep":-1}`:                   "keep",
		`{"id":"a","key":"k","keep":"1"}`:                  "keep is a string; allowed: an integer",
		`{"id":"a","key":"k","policy":"gateway","keep":3}`: `keep is "3"; allowed: an integer from 0 to 2`,
		`{"id":"a","path":"/chat","keep":0}`:               `parameter is "keep"; allowed: none beside a request`,
		`{"id":"a","path":"/chat","permits":1,"keep":0}`:   `parameter is "permits, keep"; allowed: none beside a request`,
		`{"id":"a","key":"k","expiresAt":5}`:               "expiresAt",
		`{"id":"a","key":"k","path":"/"}`:                  "path",
		`{"id":"a","key":"k","policy":"push"}`:             "count",
		`{"id":"a","key":"k","policy":"leak"}`:             "leak",
		`{"id":"a","key":"k","id":"b"}`:                    "repeated",
		`[{"id":"a"}]`:                                     "the body is malformed",
		`{"id":"a","key":"k","algorithm":"CONCURRENCY"}`:   "algorithm",
	} {
		f.post(apipath.Reserve, body).problem(http.StatusBadRequest, want)
	}
	f.post(apipath.Commit, `{"id":"a","key":"k","permits":-1}`).problem(http.StatusBadRequest, "permits")
	f.post(apipath.Commit, `{"id":"a","key":"k"}`).problem(http.StatusBadRequest, "permits")
	f.post(apipath.Commit, `{"id":"a","key":"k","permits":1,"expiresAt":-1}`).problem(http.StatusBadRequest, "expiresAt")
	f.post(apipath.Cancel, `{"id":"a","key":"k","permits":1}`).problem(http.StatusBadRequest, "permits")
	f.post(apipath.Commit, `{"id":"a","key":"k","permits":1,"keep":0}`).problem(http.StatusBadRequest, `parameter is "keep"`)
	f.post(apipath.Cancel, `{"id":"a","key":"k","keep":0}`).problem(http.StatusBadRequest, `parameter is "keep"`)
	f.post(apipath.Evaluate, `{"path":"/chat","keep":0}`).problem(http.StatusBadRequest, `parameter is "keep"`)
	f.post(apipath.Reserve+"?details=true", `{"id":"a"}`).problem(http.StatusBadRequest, "query")
	f.get(check+"?policy=gateway&key=k").problem(http.StatusBadRequest, "reserve")
	closed := newFixture(t, func(c *server.Config) { c.API.Open = false })
	for _, path := range []string{apipath.Reserve, apipath.Commit, apipath.Cancel} {
		if got := closed.post(path, `{"id":"a","permits":1}`); got.status != http.StatusForbidden {
			t.Errorf("%s by anybody: %d %s", path, got.status, got.body)
		}
	}
}
