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
		says(t, metrics, want+"\n")
	}
}

func (*resetter) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }

// A reset of everything that is not confirmed is to be repeated.
func TestResetEverythingUnconfirmed(t *testing.T) {
	d := newResetFixture(t, func(context.Context, string) error { return nil })
	d.ask("POST", adminapi.PathResetAll, `{"all":true}`).problem(503, "Repeat it")
}
