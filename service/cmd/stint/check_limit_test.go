package main

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

// A limit of the command line is kept by a store under a name of its own, for check, peek and reset.
func TestLimitOfTheCommandLine(t *testing.T) {
	redis := testredis.Start(t)
	ask := func(want int, args ...string) string {
		t.Helper()
		args = append([]string{args[0], "--store", redis.URL(), "--store-timeout=1m", "--timeout=1m"}, args[1:]...)
		code, stdout, stderr := do(t, nil, args...)
		if code != want {
			t.Fatalf("stint %s exits with %d, want %d:\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
		}
		return stdout + stderr
	}
	for range 3 {
		ask(exitOK, "check", "nightly", "--limit", "3/1h")
	}
	ask(exitDenied, "check", "nightly", "--limit", "3/1h")
	ask(exitOK, "check", "weekly", "--limit", "3/1h")
	ask(exitOK, "check", "nightly", "--limit", "3/1h", "--name", "other")
	ask(guardDenied, "check", "nightly", "--limit", "3/1h", "--", "false")
	if said := ask(exitOK, "peek", "nightly", "--limit", "3/1h", "--json"); !strings.Contains(said, `"remaining":0`) {
		t.Errorf("peek says %s", said)
	}
	ask(exitOK, "reset", "nightly", "--limit", "3/1h")
	if said := ask(exitOK, "check", "nightly", "--limit", "3/1h", "--json"); !strings.Contains(said, `"algorithm":"SLIDING_WINDOW_LOG","limit":3,"remaining":2`) {
		t.Errorf("after a reset, check says %s", said)
	}
	if said := ask(exitOK, "check", "k", "--limit", "{algorithm: token_bucket, capacity: 10, refill: 1/1m}", "--json"); !strings.Contains(said, `"limit":10,"remaining":9`) {
		t.Errorf("by a token bucket, check says %s", said)
	}
	// The store may be the environment's.
	inherited := map[string]string{"STINT_STORE": redis.URL(), "STINT_STORE_TIMEOUT": "1m"}
	if code, said, stderr := do(t, inherited, "peek", "weekly", "--limit", "3/1h", "--timeout=1m"); code != exitOK || !strings.Contains(said, "remaining    2\n") {
		t.Errorf("with STINT_STORE, peek exits with %d: %s%s", code, said, stderr)
	}
	// A policy of the configuration has a state of its own.
	config := writeFile(t, "policies: {default: [{algorithm: sliding_window_log, limit: 3, window: 1h}]}\n")
	if said := ask(exitOK, "check", "nightly", "--config", config, "--policy", "default", "--json"); !strings.Contains(said, `"remaining":2`) {
		t.Errorf("by a policy of that name, check says %s", said)
	}
}

func TestLimitOfTheCommandLineIsRefused(t *testing.T) {
	const store = "redis://127.0.0.1:1"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--limit", "3/1m"}, "--limit is given without a store; allowed: with the URL of a shared one in --store or STINT_STORE"},
		{[]string{"--limit", "3/1m", "--server", "http://127.0.0.1:1"}, "--server is given beside --store or --limit"},
		{[]string{"--store", store, "--limit", "3"}, `--limit is "3"; allowed: N/DURATION`},
		{[]string{"--store", store, "--limit", "0/1m"}, `--limit is "0/1m"`},
		{[]string{"--store", store, "--limit", "3/9000d"}, `--limit is "3/9000d"`},
		{[]string{"--store", store, "--limit", "{algorithm: moon, limit: 1}"}, `the limit.algorithm is "moon"`},
		{[]string{"--store", store, "--limit", "{algorithm: fixed_window, limit: 1}"}, "window"},
		{[]string{"--store", store, "--limit", "a: [b"}, "--limit:2:1"},
		{[]string{"--store", store, "--limit", "3/1m", "--policy", "x"}, "--limit and --policy are given"},
		{[]string{"--store", store, "--limit", "3/1m", "--name", "caf\u00e9"}, "--name is"},
		{[]string{"--store", store, "--limit", "3/1m", "--name", ""}, `--name is ""`},
		{[]string{"--name", "x"}, "--name is given without --limit"},
	} {
		code, _, stderr := do(t, nil, append([]string{"check", "k"}, test.args...)...)
		if code != exitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: %d, %s; want %s", test.args, code, stderr, test.want)
		}
	}
}

