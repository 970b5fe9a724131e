package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
	transcript(t, "check.txt", map[string]string{"STINT_SERVER": url})
}

func TestRefusedQuestions(t *testing.T) {
	url, _ := start(t)
	transcript(t, "refused.txt", map[string]string{"STINT_SERVER": url}, "LONG", strings.Repeat("k", 257))
}

func TestTokens(t *testing.T) {
	const token = "sesame-sesame-sesame"
	url, log := start(t, "--api-tokens-file", writeFile(t, "# door\n"+token+"\n"))
	transcript(t, "tokens.txt", map[string]string{"STINT_SERVER": url}, "TOKEN", token)
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
		if strings.HasPrefix(r.URL.Path, "/silent/") {
			_, _ = io.Copy(io.Discard, r.Body) // then net/http sees that the client leaves
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer other.Close()
	transcript(t, "notstint.txt", nil, "OTHER", other.URL, "NOBODY", "127.0.0.1:1")
}

func TestAskStoreDirectly(t *testing.T) {
	store := testredis.Start(t).URL()
	file := writeFile(t, slow)
	url, _ := start(t, "--config", file, "--store", store, "--store-timeout=10s")
	transcript(t, "direct.txt", nil, "BASE", url, "DIRECT", "--store "+store+" --config "+file+" --store-timeout=10s")
}
