package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules/registry"
	"github.com/stint-go/stint/server"
)

// A forgetter is a store whose resets of policies take as long as the test wants.
type forgetter struct {
	*store
	step  chan error  // each value is a step; not nil: the reset fails with it
	begun chan string // the policies
}

func (f *forgetter) ForgetPolicy(ctx context.Context, policy string, progress func(stint.ForgetProgress)) error {
	f.begun <- policy
	for i := range int64(3) {
		select {
		case err := <-f.step:
			if err != nil {
				return err
			}
			progress(stint.ForgetProgress{Done: i + 1, Total: 3, States: i})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// newResetDesk runs a server on a store whose resets the test steps through.
func newResetDesk(t *testing.T) (*desk, *forgetter) {
	t.Helper()
	f := &forgetter{step: make(chan error), begun: make(chan string, 100)}
	return newDesk(t, registry.NewMemory(), func(c *server.Config) {
		f.store, _ = c.Store.(*store)
		c.Store = f
	}).fill(), f
}

func (r reply) reset() api.RuleReset {
	r.t.Helper()
	var reset api.RuleReset
	r.into(&reset)
	return reset
}

// until waits until a reset is as the test wants.
func (d *desk) until(path string, holds func(api.RuleReset) bool) (reset api.RuleReset) {
	d.t.Helper()
	eventually(d.t, func() bool {
		reset = d.ask("GET", path, "").is(200).reset()
		return holds(reset)
	})
	return reset
}

func TestResetAClient(t *testing.T) {
	d := newDesk(t, registry.NewMemory(), nil).fill()
	remaining := func(body string, want int64) {
		t.Helper()
		if got := d.postPublic(evaluate, body).evaluated(200); got.Remaining != want {
			t.Errorf("%s: %d left, want %d", body, got.Remaining, want)
		}
	}
	for _, test := range []struct{ rule, key, body, other, shown string }{
		{"user", "ann", `{"path":"/user","attributes":{"userId":"ann"}}`, `{"path":"/user","attributes":{"userId":"ben"}}`, "ann"},
		{"user", "vip", `{"path":"/user","attributes":{"userId":"vip"}}`, `{"path":"/user","attributes":{"userId":"bob"}}`, "vip"},
		{"key", "s3cret", `{"path":"/key","attributes":{"apiKey":"s3cret"}}`, `{"path":"/key","attributes":{"apiKey":"other"}}`, `\sha256:`},
		{"key", `\ip:192.0.2.1`, `{"path":"/key","ip":"192.0.2.1"}`, `{"path":"/key","ip":"192.0.2.2"}`, `\ip:192.0.2.1`},
		{"tokens", "*", `{"path":"/tokens"}`, "", "*"},
	} {
		full := d.postPublic(evaluate, test.body).evaluated(200).Remaining
		remaining(test.body, full-1)
		if test.other != "" {
			d.postPublic(evaluate, test.other).evaluated(200)
		}
		var got api.ClientReset
		d.ask("POST", "/api/v1/rules/"+test.rule+"/reset", fmt.Sprintf(`{"key":%q}`, test.key)).is(200).into(&got)
		if !got.Reset || got.Rule != test.rule || !strings.HasPrefix(got.Key, test.shown) {
			t.Errorf("reset: %+v", got)
		}
		remaining(test.body, full)
		if test.other != "" {
			other := d.postPublic(evaluate, test.other).evaluated(200)
			if other.Limit-other.Remaining != 2 {
				t.Errorf("another client of %s has %d of %d left", test.rule, other.Remaining, other.Limit)
			}
		}
	}
	for body, want := range map[string]string{
		`{"key":""}`: "key", `{"key":"a|b"}`: "1 parts", `{"key":"a","all":true}`: "the body is one with both key and all; allowed: one of them", `{"keys":"a"}`: "keys", `[]`: `{"all": true} for all`, `{`: "not JSON", `{"key":5}`: "key",
	} {
		d.ask("POST", "/api/v1/rules/user/reset", body).problem(400, want)
	}
	d.ask("POST", "/api/v1/rules/none/reset", `{"key":"a"}`).problem(404, "none")
	d.store.fail(stint.ErrUnavailable)
	d.ask("POST", "/api/v1/rules/user/reset", `{"key":"ann"}`).problem(503, "the store did not confirm the reset; whether it was made is not known")
	d.store.fail(nil)
}

func TestResetARule(t *testing.T) {
	d, f := newResetDesk(t)
	started := d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).is(202)
	path := started.header.Get("Location")
	if got := started.reset(); got.State != api.ResetRunning || got.Rule != "user" || got.By != "loopback 127.0.0.1" || path != "/api/v1/rule-resets/1" {
		t.Errorf("started: %s %+v", path, got)
	}
	if policy := <-f.begun; policy != "rule/user" {
		t.Errorf("policy %s is reset", policy)
	}
	again := d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`)
	again.problem(409, "reset 1 of this rule is under way")
	if again.header.Get("Location") != path {
		t.Errorf("409 with Location %s", again.header.Get("Location"))
	}
	f.step <- nil
	f.step <- nil
	half := d.until(path, func(r api.RuleReset) bool { return r.Done == 2 })
	if half.State != api.ResetRunning || half.Total != 3 || half.States != 1 || half.EndedAt != 0 {
		t.Errorf("under way: %+v", half)
	}
	f.step <- nil
	end := d.until(path, func(r api.RuleReset) bool { return r.State != api.ResetRunning })
	if end.State != api.ResetDone || end.Done != 3 || end.States != 2 || end.EndedAt < end.StartedAt {
		t.Errorf("at the end: %+v", end)
	}

	second := d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).is(202).header.Get("Location")
	f.step <- errors.Join(stint.ErrUnavailable)
	if got := d.until(second, func(r api.RuleReset) bool { return r.State != api.ResetRunning }); got.State != api.ResetFailed || !strings.Contains(got.Error, "the store was away") {
		t.Errorf("failed: %+v", got)
	}
	third := d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).is(202).header.Get("Location")
	f.step <- nil
	if got := d.ask("DELETE", third, "").is(200).reset(); got.State != api.ResetCancelled || got.Done != 1 {
		t.Errorf("cancelled: %+v", got)
	}
	for _, ended := range []string{path, second, third} {
		d.ask("DELETE", ended, "").is(200)
	}
	d.ask("GET", "/api/v1/rule-resets/9", "").problem(404, "no reset 9")
	var list api.RuleResetList
	d.ask("GET", "/api/v1/rule-resets", "").is(200).into(&list)
	if len(list.Resets) != 3 || list.Resets[0].Reset != 3 || list.Resets[2].Reset != 1 {
		t.Errorf("the list is %+v", list)
	}
	log := strings.Join(d.auditLines(), "\n")
	for _, want := range []string{
		"action=reset_rule outcome=started rule=user", "action=reset_rule outcome=done rule=user", "action=reset_rule outcome=failed rule=user",
		"action=reset_rule outcome=cancelled rule=user",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the records lack %q:\n%s", want, log)
		}
	}
	for outcome, want := range map[string]int{"done": 1, "unchanged": 3} { // of four cancellations one found a reset to cancel
		if got := strings.Count(log, "action=cancel_reset outcome="+outcome+" rule=user"); got != want {
			t.Errorf("%d cancellations are recorded as %s, want %d:\n%s", got, outcome, want, log)
		}
	}
	metrics := d.get(api.PathMetrics).body
	for _, want := range []string{
		"rate_limiter_rule_resets_running 0", `rate_limiter_rule_resets_total{outcome="done"} 1`,
		`rate_limiter_rule_resets_total{outcome="failed"} 1`, `rate_limiter_rule_resets_total{outcome="cancelled"} 1`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestResetsAreBounded(t *testing.T) {
	d, f := newResetDesk(t)
	for _, rule := range []string{"user", "login", "site", "key"} {
		d.ask("POST", "/api/v1/rules/"+rule+"/reset", `{"all":true}`).is(202)
		<-f.begun
	}
	d.ask("POST", "/api/v1/rules/cost/reset", `{"all":true}`).problem(429, "at most 4 at once")
	d.ask("DELETE", "/api/v1/rule-resets/2", "").is(200)
	d.ask("POST", "/api/v1/rules/cost/reset", `{"all":true}`).is(202)
	<-f.begun
	// Those that ended are forgotten, those that run are not.
	for range 70 {
		location := d.ask("POST", "/api/v1/rules/cost/reset", `{"all":true}`).header.Get("Location")
		d.ask("DELETE", location, "").is(200)
	}
	var list api.RuleResetList
	d.ask("GET", "/api/v1/rule-resets", "").into(&list)
	running := 0
	for _, reset := range list.Resets {
		if reset.State == api.ResetRunning {
			running++
		}
	}
	if len(list.Resets) != 64 || running != 3 {
		t.Errorf("%d resets are known, %d of them running", len(list.Resets), running)
	}
	// The server ends, and with it what runs.
	d.stop()
	if err := d.end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if !strings.Contains(d.log.String(), "action=reset_rule outcome=cancelled rule=user") {
		t.Error("the end of a reset is not recorded")
	}
}

// The store in memory resets a rule by itself, and no other rule's clients.
func TestResetARuleInMemory(t *testing.T) {
	d := newDesk(t, registry.NewMemory(), nil).fill()
	spend := func(body string) int64 {
		t.Helper()
		return d.postPublic(evaluate, body).evaluated(200).Remaining
	}
	for i := range 50 {
		spend(fmt.Sprintf(`{"path":"/user","attributes":{"userId":"u%d"}}`, i))
	}
	spend(`{"path":"/tokens"}`)
	path := d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).is(202).header.Get("Location")
	end := d.until(path, func(r api.RuleReset) bool { return r.State != api.ResetRunning })
	if end.State != api.ResetDone || end.Done != end.Total || end.States != 50 {
		t.Errorf("at the end: %+v", end)
	}
	for i := range 50 {
		if left := spend(fmt.Sprintf(`{"path":"/user","attributes":{"userId":"u%d"}}`, i)); left != 2 {
			t.Errorf("client %d has %d left", i, left)
		}
	}
	if left := spend(`{"path":"/tokens"}`); left != 8 {
		t.Errorf("another rule's client has %d left", left)
	}
}

// All clients are reset only by who asks for it in so many words.
func TestNobodyResetsAllByMistake(t *testing.T) {
	d, f := newResetDesk(t)
	for body, want := range map[string]string{
		`{}`: `without key and all; allowed: {"key": CLIENT} for one client, or {"all": true}`, `null`: "the body",
		`{"all":false}`: "all is false; allowed: true", `{"all":null}`: "all", `{"all":"true"}`: "all",
		`{"key":"a","all":true}`: "the body is one with both key and all; allowed: one of them", `{"key":"a","all":false}`: "one of them",
	} {
		d.ask("POST", "/api/v1/rules/user/reset", body).problem(400, want)
	}
	var list api.RuleResetList
	d.ask("GET", "/api/v1/rule-resets", "").is(200).into(&list)
	if len(list.Resets) != 0 {
		t.Errorf("resets have begun: %+v", list)
	}
	d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).is(202)
	<-f.begun
}

// A store that can't reset a rule says so.
func TestResetNeedsAForgetter(t *testing.T) {
	d := newDesk(t, registry.NewMemory(), func(c *server.Config) { c.Store = struct{ stint.Store }{c.Store} }).fill()
	d.ask("POST", "/api/v1/rules/user/reset", `{"all":true}`).problem(501, "one by one")
	d.ask("POST", "/api/v1/rules/user/reset", `{"key":"ann"}`).is(200)
}
