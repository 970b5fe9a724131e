package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
)

// Policies, defaults and rules of the configuration's own file are followed. A file with a fault changes nothing, and
// health and metrics say so. What a client has used counts on.
func TestLimitsAreFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stint.yaml")
	text := func(limit, capacity, perAddress string) string {
		return "policies: {mail: [{algorithm: fixed_window, limit: " + limit + ", window: 365d}]}\n" +
			"defaults: {token_bucket: {capacity: " + capacity + ", refill: 1/24h}}\n" +
			"rules: [{id: login, scope: global, limits: [{algorithm: fixed_window, limit: " + perAddress + ", window: 365d}]}]\n"
	}
	put(t, file, text("3", "5", "7"))
	url, log := start(t, "--config", file)
	check := func(query, want string) bool {
		t.Helper()
		_, body := get(t, url+apipath.Remaining+"?key=ann&"+query)
		return strings.Contains(body, want)
	}
	for _, query := range []string{"policy=mail", "algorithm=TOKEN_BUCKET"} {
		if status, body := get(t, url+apipath.Check+"?key=ann&"+query); status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
	}
	if !check("policy=mail", `"limit":3,"remaining":2`) {
		t.Fatal("the policy of the start does not hold")
	}
	put(t, file, text("30", "50", "70"))
	eventually(t, "the new policy is in force", func() bool { return check("policy=mail", `"limit":30,"remaining":29`) })
	eventually(t, "the new default is in force", func() bool { return check("algorithm=TOKEN_BUCKET", `"limit":50,"remaining":4`) })
	awaitLog(t, log, "changed=[login]")

	metrics := func(want string) bool {
		_, body := get(t, url+apipath.Metrics)
		return strings.Contains(body, want)
	}
	put(t, file, text("many", "500", "700"))
	eventually(t, "the faulty file is refused", func() bool {
		return metrics("rate_limiter_limits_refused_total 1\n") && metrics("rate_limiter_limits_current 0\n") && metrics("rate_limiter_rules_current 0\n")
	})
	_, health := get(t, url+apipath.Health)
	if !strings.Contains(health, "the new configuration is refused; the current limits stay in force") || !check("policy=mail", `"limit":30`) {
		t.Errorf("health says %s", health)
	}
	_, health = get(t, url+apipath.Health+"?details=true")
	if !strings.Contains(health, `"state":"refused"`) || !strings.Contains(health, `policies.mail[0].limit is \"many\"`) {
		t.Errorf("with details, health says %s", health)
	}
	if !strings.Contains(log.String(), `policies.mail[0].limit is \"many\"`) {
		t.Errorf("the log does not name the fault:\n%s", log)
	}

	put(t, file, strings.Replace(text("300", "500", "700"), "mail:", "letters:", 1)+"drain: {delay: 7s}\n")
	eventually(t, "the policy has another name", func() bool { return check("policy=letters", `"limit":300,"remaining":300`) })
	if status, _ := get(t, url+apipath.Check+"?key=ann&policy=mail"); status != http.StatusBadRequest {
		t.Errorf("a policy that is gone answers %d", status)
	}
	eventually(t, "all is well again", func() bool {
		return metrics("rate_limiter_limits_current 1\n") && metrics("rate_limiter_rules_current 1\n")
	})
	awaitLog(t, log, "settings=[drain.delay]")
	if !strings.Contains(log.String(), "added=[letters] removed=[mail]") {
		t.Errorf("the log does not say what changed:\n%s", log)
	}
}
