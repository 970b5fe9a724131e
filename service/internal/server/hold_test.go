package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
)

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
