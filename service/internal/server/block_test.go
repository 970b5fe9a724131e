package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
)

// A client that a rule blocks is told so, with how long for, and metrics count it.
func TestEvaluateBlocks(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		behindProxies(c)
		c.API.Open = true
		c.Rules = compile(t, []rules.Rule{{
			ID: "login", Scope: []string{rules.Global}, Block: rules.Block{After: 2, For: 24 * time.Hour},
			Limits: []stint.Limit{stint.FixedWindow(1, time.Minute).FromFirst()},
		}})
	})
	for i, want := range []string{`"limit":1,"remaining":0`, `"reason":"limit"`, `"reason":"blocked","limitName":"block"`, `"reason":"blocked","limitName":"block"`} {
		got := f.post(evaluate, `{"path":"/"}`)
		if (got.status == 200) != (i == 0) || !strings.Contains(got.body, want) {
			t.Errorf("request %d: %d %s, want %s", i, got.status, got.body, want)
		}
		if i >= 2 && got.header.Get("Retry-After") != "86400" {
			t.Errorf("request %d: Retry-After %q", i, got.header.Get("Retry-After"))
		}
	}
	if metrics, want := f.get("/metrics").body, `rate_limiter_rule_decisions_total{outcome="blocked",rule="login",set=""} 2`; !strings.Contains(metrics, want) {
		t.Errorf("the metrics lack %s", want)
	}
}
