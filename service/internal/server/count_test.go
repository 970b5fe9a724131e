package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
)

// logins is a service with a rule of two failed logins of a user, and one of all requests.
func logins(t *testing.T) *fixture {
	return newFixture(t, func(c *server.Config) {
		c.Rules = compile(t, []rules.Rule{
			{
				ID: "failed", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip, Match: rules.Match{Paths: []string{"/login"}},
				Limits: []stint.Limit{stint.FixedWindow(2, time.Hour)}, Count: rules.Count{Status: []int{401, 5}},
			},
			{ID: "all", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(100, time.Hour)}},
		})
	})
}

// A commit's status says whether rules with count count the request; without one it is counted, and of 0 permits it is
// not. Others count it whatever it says.
func TestHoldsCountByStatus(t *testing.T) {
	const claims = `"path":"/login","attributes":{"userId":"ann"}`
	for _, test := range []struct {
		says    string
		applied int64
	}{
		{`,"status":200`, -1},
		{`,"status":404`, -1},
		{`,"status":499`, -1},
		{`,"permits":0`, -1},
		{`,"permits":0,"status":401`, -1},
		{`,"status":401`, 0},
		{`,"status":503`, 0},
		{``, 0},
	} {
		f := logins(t)
		r, _ := f.hold(apipath.Reserve, `{"id":"h",`+claims+`}`, http.StatusOK)
		if len(r.Matched) != 2 || r.Rule != "failed" || r.Remaining != 1 {
			t.Fatalf("%+v", r)
		}
		for i := range 2 {
			_, end := f.hold(apipath.Commit, `{"id":"h",`+claims+test.says+`}`, http.StatusOK)
			if end.Applied != test.applied || end.Replayed != (i == 1) || end.Late {
				t.Errorf("%s: %+v", test.says, end)
			}
		}
		if r, _ = f.hold(apipath.Reserve, `{"id":"i",`+claims+`}`, http.StatusOK); r.Remaining != -test.applied {
			t.Errorf("%s: %d are left", test.says, r.Remaining)
		}
		f.hold(apipath.Cancel, `{"id":"i",`+claims+`}`, http.StatusOK)
		if all := f.post(apipath.Evaluate, `{"path":"/"}`); all.status != http.StatusOK || all.header.Get("X-Ratelimit-Remaining") != "98" {
			t.Errorf("%s: %s of all are left", test.says, all.header.Get("X-Ratelimit-Remaining"))
		}
	}
}

// Evaluate and forward-auth leave rules with count out. What requests under way hold denies for a second, what was
// counted until the window ends.
func TestCountIsForReserves(t *testing.T) {
	const claims = `"path":"/login","attributes":{"userId":"ann"}`
	f := logins(t)
	for range 3 {
		if got := f.post(apipath.Evaluate, `{`+claims+`}`); got.status != http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	for i := range 2 {
		f.hold(apipath.Reserve, fmt.Sprintf(`{"id":"h%d",%s}`, i, claims), http.StatusOK)
	}
	denied := f.post(apipath.Reserve, `{"id":"no",`+claims+`}`)
	if denied.status != http.StatusTooManyRequests || denied.header.Get("Retry-After") != "1" {
		t.Errorf("%d, Retry-After %q: %s", denied.status, denied.header.Get("Retry-After"), denied.body)
	}
	for i := range 2 {
		f.hold(apipath.Commit, fmt.Sprintf(`{"id":"h%d",%s,"status":401}`, i, claims), http.StatusOK)
	}
	denied = f.post(apipath.Reserve, `{"id":"no",`+claims+`}`)
	if denied.status != http.StatusTooManyRequests || len(denied.header.Get("Retry-After")) < 3 {
		t.Errorf("%d, Retry-After %q: %s", denied.status, denied.header.Get("Retry-After"), denied.body)
	}
}

// A status that is none, and one of a key, are refused.
func TestStatusRefused(t *testing.T) {
	f := logins(t)
	f.post(apipath.Commit, `{"id":"h","path":"/login","status":99}`).problem(http.StatusBadRequest, `status is "99"; allowed: an HTTP status, 100 to 599`)
	f.post(apipath.Commit, `{"id":"h","path":"/login","status":"401"}`).problem(http.StatusBadRequest, "status")
	f.post(apipath.Commit, `{"id":"h","key":"k","permits":1,"status":401}`).problem(http.StatusBadRequest, "status")
	f.post(apipath.Commit, `{"id":"h","status":401,"key":"k","permits":1}`).problem(http.StatusBadRequest, "key")
	f.post(apipath.Cancel, `{"id":"h","path":"/login","status":401}`).problem(http.StatusBadRequest, "status")
}
