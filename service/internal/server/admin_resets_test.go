package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// A resetter is a store that resets policies as the test wants.
type resetter struct {
	*store
	reset func(ctx context.Context, policy string) error
}

func (r *resetter) ResetAll(ctx context.Context, scope stint.Scope) error {
	if scope.All {
		return fmt.Errorf("the cable is loose: %w", stint.ErrUnavailable)
	}
	return r.reset(ctx, scope.Policy)
}

// newResetFixture runs a server on a store whose resets the test carries out.
func newResetFixture(t *testing.T, reset func(ctx context.Context, policy string) error) *adminFixture {
	t.Helper()
	return newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		own, _ := c.Store.(*store)
		c.Store = &resetter{own, reset}
	}).fill()
}

// A reset of all clients is answered when it is done. Its outcome is recorded and counted.
func TestResetARule(t *testing.T) {
	var result error
	d := newResetFixture(t, func(ctx context.Context, policy string) error {
		if deadline, bounded := ctx.Deadline(); !bounded || time.Until(deadline) > 10*time.Second {
			t.Error("the reset is not bounded in time")
		}
		if policy != "rule/user" {
			t.Errorf("policy %s is reset", policy)
		}
		return result
	})
	all := func() reply { return d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`) }
	var got adminapi.RuleReset
	start := time.Now()
	all().is(200).into(&got)
	if got.State != adminapi.ResetDone || got.Rule != "user" || got.By != "loopback 127.0.0.1" || got.StartedAt.Before(start) || got.EndedAt.Before(got.StartedAt) {
		t.Errorf("answered %+v", got)
	}
	result = fmt.Errorf("the cable is loose: %w", stint.ErrUnavailable)
	all().problem(503, "whether it was made is not known. Repeat it")
	result = stint.Invalid("store", "old", "a newer one")
	all().problem(501, "one by one")
	log := strings.Join(d.auditLines(), "\n")
	for _, want := range []string{
		"action=reset_rule outcome=done rule=user", "action=reset_rule outcome=unconfirmed rule=user", "action=reset_rule outcome=failed rule=user",
	} {
		if strings.Count(log, want) != 1 {
			t.Errorf("the records lack %q:\n%s", want, log)
		}
	}
	metrics := d.get(apipath.Metrics).body
	for _, want := range []string{
		`rate_limiter_rule_resets_total{outcome="done"} 1`, `rate_limiter_rule_resets_total{outcome="unconfirmed"} 1`,
		`rate_limiter_rule_resets_total{outcome="failed"} 1`, `rate_limiter_rule_edits_total{action="reset_rule",outcome="done"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

// The store in memory resets a rule by itself, and no other rule's clients.
func TestResetARuleInMemory(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil).fill()
	spend := func(body string) int64 {
		t.Helper()
		return d.postPublic(evaluate, body).evaluated(200).Remaining
	}
	for i := range 50 {
		spend(fmt.Sprintf(`{"path":"/user","attributes":{"userId":"u%d"}}`, i))
	}
	spend(`{"path":"/tokens"}`)
	d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).is(200)
	for i := range 50 {
		if left := spend(fmt.Sprintf(`{"path":"/user","attributes":{"userId":"u%d"}}`, i)); left != 2 {
			t.Errorf("client %d has %d left", i, left)
		}
	}
	if left := spend(`{"path":"/tokens"}`); left != 8 {
		t.Errorf("another rule's client has %d left", left)
	}
}

// All clients are reset only by an explicit request.
func TestNobodyResetsAllByMistake(t *testing.T) {
	resets := 0
	d := newResetFixture(t, func(context.Context, string) error { resets++; return nil })
	for body, want := range map[string]string{
		`{}`: `without key and all; allowed: {"key": CLIENT} for one client, or {"all": true}`, `null`: "the body",
		`{"all":false}`: "all is false; allowed: true", `{"all":null}`: "all", `{"all":"true"}`: "all",
		`{"key":"a","all":true}`: "the body is one with both key and all; allowed: one of them", `{"key":"a","all":false}`: "one of them",
	} {
		d.ask("POST", "/api/v1/rules/user/reset", body).problem(400, want)
	}
	if resets != 0 {
		t.Errorf("%d resets were made", resets)
	}
	d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).is(200)
	if resets != 1 {
		t.Errorf("%d resets were made, want 1", resets)
	}
}

func (*resetter) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }

// A reset of everything that is not confirmed is to be repeated.
func TestResetEverythingUnconfirmed(t *testing.T) {
	d := newResetFixture(t, func(context.Context, string) error { return nil })
	d.ask("POST", adminapi.PathResetAll, `{"all":true}`).problem(503, "Repeat it")
}
