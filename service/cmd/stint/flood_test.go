package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/activity"
)

// A client that was denied once, by another process than the one that is asked, is found by one command, while many clients and a big
// one flood both processes with denials.
func TestVictimBesideAFlood(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	rules := writeFile(t, `
rules:
  - id: login
    match: {path: /login}
    scope: per_ip
    limits: [{algorithm: fixed_window, limit: 1, calendar: year}]
  - {id: closed, match: {path: /closed}, scope: per_ip, banned: true}
`)
	const token = "the-token-of-an-operator"
	tokens := writeFile(t, token+" read ann\n")
	args := []string{"--store", redis.URL(), "--rules-from", rules, "--admin-tokens-file", tokens}
	near, asked, stopNear := serveAdmin(t, args...)
	far, _, stopFar := serveAdmin(t, args...)
	defer stopNear()
	defer stopFar()
	request := func(url, path, ip string) int {
		status, _ := evaluated(t, url, fmt.Sprintf(`{"method":"POST","path":%q,"ip":%q}`, path, ip))
		return status
	}
	eventually(t, "the victim is denied", func() bool {
		return request(far, "/login?password=x", "192.0.2.1") == http.StatusTooManyRequests
	})
	for i := range 1_000 {
		for _, url := range []string{near, far} {
			for _, ip := range []string{"198.51.100.1", fmt.Sprintf("10.0.%d.%d", i/250, i%250)} {
				if status := request(url, "/closed", ip); status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
					t.Fatalf("a request of the flood is answered %d", status)
				}
			}
		}
	}
	eventually(t, "both processes know of each other", func() bool {
		return len(read[activity.Processes](t, asked+activity.PathProcesses, token).Processes) == 2
	})
	env := map[string]string{"STINT_ADMIN": asked, "STINT_ADMIN_TOKEN": token}
	eventually(t, "the victim is found", func() bool { // unless a process is too busy to answer
		code, stdout, _ := do(t, env, "denials", "--client", "192.0.2.1")
		return code == exitOK && strings.Count(stdout, "\n") == 2 &&
			strings.Contains(stdout, "  login  -      192.0.2.1  limit   1 fixed_window  POST /login  ")
	})
	eventually(t, "nobody else is", func() bool {
		code, stdout, _ := do(t, env, "denials", "--client", "192.0.2.99", "--rule", "login", "--since", "1h")
		return code == exitOK && strings.HasPrefix(stdout, "no denials among the last 20") &&
			strings.Contains(stdout, "; 2 of 2 processes answered; ")
	})
}
