package docs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
	"github.com/stint-go/stint/internal/testredis"
)

// What the page on Kubernetes says of probes when Redis is unreachable, by the mode.
func TestProbesWithoutRedis(t *testing.T) {
	const closedRule = `
rules: [{id: login, scope: global, on_store_failure: closed, limits: [{algorithm: fixed_window, limit: 5, window: 24h}]}]
`
	for mode, want := range map[string]struct{ ready, check, evaluate string }{
		"open":   {"200", "200", "503"},
		"local":  {"200", "200", "503"},
		"closed": {"503", "503", "503"},
	} {
		redis := testredis.Start(t)
		s := serve(t, fmt.Sprintf("store: {url: %q}\non_store_failure: %s\n%s", redis.URL(), mode, closedRule), nil)
		const curl = `curl -s -o /dev/null -w '%{http_code}' localhost:8080`
		readiness := func() string { return s.shell(t, curl+"/actuator/health/readiness") }
		check := func() string { return s.shell(t, "curl -s localhost:8080/api/v1/rate-limit/check?key=ann") }
		within(t, mode+": ready with Redis", func() bool { return readiness() == "200" && strings.Contains(check(), `"source":"store"`) })
		must.Do(t, redis.Kill())
		within(t, mode+": the outage is noticed", func() bool {
			text := check()
			return strings.Contains(text, `"degraded":true`) || strings.Contains(text, `"status":503`)
		})
		within(t, mode+": readiness is "+want.ready, func() bool { return readiness() == want.ready })
		if got := s.shell(t, curl+"/actuator/health/liveness"); got != "200" {
			t.Errorf("%s: liveness is %s", mode, got)
		}
		if got := s.shell(t, curl+"/api/v1/rate-limit/check?key=ann"); got != want.check {
			t.Errorf("%s: a check is %s, want %s", mode, got, want.check)
		}
		if got := s.shell(t, curl+`/api/v1/rate-limit/evaluate -d '{"path": "/"}'`); got != want.evaluate {
			t.Errorf("%s: a rule that is closed answers %s, want %s", mode, got, want.evaluate)
		}
	}
}

// within waits for a condition that should come soon.
var within = testprogram.Until
