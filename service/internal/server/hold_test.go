package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
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
