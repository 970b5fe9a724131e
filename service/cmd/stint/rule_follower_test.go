package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
)

// evaluated asks about a request and returns the status and the rules that matched.
func evaluated(t *testing.T, url, body string) (status int, matched []string) {
	t.Helper()
	status, text := fetch(t, http.MethodPost, url+apipath.Evaluate, body)
	var answer struct{ Matched []string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return status, answer.Matched
}

const login = `{"method":"POST","path":"/login","ip":"192.0.2.1"}`

func ruleFile(id, limit string) string {
	return "- id: " + id + "\n  match: {path: /login}\n  scope: per_ip\n  limits: [{algorithm: fixed_window, limit: " + limit + ", window: 10d}]\n"
}

// Rules of the configuration decide from the first request on.
func TestServeRules(t *testing.T) {
	t.Parallel()
	url, _ := start(t, "--config", writeFile(t, someRules))
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if status, matched := evaluated(t, url, login); status != want || strings.Join(matched, " ") != "login everybody" {
			t.Errorf("request %d: %d, %v, want %d", i, status, matched, want)
		}
	}
	says(t, nil, exitUsage, "missing", "serve", "--config", writeFile(t, "rules: [{id: a, scope: per_user, banned: true}]"))
	says(t, nil, exitUsage, "/no/such/rules", "serve", "--rules-from", "/no/such/rules")
}

// Rules in a file are followed: what changes is in force, what is wrong is not, and clients keep
// their state.
func TestServeFollowsRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, path, ruleFile("login", "2"))
	url, log := start(t, "--rules-from", path)
	current(t, url, "1")
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if status, _ := evaluated(t, url, login); status != want {
			t.Fatalf("by the first rules: %d, want %d", status, want)
		}
	}

	put(t, path, strings.Replace(ruleFile("login", "3"), "per_ip", "per_moon", 1))
	eventually(t, "the faulty rules are refused", func() bool { return strings.Contains(log.String(), "per_moon") })
	if status, _ := evaluated(t, url, login); status != http.StatusTooManyRequests {
		t.Errorf("after faulty rules: %d, want those from before", status)
	}
	eventually(t, "the refusal is counted", func() bool {
		_, metrics := get(t, url+apipath.Metrics)
		return strings.Contains(metrics, "rate_limiter_rules_refused_total 1")
	})
	current(t, url, "0")
	ruleHealth(t, url, `"state":"refused"`, `"detail":"the new rules are refused`, "per_moon")
	if !strings.Contains(log.String(), "the new rules are refused; the current rules stay in force") || strings.Contains(log.String(), "again") {
		t.Errorf("the log:\n%s", log)
	}
	put(t, path, ruleFile("login", "2"))
	current(t, url, "1")
	ruleHealth(t, url, `"rules":{"status":"UP","details":{`, `"state":"current"`)
	eventually(t, "it is said", func() bool { return strings.Contains(log.String(), "new rules are accepted again") })
	if strings.Contains(log.String(), "rules changed") {
		t.Errorf("the log:\n%s", log)
	}

	put(t, path, ruleFile("login", "4")+ruleFile("also", "9"))
	eventually(t, "the new rules are in force", func() bool { return strings.Contains(log.String(), "rules changed") })
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if status, matched := evaluated(t, url, login); status != want || strings.Join(matched, " ") != "also login" {
			t.Errorf("by the new rules: %d, %v, want %d: two of four are taken", status, matched, want)
		}
	}
	for _, want := range []string{"added=[also]", "changed=[login]", "removed=[]"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
}
