package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testport"
)

// What --demo makes up is seen by stint top, by lines and as JSON, with names for the token that it made.
func TestDemoAndTop(t *testing.T) {
	t.Parallel()
	_, lines, stop := startIn(t, nil, "--demo", "--admin-listen", "127.0.0.1:0")
	token := awaitMatch(t, lines, `admin_token=(\S+)`)
	admin := "http://" + awaitMatch(t, lines, `service=admin addr=(\S+)`)
	if dashboard := awaitMatch(t, lines, `dashboard=(\S+)`); dashboard != admin+"/" {
		t.Errorf("the dashboard is at %s, want %s/", dashboard, admin)
	}
	eventually(t, "the traffic of the demo is seen", func() bool {
		_, out, _ := do(t, nil, "top", "--admin", admin, "--token", token, "--json", "--count", "1")
		return strings.Contains(out, "demo-user-") && strings.Contains(out, "demo-login")
	})
	code, out, stderr := do(t, nil, "top", "--admin", admin, "--token", token, "--count", "3")
	if got := strings.Count(out, "\n"); code != exitOK || got != 3 || !regexp.MustCompile(`admitted=[1-9]`).MatchString(out) || !strings.Contains(out, "store=up") {
		t.Errorf("exit code %d, %s%s", code, out, stderr)
	}
	code, out, stderr = do(t, nil, "top", "--admin", admin, "--token", token, "--json", "--count", "3")
	decoder := json.NewDecoder(strings.NewReader(out))
	for n := range 3 {
		var event map[string]json.RawMessage
		if err := decoder.Decode(&event); code != exitOK || err != nil || len(event) != 1 || n == 0 && event["snapshot"] == nil {
			t.Errorf("exit code %d, event %d: %v, %s%s", code, n, err, out, stderr)
		}
	}
	if code, _, stderr = do(t, nil, "top", "--admin", admin); code == exitOK || !strings.Contains(stderr, "Authorization") {
		t.Errorf("without a token: exit code %d, %s", code, stderr)
	}
	stop()
	if code, _, _ := do(t, nil, "top", "--admin", "http://"+testport.Address(t)); code == exitOK {
		t.Error("top of nothing succeeds")
	}
}

// awaitMatch waits for a line of the log, and returns what its parentheses hold.
func awaitMatch(t testing.TB, log *lines, pattern string) (found string) {
	t.Helper()
	eventually(t, "a line with "+pattern, func() bool {
		match := regexp.MustCompile(pattern).FindStringSubmatch(log.String())
		if match != nil {
			found = match[1]
		}
		return match != nil
	})
	return found
}
