package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/testredis"
)

// slow limits don't refill while a test runs.
const slow = `
defaults:
  token_bucket: {capacity: 5, refill: 1/10d}
policies:
  pair:
    - {algorithm: token_bucket, capacity: 3, refill: 1/10d}
    - {algorithm: sliding_window_log, limit: 2, window: 10d}
`

func TestCheckPeekReset(t *testing.T) {
	url, _ := start(t, "--config", writeFile(t, slow))
	service := map[string]string{"STINT_SERVER": url}
	for _, step := range []struct {
		args   string
		code   int
		stdout []string // the lines' beginnings
	}{
		{"check k", exitOK, []string{"allowed      yes", "limit        5 (TOKEN_BUCKET)", "remaining    4", "resets in    24", "retry after  0s"}},
		{"check k --permits 4", exitOK, []string{"allowed      yes", "limit        5", "remaining    0", "resets in    1", "retry after  0s"}},
		{"check k", exitDenied, []string{"allowed      no", "limit        5", "remaining    0", "resets in    1", "retry after  2"}},
		{"peek k", exitOK, []string{"allowed      no", "limit        5 (TOKEN_BUCKET)", "remaining    0", "resets in    1", "retry after  2"}},
		{"check k --algorithm FIXED_WINDOW", exitOK, []string{"allowed      yes", "limit        100 (FIXED_WINDOW)", "remaining    99"}},
		{"check k --policy pair", exitOK, []string{"allowed      yes", "limit        2 (SLIDING_WINDOW_LOG of policy pair)", "remaining    1"}},
		{"reset k --algorithm token_bucket", exitOK, []string{"reset  k", "under  TOKEN_BUCKET"}},
		{"peek k", exitOK, []string{"allowed      yes", "limit        5 (TOKEN_BUCKET)", "remaining    5", "resets in    0s", "retry after  0s"}},
		{"peek k --policy pair", exitOK, []string{"allowed      yes", "limit        2", "remaining    1"}},
		{"peek k --policy pair --permits 2", exitOK, []string{"allowed      no", "limit        2", "remaining    1", "resets in    2", "retry after  2"}},
		{"check k --permits 9 --algorithm LEAKY_BUCKET", exitOK, []string{"allowed      yes"}},
		{"peek k --algorithm LEAKY_BUCKET", exitOK, []string{"allowed      yes", "limit        100", "remaining    9", "resets in    ", "retry after  0s", "delay        "}},
		{"check k --keep 4", exitOK, []string{"allowed      yes", "limit        5", "remaining    0"}},
		{"check k --keep 4", exitDenied, []string{"allowed      no", "limit        5", "remaining    0"}},
		{"peek k --keep 4", exitOK, []string{"allowed      no", "limit        5", "remaining    0"}},
		{"peek k --keep 2 --permits 2", exitOK, []string{"allowed      yes", "limit        5", "remaining    2"}},
		{"check k --keep 4 --permits 2", exitDenied, []string{"allowed      no", "limit        5", "remaining    0", "resets in    ", "retry after  never"}},
		{"reset k", exitOK, []string{"reset  k", "under  all algorithms and policies"}},
		{"peek k --policy pair", exitOK, []string{"allowed      yes", "limit        2", "remaining    2"}},
		{"reset k --policy pair", exitOK, []string{"reset  k", "under  policy pair"}},
	} {
		code, stdout, stderr := do(t, service, strings.Fields(step.args)...)
		if code != step.code || stderr != "" {
			t.Errorf("%s: exit code %d, want %d; errors %q", step.args, code, step.code, stderr)
		}
		lines := strings.Split(stdout, "\n")
		for i, want := range step.stdout {
			if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
				t.Errorf("%s: line %d is not %q in\n%s", step.args, i+1, want, stdout)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	url, _ := start(t)
	code, stdout, _ := do(t, nil, "check", "k", "--json", "--server", url)
	var answer api.CheckResponse
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || code != exitOK || !answer.Allowed || answer.Remaining != 99 || answer.Source != "store" {
		t.Errorf("exit code %d, %v, %s", code, err, stdout)
	}
}

func TestRefusedQuestions(t *testing.T) {
	url, _ := start(t)
	transcript(t, "refused.txt", map[string]string{"STINT_SERVER": url}, "LONG", strings.Repeat("k", 257))
}

func TestTokens(t *testing.T) {
	const token = "sesame-sesame-sesame"
	url, log := start(t, "--api-tokens-file", writeFile(t, "# door\n"+token+"\n"))
	variables := map[string]string{"STINT_SERVER": url}
	if code, _, stderr := do(t, variables, "check", "k"); code != exitFailed || !strings.HasPrefix(stderr, "stint: 401 Unauthorized: ") {
		t.Errorf("without a token: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := do(t, variables, "check", "k", "--token", token); code != exitOK {
		t.Errorf("with --token: exit code %d, %s", code, stderr)
	}
	variables["STINT_TOKEN"] = token
	if code, _, stderr := do(t, variables, "reset", "k"); code != exitOK {
		t.Errorf("with STINT_TOKEN: exit code %d, %s", code, stderr)
	}
	if strings.Contains(log.String(), token) {
		t.Error("the log shows a token")
	}
}

// TestPeekAtOlderService: what it does not tell is not shown, and what it does not know is not asked.
func TestPeekAtOlderService(t *testing.T) {
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("permits") && r.URL.Path == apipath.Remaining || r.URL.Query().Has("keep") {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"key":"k","algorithm":"TOKEN_BUCKET","limit":5,"remaining":4,"resetAfterSeconds":2}`))
	}))
	t.Cleanup(older.Close)
	code, stdout, stderr := do(t, nil, "peek", "k", "--server", older.URL)
	if want := "limit      5 (TOKEN_BUCKET)\nremaining  4\nresets in  2s\n"; code != exitOK || stdout != want || stderr != "" {
		t.Errorf("exit code %d, errors %q, output\n%s, want\n%s", code, stderr, stdout, want)
	}
	do(t, nil, "check", "k", "--server", older.URL)
}

func TestNotAService(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/moved/") {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	for base, want := range map[string]string{
		other.URL:             " does not answer like stint: 200 OK, ",
		other.URL + "/moved/": " does not answer like stint: 302 Found, ",
	} {
		code, stdout, stderr := do(t, nil, "check", "k", "--server", base)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, output %q, errors %q", base, code, stdout, stderr)
		}
	}
	other.Close()
	code, _, stderr := do(t, nil, "check", "secret-key", "--server", strings.Replace(other.URL, "http://", "http://user:hunter2@", 1))
	if code != exitUnreachable || !strings.HasPrefix(stderr, "stint: http://user:xxxxx@") || strings.Contains(stderr, "hunter2") {
		t.Errorf("nobody there: exit code %d, %s", code, stderr)
	}
}

func TestAskStoreDirectly(t *testing.T) {
	store := testredis.Start(t).URL()
	file := writeFile(t, slow)
	url, _ := start(t, "--config", file, "--store", store, "--store-timeout=10s")
	direct := []string{"--store", store, "--config", file, "--store-timeout=10s"}
	ask := func(where []string, args ...string) (int, string) {
		t.Helper()
		code, stdout, stderr := do(t, nil, append(args, where...)...)
		if stderr != "" {
			t.Errorf("%q: %s", args, stderr)
		}
		return code, stdout
	}
	if code, _ := ask([]string{"--server", url}, "check", "k", "--permits", "2"); code != exitOK {
		t.Errorf("of the service: exit code %d", code)
	}
	if code, out := ask(direct, "check", "k", "--permits", "3"); code != exitOK || !strings.Contains(out, "remaining    0\n") {
		t.Errorf("of the store, after the service took 2 of 5: exit code %d\n%s", code, out)
	}
	if code, out := ask([]string{"--server", url}, "check", "k"); code != exitDenied {
		t.Errorf("of the service, after the store gave the last: exit code %d\n%s", code, out)
	}
	if code, out := ask(direct, "check", "k", "--policy", "pair"); code != exitOK || !strings.Contains(out, "remaining    1\n") {
		t.Errorf("a policy of the store: exit code %d\n%s", code, out)
	}
	ask(direct, "reset", "k")
	if _, out := ask([]string{"--server", url}, "peek", "k"); !strings.Contains(out, "remaining    5\n") {
		t.Errorf("of the service, after a reset of the store:\n%s", out)
	}
}
