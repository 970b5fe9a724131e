package docs_test

import (
	"strings"
	"testing"
)

// The job of CI checks a folder of rules, says what would change, and delivers it.
func TestRulesInGit(t *testing.T) {
	jobs := blocks(t, "docs/keeping-rules.md", "sh")
	if len(jobs) != 1 {
		t.Fatalf("%d jobs were found; want 1", len(jobs))
	}
	const job = "COMMIT=4f2a91c; mkdir -p rules; mv *-rules.yaml rules; ("
	service := serve(t, "store: {url: 'memory://'}\n", map[string]string{
		"login-rules.yaml": "- {id: login, match: {path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 5, window: 1m}]}\n",
		"users-rules.yaml": "- {id: users, scope: per_user, missing: skip, limits: [{algorithm: token_bucket, capacity: 5, refill: 1/s}]}\n",
	})
	if out := service.shell(t, job+jobs[0]+`); echo "exit $?"; stint rules list; stint rules revisions`); !strings.Contains(out, "exit 0") ||
		!strings.Contains(out, "login") || !strings.Contains(out, "users") || !strings.Contains(out, "4f2a91c") {
		t.Errorf("the first delivery prints\n%s", out)
	}
	if out := service.shell(t, "COMMIT=again; ("+jobs[0]+`); echo "exit $?"`); !strings.Contains(out, "exit 0") {
		t.Errorf("a delivery without a change prints\n%s", out)
	}
	service.write(t, "faulty-rules.yaml", "- {id: faulty, scope: per_ip, limits: [{algorithm: fixed_window, limit: 0, window: 1m}]}\n")
	if out := service.shell(t, job+jobs[0]+`); echo "exit $?"; stint rules list`); !strings.Contains(out, "exit 2") || strings.Contains(out, "faulty ") {
		t.Errorf("the delivery of a fault prints\n%s", out)
	}
}