const loginRules = `
rules:
  - {id: login, set: web, match: {methods: [POST], path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 2, window: 365d}]}
  - {id: quota, match: {path: /quota}, scope: global, otherwise: extra, limits: [{algorithm: fixed_window, limit: 1, window: 365d}],
     classes: {by: {attribute: class}, keep: {critical: 0%, batch: 40%}, default: batch}}
  - {id: extra, match: {path: /extra}, scope: global, limits: [{algorithm: token_bucket, capacity: 5, refill: 1/1h}]}
  - {id: users, match: {path: /mine}, scope: per_user, missing: deny, missing_status: 401, limits: [{algorithm: fixed_window, limit: 2, window: 365d}]}
`

// The rules of a running service decide a request that flags describe, and explain one.
func TestRequestOfTheCommandLine(t *testing.T) {
	base, admin := startAdmin(t, "--rules-from", writeFile(t, loginRules))
	request := []string{"--method", "POST", "--path", "/login?x=1", "--ip", "192.0.2.1", "--header", "X-A: b", "--attribute", "plan=free"}
	ask := func(want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := do(t, nil, args...)
		if code != want {
			t.Fatalf("stint %s exits with %d, want %d:\n%s%s", strings.Join(args, " "), code, want, stdout, stderr)
		}
		return stdout + stderr
	}
	check := append([]string{"check", "--server", base}, request...)
	explain := append([]string{"rules", "explain", "--admin", admin}, request...)
	if said := ask(exitOK, explain...); !strings.Contains(said, "login  limited  192.0.2.1  1     yes      2") {
		t.Errorf("explain says\n%s", said)
	}
	if said := ask(exitOK, check...); !strings.Contains(said, "rule         login\n") || !strings.Contains(said, "remaining    1\n") {
		t.Errorf("check says\n%s", said)
	}
	ask(exitOK, append(check, "--", "true")...)
	if said := ask(exitDenied, check...); !strings.Contains(said, "reason       limit\n") {
		t.Errorf("denied, check says\n%s", said)
	}
	ask(guardDenied, append(check, "--", "true")...)
	if said := ask(exitDenied, append(explain, "--json")...); !strings.Contains(said, `"rule":"login"`) {
		t.Errorf("denied, explain says\n%s", said)
	}
	if said := ask(exitDenied, "check", "--server", base, "--path", "/mine"); !strings.Contains(said, "reason   missing per_user\n") {
		t.Errorf("without a user, check says\n%s", said)
	}
	quota := []string{"check", "--server", base, "--path", "/quota"}
	ask(exitOK, quota...)
	if said := ask(exitOK, quota...); !strings.Contains(said, "class        batch\n") || !strings.Contains(said, "via          otherwise\n") {
		t.Errorf("of another rule's limits, check says\n%s", said)
	}
	said := ask(exitOK, "rules", "explain", "--admin", admin, "--path", "/quota")
	for _, want := range []string{
		"quota  limited  *    1     yes      4 ", "rule quota, limits denies: rule quota has 0 of 1 permits left\n", "rule quota, otherwise admits\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("of another rule's limits, explain says\n%s, want %q", said, want)
		}
	}
	if said := ask(exitOK, "check", "--server", base, "--path", "/none"); !strings.Contains(said, "matched  none\n") {
		t.Errorf("of a request without rules, check says\n%s", said)
	}
	if said := ask(exitFailed, append(check, "--set", "web")...); !strings.Contains(said, "api.tokens_file") {
		t.Errorf("with a set and no token, check says\n%s", said)
	}
	for _, args := range [][]string{
		{"check", "k", "--path", "/x"},
		{"check", "--path", "/x", "--store", "redis://127.0.0.1:1"},
		{"check", "--path", "/x", "--permits", "2"},
		{"check", "--path", "/x", "--keep", "2"},
		{"check", "--ip", "x"},
		{"check", "--header", "x", "--server", base},
		{"check"},
		{"rules", "explain", "--admin", admin, "--rules", "x"},
		{"rules", "explain", "--admin", admin, "--store", "redis://127.0.0.1:1"},
		{"rules", "explain", "--admin", "x"},
	} {
		ask(exitUsage, args...)
	}
	nobody := httptest.NewServer(nil)
	nobody.Close()
	where, err := url.Parse(nobody.URL)
	if err != nil {
		t.Fatal(err)
	}
	ask(exitUnreachable, "rules", "explain", "--admin", "http://"+where.Host)
	ask(exitUnreachable, "check", "--server", "http://"+where.Host, "--path", "/x")
}
