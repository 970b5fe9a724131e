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

// decides expects that requests for login are decided with these statuses, by these rules.
func decides(t *testing.T, url, rules string, statuses ...int) {
	t.Helper()
	for i, want := range statuses {
		if status, matched := evaluated(t, url, login); status != want || strings.Join(matched, " ") != rules {
			t.Errorf("request %d: %d by %v, want %d by %s", i, status, matched, want, rules)
		}
	}
}

const login = `{"method":"POST","path":"/login","ip":"192.0.2.1"}`

func ruleFile(id, limit string) string {
	return "- id: " + id + "\n  match: {path: /login}\n  scope: per_ip\n  limits: [{algorithm: fixed_window, limit: " + limit + ", window: 10d}]\n"
}

// Rules of the configuration decide from the first request on.
func TestServeRules(t *testing.T) {
	t.Parallel()
	url, _ := start(t, "--config", "testdata/rules.yaml")
	decides(t, url, "login everybody", http.StatusOK, http.StatusOK, http.StatusTooManyRequests)
}

// Rules in a file are followed: what changes is in force, what is wrong is not, and clients keep
// their state.
func TestServeFollowsRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, path, ruleFile("login", "2"))
	url, log := start(t, "--rules-from", path)
	current(t, url, "1")
	decides(t, url, "login", http.StatusOK, http.StatusOK, http.StatusTooManyRequests)

	put(t, path, strings.Replace(ruleFile("login", "3"), "per_ip", "per_moon", 1))
	awaitLog(t, log, "per_moon")
	decides(t, url, "login", http.StatusTooManyRequests)
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
	awaitLog(t, log, "new rules are accepted again")
	if strings.Contains(log.String(), "rules changed") {
		t.Errorf("the log:\n%s", log)
	}

	put(t, path, ruleFile("login", "4")+ruleFile("also", "9"))
	awaitLog(t, log, "rules changed")
	decides(t, url, "also login", http.StatusOK, http.StatusOK, http.StatusTooManyRequests) // two of four were taken
	for _, want := range []string{"added=[also]", "changed=[login]", "removed=[]"} {
		awaitLog(t, log, want)
	}
}
