package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// A running example, with the lines of its log.
type running struct {
	t     *testing.T
	url   string
	rules string // the path of the file
	lines logLines
}

// logLines takes a log over, line by line.
type logLines chan string

func (l logLines) Write(text []byte) (int, error) {
	l <- string(text) // slog writes whole lines
	return len(text), nil
}

// start runs the example as its README says, on a free port and with rules of its own to change. What they give back
// in a minute comes in an hour, so that nothing does while a test runs.
func start(t *testing.T, flags ...string) *running {
	t.Helper()
	r := &running{t: t, rules: filepath.Join(t.TempDir(), "rules.yaml"), lines: make(logLines, 1000)}
	text := must.Get(os.ReadFile("rules.yaml"))(t)
	r.put(strings.ReplaceAll(string(text), "1m", "1h"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-listen", "127.0.0.1:0", "-rules", r.rules}, flags...), r.lines)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the example ended: %v", err)
		}
	})
	r.url = "http://" + r.waitFor(`addr=(\S+)`)
	return r
}

// put writes the rules, in one step.
func (r *running) put(text string) {
	r.t.Helper()
	must.Do(r.t, os.WriteFile(r.rules+".new", []byte(text), 0o600))
	must.Do(r.t, os.Rename(r.rules+".new", r.rules))
}

// waitFor waits for a line of the log, and returns the part of it in parentheses.
func (r *running) waitFor(pattern string) string {
	r.t.Helper()
	late := time.After(5 * time.Minute)
	for {
		select {
		case line := <-r.lines:
			if found := regexp.MustCompile(pattern).FindStringSubmatch(line); found != nil {
				return found[1]
			}
		case <-late:
			r.t.Fatalf("the log has no %s", pattern)
		}
	}
}

// ask sends a request, and returns the answer with its body.
func (r *running) ask(method, path, body string, set func(*http.Request)) (*http.Response, string) {
	r.t.Helper()
	request := must.Get(http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body)))(r.t)
	if set != nil {
		set(request)
	}
	response := must.Get(http.DefaultClient.Do(request))(r.t)
	defer func() { _ = response.Body.Close() }()
	text := must.Get(io.ReadAll(response.Body))(r.t)
	return response, string(text)
}

// login signs a user in, and returns what makes a request the user's.
func (r *running) login(user string) func(*http.Request) {
	r.t.Helper()
	_, text := r.ask(http.MethodPost, "/login", "", func(q *http.Request) { q.SetBasicAuth(user, "secret") })
	var session struct{ Token string }
	if err := json.Unmarshal([]byte(text), &session); err != nil || session.Token == "" {
		r.t.Fatalf("%s: %v", text, err)
	}
	return func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+session.Token) }
}

// Passwords can't be guessed, however the path is spelled.
func TestLogin(t *testing.T) {
	r := start(t)
	wrong := func(q *http.Request) { q.SetBasicAuth("eve", "guess") }
	for i, path := range []string{"/login", "/login", "/%6cogin", "/login", "/login"} {
		if response, _ := r.ask(http.MethodPost, path, "", wrong); response.StatusCode != http.StatusUnauthorized {
			t.Errorf("try %d: %s", i, response.Status)
		}
	}
	response, body := r.ask(http.MethodPost, "/%6Cogin", "", wrong)
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" || !strings.Contains(body, `"status":429`) {
		t.Errorf("the sixth try: %s, %v\n%s", response.Status, response.Header, body)
	}
	if rule := r.waitFor(`msg=denied .* rule=(\S+)`); rule != "login" {
		t.Errorf("denied by %s", rule)
	}
}

// A Redis that refuses connections when the program starts does not keep it from serving.
func TestWithoutRedis(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) //nolint:noctx // of a test
	must.Do(t, taken.Close())
	r := start(t, "-redis", "redis://"+taken.Addr().String())
	if response, _ := r.ask(http.MethodPost, "/login", "", func(q *http.Request) { q.SetBasicAuth("ann", "secret") }); response.StatusCode != http.StatusOK {
		t.Errorf("without Redis: %s", response.Status)
	}
}

// Each user has so much, one of them less, and nobody writes without a name.
func TestUsers(t *testing.T) {
	r := start(t)
	ann, bob := r.login("ann"), r.login("bob")
	for i := range 11 {
		want := http.StatusCreated
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		if response, _ := r.ask(http.MethodPost, "/notes", `"note"`, ann); response.StatusCode != want {
			t.Errorf("note %d of ann: %s, want %d", i, response.Status, want)
		}
	}
	for i := range 4 {
		want := http.StatusOK
		if i == 3 {
			want = http.StatusTooManyRequests
		}
		if response, _ := r.ask(http.MethodGet, "/notes", "", bob); response.StatusCode != want {
			t.Errorf("look %d of bob: %s, want %d", i, response.Status, want)
		}
	}
	if response, body := r.ask(http.MethodGet, "/notes", "", ann); response.StatusCode != http.StatusOK || strings.Count(body, "note") != 10 {
		t.Errorf("ann's notes: %s, %s", response.Status, body)
	}
	if response, _ := r.ask(http.MethodPost, "/notes", `"note"`, nil); response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "" {
		t.Errorf("nobody's note: %s, %v", response.Status, response.Header)
	}
}

// Rules change while it runs, and a denied client keeps its state.
func TestRulesChange(t *testing.T) {
	r := start(t)
	wrong := func(q *http.Request) { q.SetBasicAuth("eve", "guess") }
	for range 5 {
		r.ask(http.MethodPost, "/login", "", wrong)
	}
	text := must.Get(os.ReadFile(r.rules))(t)
	r.put(strings.Replace(string(text), "limit: 5,", "limit: 6,", 1))
	r.waitFor(`(rules in force)`)
	for _, want := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
		if response, _ := r.ask(http.MethodPost, "/login", "", wrong); response.StatusCode != want {
			t.Errorf("by the new rules: %s, want %d", response.Status, want)
		}
	}
	r.put("not: rules")
	r.waitFor(`(the rules from before stay)`)
	if response, _ := r.ask(http.MethodPost, "/login", "", wrong); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("after a faulty file: %s", response.Status)
	}
}
