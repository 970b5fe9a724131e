package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// One client of a rule gets something else, for a time or for ever, and what holds is listed with what is left of it.
func TestOverrideCommand(t *testing.T) {
	t.Parallel()
	base, admin := startAdmin(t)
	file := writeFile(t, `
rules:
  - id: login
    match: {path: /login}
    scope: per_ip
    limits: [{algorithm: fixed_window, limit: 1, calendar: year}]
`)
	env := map[string]string{"STINT_ADMIN": admin, "STINT_SERVER": base}
	request := "--path /login --ip 192.0.2.1"
	for _, step := range []struct {
		args string
		code int
		want string // in the output
	}{
		{"rules apply " + file, exitOK, "added login"},
		{"rules override login", exitOK, "CLIENT  ALLOWS  UNTIL"},
		{"rules override login 192.0.2.1", exitFailed, "404"},
		{"check " + request, exitOK, "allowed"},
		{"check " + request, exitDenied, "reason       limit"},
		{"rules override login 192.0.2.1 --limit fixed_window:3:365d --for 2h --comment launch", exitOK, "192.0.2.1  3 per 365d (fixed_window)  2"},
		{"rules override login", exitOK, " left\n"},
		{"check " + request, exitOK, "allowed"},
		{"rules override login 192.0.2.1 --limit 2/1h --limit fixed_window:3:365d --until 2027-01-01T00:00:00+01:00", exitOK, "2026-12-31T23:00:00Z, "},
		{"rules override login 192.0.2.1 --banned --until 2001-01-01T00:00:00Z", exitOK, "banned  2001-01-01T00:00:00Z, ended"},
		{"check " + request, exitDenied, "reason       limit"},
		{"rules override login 192.0.2.1 --unlimited --reset", exitOK, "192.0.2.1  unlimited  removed"},
		{"check " + request, exitOK, "allowed"},
		{"rules override login 192.0.2.1 --json", exitOK, `{"key":"192.0.2.1","unlimited":true}`},
		{"rules override login 192.0.2.1 --remove", exitOK, "192.0.2.1: no override any more"},
		{"check " + request, exitOK, "allowed"},
		{"check " + request, exitDenied, "reason       limit"},
		{"rules override login 192.0.2.1 --remove --banned", exitUsage, "--remove is given with what is to hold"},
		{"rules override login 192.0.2.1 --for 2h", exitUsage, "nothing says what 192.0.2.1 may do; allowed: --limit, --unlimited or --banned"},
		{"rules override login 192.0.2.1 --unlimited --banned", exitFailed, "exactly one of"},
		{"rules override login 192.0.2.1 --banned --for 2", exitFailed, "2 has no unit; did you mean 2s?"},
		{"rules override login 192.0.2.1 --limit few", exitUsage, `--limit is "few"`},
		{"rules override login --banned", exitUsage, "no client is named"},
		{"rules override", exitUsage, "there are 0 arguments; allowed: the ID of a rule, and a client of it"},
		{"rules override nobody", exitFailed, `there is no rule "nobody"`},
	} {
		code, stdout, stderr := do(t, env, strings.Fields(step.args)...)
		if code != step.code || !strings.Contains(stdout+stderr, step.want) {
			t.Fatalf("stint %s exits with %d: %s%s, want %d and %s", step.args, code, stdout, stderr, step.code, step.want)
		}
	}
}

// What is left of an override is said in whole seconds, and never too much.
func TestOverrideLeft(t *testing.T) {
	var o overrideRow
	if err := json.Unmarshal([]byte(`{"key":"ann","unlimited":true,"until":"2026-12-24T18:00:00Z"}`), &o); err != nil {
		t.Fatal(err)
	}
	until := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		2*time.Hour + 700*time.Millisecond: "2026-12-24T18:00:00Z, 2h0m0s left", time.Second: "2026-12-24T18:00:00Z, 1s left", 0: "2026-12-24T18:00:00Z, ended",
	} {
		if row := o.row(until.Add(-left)); row[2] != want {
			t.Errorf("%v before its end: %s, want %s", left, row[2], want)
		}
	}
}
