package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
)

// An admitted request is told which limits mark it: in the answer of an evaluation and of a reserve, in a header field of
// forward-auth, and by the Redis protocol.
func TestEvaluateMarks(t *testing.T) {
	named := func(name string, limit stint.Limit) stint.Limit { limit.Name = name; return limit }
	f := newFixture(t, func(c *server.Config) {
		behindProxies(c)
		c.API.Open = true
		c.Rules = compile(t, []rules.Rule{
			{ID: "hard", Scope: []string{rules.Global}, MarkAt: 50, Limits: []stint.Limit{stint.FixedWindow(6, time.Hour)}},
			{
				ID: "soft", Scope: []string{rules.Global}, OnExceed: rules.Mark,
				Limits: []stint.Limit{named("hour", stint.FixedWindow(1, time.Hour).FromFirst()), named("two", stint.FixedWindow(2, time.Hour))},
			},
		})
	})
	if got := f.post(evaluate, `{"path":"/"}`); strings.Contains(got.body, "exceeded") {
		t.Errorf("the first: %s", got.body)
	}
	got := f.post(evaluate, `{"path":"/"}`)
	if want := `"matched":["hard","soft"],"exceeded":[{"rule":"soft","limitName":"hour","limit":1,"retryAfterMicros":3600000000}]}`; got.status != 200 || !strings.HasSuffix(got.body, want) {
		t.Errorf("the second: %d %s, want %s", got.status, got.body, want)
	}
	got = f.post(apipath.Reserve, `{"path":"/","id":"h"}`)
	if want := `"exceeded":[{"rule":"hard","limit":6,"retryAfterMicros":0},{"rule":"soft","limitName":"hour",`; got.status != 200 || !strings.Contains(got.body, want) {
		t.Errorf("the reserve: %d %s, want %s", got.status, got.body, want)
	}
	r := newRequest(http.MethodGet, apipath.ForwardAuth, "")
	for name, value := range map[string]string{"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/", "X-Forwarded-Host": "a", "X-Forwarded-For": "198.51.100.1"} {
		r.Header.Set(name, value)
	}
	if got := f.do(r); got.status != 200 || got.header.Get("X-RateLimit-Exceeded") != "hard, soft" {
		t.Errorf("forward-auth: %d %v", got.status, got.header)
	}
	f.post(evaluate, `{"path":"/"}`).evaluated(200)
	f.post(evaluate, `{"path":"/"}`).evaluated(200)
	if got := f.post(evaluate, `{"path":"/"}`); got.status != 429 || strings.Contains(got.body, "exceeded\":") {
		t.Errorf("a denial: %d %s", got.status, got.body)
	}
}
