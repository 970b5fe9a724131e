package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// startAdmin starts a service whose rules are kept in its store, and returns the URL of its admin listener.
func startAdmin(t *testing.T, flags ...string) (base, admin string) {
	t.Helper()
	base, log := start(t, append([]string{"--admin-listen", "127.0.0.1:0"}, flags...)...)
	eventually(t, "the admin listener's address is logged", func() bool {
		_, rest, found := strings.Cut(log.String(), "service=admin addr=")
		addr, _, whole := strings.Cut(rest, "\n")
		admin = "http://" + strings.TrimSpace(addr)
		return found && whole
	})
	return base, admin
}

func TestAdminister(t *testing.T) {
	t.Parallel()
	base, admin := startAdmin(t)
	file := writeFile(t, `
rules:
  - id: login
    match: {methods: [POST], path: /login}
    scope: per_ip
    limits: [{algorithm: sliding_window_counter, limit: 2, window: 1h}]
  - {id: tokens, enabled: false, labels: {team: ml}, scope: per_user, missing: skip, limits: [{algorithm: token_bucket, capacity: 5, refill: 1/10d}]}
  - {id: day, scope: [per_ip, per_user], missing: skip, on_exceed: shadow, limits: [{algorithm: fixed_window, limit: 9, calendar: day}]}
  - {id: bad, match: {host: bad.example.com}, scope: global, banned: true}
`)
	changed := writeFile(t, `
rules:
  - id: login
    priority: 3
    match: {methods: [POST], path: /login}
    scope: per_ip
    limits: [{algorithm: sliding_window_counter, limit: 1, window: 1h}]
  - {id: all, scope: global, unlimited: true}
`)
	for _, step := range []struct {
		args string
		code int
		want []string // lines of the output, in order; text after … is not compared
	}{
		{"list", exitOK, []string{"ID STATE SCOPE MATCHES ALLOWS"}},
		{"revisions", exitOK, []string{"REVISION TIME BY ACTION RULES COMMENT"}},
		{"diff " + file, exitFailed, []string{"+ bad", "+ day", "+ login", "+ tokens"}},
		{"apply --comment first " + file, exitOK, []string{"+ bad", "+ day", "+ login", "+ tokens", "revision 1: added 4 rules"}},
		{"apply " + file, exitOK, []string{"no difference", "revision 1: nothing changed"}},
		{"diff " + file, exitOK, []string{"no difference"}},
		{"list", exitOK, []string{
			"ID STATE SCOPE MATCHES ALLOWS",
			"bad enforced global bad.example.com banned",
			"day shadow per_ip+per_user all requests 9 per day (fixed_window)",
			"login enforced per_ip POST /login 2 per 1h (sliding_window_counter)",
			"tokens disabled per_user all requests 5 at 1/10d (token_bucket)",
		}},
		{"list --label team:ml", exitOK, []string{"ID STATE SCOPE MATCHES ALLOWS", "tokens disabled…"}},
		{"list --enabled=false", exitOK, []string{"ID STATE SCOPE MATCHES ALLOWS", "tokens disabled…"}},
		{"list --prefix lo", exitOK, []string{"ID STATE SCOPE MATCHES ALLOWS", "login enforced…"}},
		{"diff " + changed, exitFailed, []string{
			"+ all", "- bad", "- day", "- tokens", "~ login",
			`limits: [{"algorithm":"sliding_window_counter","limit":2,"window":"1h"}] -> [{"algorithm":"sliding_window_counter","limit":1,"window":"1h"}]`,
			"priority: (default) -> 3",
		}},
		{"apply " + changed, exitOK, []string{
			"+ all", "- bad", "- day", "- tokens", "~ login", "limits: …", "priority: …",
			"revision 2: added all; removed bad, day, tokens; changed login",
		}},
		{"rollback 1", exitOK, []string{"revision 3: added bad, day, tokens; removed all; changed login"}},
		{"revisions 2", exitOK, []string{
			"revision 2 of 2…", "+ all", "- bad", "- day", "- tokens", "~ login",
			`limits: [{"algorithm":"sliding_window_counter","limit":2,"window":"1h"}] -> [{"algorithm":"sliding_window_counter","limit":1,"window":"1h"}]`,
			"priority: (default) -> 3",
		}},
		{"revisions 9", exitFailed, nil},
		{"revisions --limit 2", exitOK, []string{"REVISION TIME BY ACTION RULES COMMENT", "3 2…", "2 2…"}},
		{"revisions --rule all", exitOK, []string{"REVISION TIME BY ACTION RULES COMMENT", "3 2…", "2 2…"}},
		{"rollback 9", exitFailed, nil},
		{"apply " + filepath.Join(t.TempDir(), "none.yaml"), exitUsage, nil},
	} {
		verb, rest, _ := strings.Cut(step.args, " ")
		args := append([]string{"rules", verb, "--admin", admin}, strings.Fields(rest)...)
		code, stdout, stderr := do(t, nil, args...)
		if code != step.code || step.want == nil && stderr == "" {
			t.Fatalf("%s: exit code %d, want %d: %s%s", step.args, code, step.code, stdout, stderr)
		}
		compareLines(t, step.args, stdout, step.want)
	}
	if status, matched := evaluated(t, base, login); status != http.StatusOK || strings.Join(matched, " ") != "day login" && strings.Join(matched, " ") != "login" {
		t.Errorf("the rules are not in force: %d, %v", status, matched)
	}
}

