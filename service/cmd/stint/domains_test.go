package main

import (
	"net/http"
	"strings"
	"testing"
)

// The domains of files are in force, change with them, and are explained, listed and asked as JSON by those who may.
func TestDomains(t *testing.T) {
	file := writeFile(t, `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: tenant, value: "t*", shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 0}}
`)
	base, admin := startAdmin(t, "--grpc-listen", "127.0.0.1:0", "--envoy-config", file)
	explain := func(code int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := do(t, map[string]string{"STINT_ADMIN": admin}, append([]string{"rules", "explain"}, args...)...)
		if got != code || !strings.Contains(strings.Join(strings.Fields(stdout+stderr), " "), want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s%s", args, got, code, want, stdout, stderr)
		}
	}
	ask := func(status int) {
		t.Helper()
		body := `{"domain": "web", "descriptors": [{"entries": [{"key": "remote_address", "value": "192.0.2.1"}]}]}`
		if got, _ := postJSON(t, base, body); got != status {
			t.Errorf("the service answers %d, want %d", got, status)
		}
	}
	address := []string{"--domain", "web", "--descriptor", "remote_address=192.0.2.1"}
	explain(exitOK, "remote_address=192.0.2.1 admitted web.remote_address, 2 per year 2", address...)
	ask(http.StatusOK)
	ask(http.StatusOK)
	explain(exitDenied, "exceeded web.remote_address, 2 per year 0", address...)
	ask(http.StatusTooManyRequests)
	explain(exitOK, "free=1 unlimited web.free, unlimited - - -", "--domain", "web", "--descriptor", "free=1")
	explain(exitOK, "tenant=t1 shadow web.tenant_t*, 0 per year", "--domain", "web", "--descriptor", "tenant=t1")
	explain(exitOK, "tenant=a,b=c unmatched - - - -", "--domain", "web", "--descriptor", "tenant=a,b=c")
	explain(exitOK, `there is no domain "nobody"`, "--domain", "nobody", "--descriptor", "tenant=a")
	explain(exitUsage, "--descriptor is", "--domain", "web", "--descriptor", "tenant")
	explain(exitUsage, "--path is given beside --domain", "--domain", "web", "--path", "/")
	explain(exitFailed, "descriptors is 0; allowed: 1 to", "--domain", "web")
	if body := asked(t, http.DefaultClient, admin+"/api/v1/domains"); !strings.Contains(body, `"id":"web.remote_address"`) {
		t.Errorf("the domains are %s", body)
	}

	changed := "domain: web\ndescriptors: [{key: remote_address, rate_limit: {unit: year, requests_per_unit: 3}}]\n"
	put(t, file, changed)
	eventually(t, "the changed file is in force", func() bool {
		code, _, _ := do(t, map[string]string{"STINT_ADMIN": admin}, append([]string{"rules", "explain"}, address...)...)
		return code == exitOK
	})
	ask(http.StatusOK) // what was used counts on
	ask(http.StatusTooManyRequests)
}
