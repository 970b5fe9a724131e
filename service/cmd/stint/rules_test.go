package main

import (
	"fmt"
	"net/http"
	"testing"
)

func TestRules(t *testing.T) {
	t.Parallel()
	transcript(t, "rules.txt", nil, "SCATTERED", writeFile(t, scattered))
}

func TestAdminister(t *testing.T) {
	t.Parallel()
	base, admin := startAdmin(t)
	transcript(t, "administer.txt", map[string]string{"STINT_ADMIN": admin, "STINT_SERVER": base})
}

func TestAdministerTokens(t *testing.T) {
	_, admin := startAdmin(t, "--admin-tokens-file", writeFile(t, "k3yR3Zt0f9Qm1vXw8sLdPa2bNc6u read ann\n"))
	transcript(t, "admintokens.txt", map[string]string{"STINT_ADMIN": admin})
}

func TestOverrideCommand(t *testing.T) {
	t.Parallel()
	base, admin := startAdmin(t)
	transcript(t, "override.txt", map[string]string{"STINT_ADMIN": admin, "STINT_SERVER": base})
}

func TestRuleInShadow(t *testing.T) {
	t.Parallel()
	base, admin := startAdmin(t)
	transcript(t, "shadow.txt", map[string]string{"STINT_ADMIN": admin, "STINT_SERVER": base}, "BASE", base, "ADMIN", admin)
}

// Holders of a token find a client that was denied.
func TestDenialsOfAClient(t *testing.T) {
	t.Parallel()
	const token = "the-token-of-an-operator"
	rules := writeFile(t, `
- {id: login, match: {path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 1, calendar: year}]}
`)
	tokens := writeFile(t, token+" read ann\n")
	base, admin := startAdmin(t, "--rules-from", rules, "--admin-tokens-file", tokens)
	env := map[string]string{"STINT_ADMIN": admin, "STINT_SERVER": base, "STINT_ADMIN_TOKEN": token}
	transcript(t, "denials.txt", env)
	// A denial is found by its ID, behind newer ones whose path has that text.
	for ip, id := range []string{"login", "other", "another"} {
		for range 2 {
			fetch(t, http.MethodPost, base+"/api/v1/rate-limit/evaluate", fmt.Sprintf(`{"path": "/login", "ip": "192.0.2.%d"}`, 3+ip),
				"Content-Type: application/json", "X-Request-ID: "+id)
		}
	}
	says(t, env, 0, "192.0.2.3", "denials", "--id", "login", "--limit", "1")
}