// compareLines compares output with the lines that are wanted, white space aside.
func compareLines(t *testing.T, what, output string, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if output == "" {
		lines = nil
	}
	for i := range max(len(lines), len(want)) {
		line, wanted := "(nothing)", "(nothing)"
		if i < len(lines) {
			line = strings.Join(strings.Fields(lines[i]), " ")
		}
		if i < len(want) {
			wanted = want[i]
		}
		if begin, open := strings.CutSuffix(wanted, "…"); line != wanted && (!open || !strings.HasPrefix(line, begin)) {
			t.Errorf("%s: line %d is %q, want %q", what, i+1, line, wanted)
		}
	}
}

// A change is not applied if somebody else edits the rules after the comparison.
func TestApplyLosesNoEdit(t *testing.T) {
	_, admin := startAdmin(t)
	mine := writeFile(t, `[{id: mine, scope: global, unlimited: true}]`)
	theirs := writeFile(t, `[{id: theirs, scope: global, unlimited: true}]`)
	meddler := &meddlingProxy{to: admin, meddle: func() {
		if code, _, stderr := do(t, nil, "rules", "apply", "--admin", admin, theirs); code != exitOK {
			t.Error(stderr)
		}
	}}
	code, _, stderr := do(t, nil, "rules", "apply", "--admin", meddler.start(t), mine)
	if code != exitFailed || !strings.Contains(stderr, "somebody else edited the rules") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	_, stdout, _ := do(t, nil, "rules", "list", "--json", "--admin", admin)
	if !strings.Contains(stdout, `"theirs"`) || strings.Contains(stdout, `"mine"`) {
		t.Errorf("the rules are %s", stdout)
	}
}

// A meddlingProxy lets somebody edit rules before the first PUT.
type meddlingProxy struct {
	to     string
	meddle func()
	done   bool
}

func (m *meddlingProxy) start(t *testing.T) string {
	t.Helper()
	target := must.Get(url.Parse(m.to))(t)
	return proxyTo(t, target, func(r *http.Request) {
		if r.Method == http.MethodPut && !m.done {
			m.done = true
			m.meddle()
		}
	})
}

func TestAdministerTokens(t *testing.T) {
	const token = "k3yR3Zt0f9Qm1vXw8sLdPa2bNc6u"
	_, admin := startAdmin(t, "--admin-tokens-file", writeFile(t, token+" read ann\n"))
	rules := writeFile(t, `[{id: mine, scope: global, unlimited: true}]`)
	secret := writeFile(t, token+"\n")
	for _, tt := range []struct {
		args []string
		env  map[string]string
		code int
		want string
	}{
		{[]string{"list"}, nil, exitFailed, "401"},
		{[]string{"list", "--token", token}, nil, exitOK, ""},
		{[]string{"list", "--token-file", secret}, nil, exitOK, ""},
		{[]string{"list"}, map[string]string{"STINT_ADMIN_TOKEN": token}, exitOK, ""},
		{[]string{"apply", "--token", token, rules}, nil, exitFailed, "role"},
		{[]string{"list", "--token", token, "--token-file", secret}, nil, exitUsage, "--token and --token-file"},
		{[]string{"list", "--admin", "ftp://x"}, nil, exitUsage, "--admin is"},
	} {
		args := append([]string{"rules", tt.args[0], "--admin", admin}, tt.args[1:]...)
		code, stdout, stderr := do(t, tt.env, args...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit code %d, want %d: %s%s", tt.args, code, tt.code, stdout, stderr)
		}
	}
}

// proxyTo forwards requests after look has seen them.
func proxyTo(t *testing.T, target *url.URL, look func(*http.Request)) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
