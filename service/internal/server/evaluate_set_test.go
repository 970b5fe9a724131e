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

// Who has a token may name a set of rules: no others hold, bans among them. Who has none may not, wherever it asks.
func TestEvaluateBySet(t *testing.T) {
	of := func(id, set string, limit int64) rules.Rule {
		return rules.Rule{ID: id, Set: set, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(limit, time.Hour)}}
	}
	banned := rules.Rule{ID: "banned", Set: "web", Match: rules.Match{Paths: []string{"/admin"}}, Scope: []string{rules.Global}, Banned: true}
	set, err := rules.Compile([]rules.Rule{of("a", "web", 10), of("b", "jobs", 1), of("c", "", 20), banned}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *server.Config) { c.API.Tokens, c.Rules = []string{apiToken}, set })
	ask := func(path, body string) reply {
		r := newRequest(http.MethodPost, path, body)
		r.Header.Set("Authorization", "Bearer "+apiToken)
		return f.do(r)
	}
	for _, test := range []struct{ body, want string }{
		{`{"path":"/x"}`, `"matched":["a","b","c"]`},
		{`{"path":"/x","set":"web"}`, `"matched":["a"]`},
		{`{"path":"/x","set":"web"}`, `"matched":["a"]`},
		{`{"path":"/x","set":"jobs"}`, `"allowed":false`},
		{`{"path":"/x","set":"nothing"}`, `"matched":[]`},
		{`{"path":"/admin","set":"web"}`, `"reason":"banned"`},
	} {
		if got := ask(evaluate, test.body); !strings.Contains(got.body, test.want) {
			t.Errorf("%s is answered %s, want %s", test.body, got.body, test.want)
		}
	}
	if got := ask(apipath.Settle, `{"path":"/x","set":"web","permits":2}`); got.status != 200 || !strings.Contains(got.body, `"matched":["a"]`) {
		t.Errorf("a settlement by a set is answered %d %s", got.status, got.body)
	}
	ask(evaluate, `{"path":"/x","set":""}`).problem(400, "set")
	ask(evaluate, `{"path":"/x","set":7}`).problem(400, "set")
	ask(apipath.Check, `{"key":"k","set":"web"}`).problem(400, "set")
	open := newFixture(t, func(c *server.Config) { c.API.Open, c.Rules = true, set })
	open.post(evaluate, `{"path":"/x","set":"web"}`).problem(403, "set", "api.tokens_file")
	open.post(apipath.Settle, `{"path":"/x","set":"web","permits":1}`).problem(403, "set")
}
