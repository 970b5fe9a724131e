package server_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// Who holds a client's places is shown, and a hold whose holder is stuck is ended.
func TestDropHolds(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.Policies["gateway"] = []stint.Limit{stint.Concurrency(1), stint.FixedWindow(100, time.Hour).Named("tokens")}
	})
	d.ask("PUT", "/api/v1/rules", `[
		{"id": "chat", "match": {"path": "/chat"}, "scope": "per_user", "missing": "skip", "limits": [{"algorithm": "concurrency", "capacity": 1}]},
		{"id": "all", "match": {"path": "/chat"}, "scope": "global", "limits": [{"algorithm": "concurrency", "capacity": 10}]},
		{"id": "key", "match": {"path": "/key"}, "scope": "per_api_key", "missing": "skip", "limits": [{"algorithm": "concurrency", "capacity": 1}]}
	]`).is(200)
	const chat, key = `"path":"/chat","attributes":{"userId":"ann"}`, `"path":"/key","attributes":{"apiKey":"s3cret"}`
	reserve := func(id, request string, status int) {
		t.Helper()
		d.postPublic(apipath.Reserve, `{"id":"`+id+`",`+request+`}`).is(status)
	}
	held := func(client string) (ids []string) {
		t.Helper()
		var x adminapi.ClientExplanation
		d.ask("GET", "/api/v1/clients/"+client, "").is(200).into(&x)
		for _, rule := range x.Rules {
			for _, h := range rule.Holds {
				ids = append(ids, rule.Rule+":"+h.ID)
				if h.Permits != 1 || h.ExpiresAt == 0 {
					t.Errorf("%+v", h)
				}
			}
		}
		return ids
	}
	reserve("r 1/2", chat, 200)
	reserve("next", chat, 429)
	if got := held("ann"); !slices.Equal(got, []string{"chat:r 1/2"}) {
		t.Errorf("ann has %q", got)
	}
	var dropped adminapi.DroppedHold
	d.ask("DELETE", "/api/v1/holds/r%201%2F2?client=ann", "").is(200).into(&dropped)
	if dropped.ID != "r 1/2" || !slices.Equal(dropped.Rules, []string{"chat"}) {
		t.Errorf("%+v", dropped)
	}
	d.ask("DELETE", "/api/v1/holds/r%201%2F2?client=ann", "").problem(404, `the client has no hold "r 1/2"`)
	reserve("next", chat, 200)
	if got := held("*"); !slices.Equal(got, []string{"all:r 1/2", "all:next"}) {
		t.Errorf("all have %q", got) // what it has of others stays
	}

	reserve("stuck", key, 200)
	d.ask("DELETE", "/api/v1/holds/stuck?client=s3cret", "").is(200)
	if log := d.log.String(); strings.Contains(log, "s3cret") || !strings.Contains(log, "action=drop_hold outcome=done client=\\sha256:") || !strings.Contains(log, "hold=stuck") {
		t.Error("the audit is:\n" + log)
	}
	reserve("job", `"key":"k","policy":"gateway","permits":1`, 200)
	d.ask("DELETE", "/api/v1/holds/job?key=k", "").is(200).into(&dropped)
	if !slices.Equal(dropped.Policies, []string{"gateway"}) {
		t.Errorf("%+v", dropped)
	}
	d.ask("DELETE", "/api/v1/holds/job?key=k", "").problem(404, "job")
	d.ask("DELETE", "/api/v1/holds/stuck", "").problem(400, "client")
	d.ask("DELETE", "/api/v1/holds/stuck?key=k&client=ann", "").problem(400, "client")
	d.ask("DELETE", "/api/v1/holds/%00?client=ann", "").problem(400, "id")
	d.store.fail(stint.ErrUnavailable)
	d.ask("DELETE", "/api/v1/holds/stuck?client=ann", "").problem(503, "repeat it")
}
