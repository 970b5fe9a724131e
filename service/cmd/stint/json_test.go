package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rest"
)

// jsonOf runs a command with --json and decodes what it prints, of which every member must be known.
func jsonOf(t *testing.T, variables map[string]string, wantCode int, v any, args ...string) {
	t.Helper()
	code, stdout, stderr := do(t, variables, append(args, "--json")...)
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil || code != wantCode || stderr != "" {
		t.Errorf("%q: exit code %d, %q, %q: %v", args, code, stdout, stderr, err)
	}
}

// Each command that answers does so as JSON if asked.
func TestEveryCommandAnswersAsJSON(t *testing.T) {
	base, admin := startAdmin(t)
	variables := map[string]string{"STINT_SERVER": base, "STINT_ADMIN": admin}
	good := writeFile(t, `[{id: none, match: {path: /none}, scope: global, banned: true}, {id: off, enabled: false, scope: global, unlimited: true}]`)
	bad := writeFile(t, "- {id: moon, scope: per_moon, banned: true}\n")

	var info rest.Info
	jsonOf(t, nil, exitOK, &info, "version")
	if info.GoVersion == "" || info.Version == "" {
		t.Errorf("%+v", info)
	}
	var valid []validation
	jsonOf(t, nil, exitOK, &valid, "rules", "validate", good)
	if len(valid) != 1 || valid[0].Path != good || !valid[0].Valid || valid[0].Rules != 2 || valid[0].Enabled != 1 {
		t.Errorf("%+v", valid)
	}
	jsonOf(t, nil, exitUsage, &valid, "rules", "validate", good, bad)
	if len(valid) != 2 || valid[1].Valid || len(valid[1].Faults) != 1 || valid[1].Faults[0].Line != 1 || !strings.Contains(valid[1].Faults[0].Detail, "per_moon") {
		t.Errorf("%+v", valid)
	}
	var explained adminapi.Explanation
	jsonOf(t, nil, exitDenied, &explained, "rules", "explain", "--rules", good, "--path", "/none")
	if explained.Allowed || explained.Rule != "none" || explained.Reason != "banned" {
		t.Errorf("%+v", explained)
	}
	var changes adminapi.RuleChanges
	jsonOf(t, variables, exitFailed, &changes, "rules", "diff", good)
	var edited adminapi.Edited
	jsonOf(t, variables, exitOK, &edited, "rules", "apply", good)
	var list adminapi.RuleList
	jsonOf(t, variables, exitOK, &list, "rules", "list")
	var revisions adminapi.RuleRevisionList
	jsonOf(t, variables, exitOK, &revisions, "rules", "revisions")
	jsonOf(t, variables, exitOK, &edited, "rules", "rollback", "0")
	if len(changes.Added) != 2 || len(list.Rules) != 2 || len(revisions.Revisions) != 1 || len(edited.Removed) != 2 {
		t.Errorf("%+v, %+v, %+v, %+v", changes, list, revisions, edited)
	}
	var checked api.CheckResponse
	jsonOf(t, variables, exitOK, &checked, "check", "k", "--permits", "7")
	var left api.RemainingResponse
	jsonOf(t, variables, exitOK, &left, "peek", "k")
	if checked.Remaining != 93 || left.Remaining < 93 { // 10 come back each second
		t.Errorf("%+v, %+v", checked, left)
	}
	var reset api.ResetResponse
	jsonOf(t, variables, exitOK, &reset, "reset", "k")

	jsonOf(t, variables, exitOK, &checked, "check", "k", "--permits", "50", "--algorithm", "FIXED_WINDOW")
	var held adminapi.ClientExplanation
	jsonOf(t, variables, exitOK, &held, "holds", "nobody")
	transcript(t, "adminfaults.txt", variables)
	var done adminapi.RuleReset
	jsonOf(t, variables, exitOK, &done, "reset-all", "--yes")
	jsonOf(t, variables, exitOK, &left, "peek", "k", "--algorithm", "FIXED_WINDOW")
	if done.State != adminapi.ResetDone || left.Remaining != 100 {
		t.Errorf("%+v, %+v", done, left)
	}
}

// At its start the service says where state lives, without the password.
func TestStoreIsNamedAtStart(t *testing.T) {
	t.Parallel()
	_, log := start(t)
	if want := `level=INFO msg=store url=memory:// shared=false note="state lives in this process alone`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, log)
	}
	_, log = start(t, "--store", "redis://user:hunter2@127.0.0.1:1/3", "--on-store-failure", "local", "--store-key-prefix", "mine")
	if want := `level=INFO msg=store url=redis://redacted@127.0.0.1:1/3 shared=true key_prefix=mine on_store_failure=local`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %s:\n%s", want, log)
	}
}

// Callers who may name keys can see facts about the store and the rules.
func TestHealthDetails(t *testing.T) {
	t.Parallel()
	url, _ := start(t, "--store", "redis-sentinel://user:hunter2@127.0.0.1:1/main", "--on-store-failure", "closed", "--instances", "auto")
	body := asked(t, http.DefaultClient, url+apipath.Health+"?details=true")
	var health rest.Health
	if err := json.Unmarshal([]byte(body), &health); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for name, want := range map[string]any{
		"mode": "sentinel", "on_store_failure": "closed", "on_overload": "reject", "key_prefix": "rate_limiter", "instances": 1.0,
		"url": "redis-sentinel://redacted@127.0.0.1:1/main",
	} {
		if got := health.Components["store"].Details[name]; got != want {
			t.Errorf("store: %s is %v, want %v", name, got, want)
		}
	}
	if rules := health.Components["rules"].Details; rules["state"] != "unknown" || rules["from"] == "" {
		t.Errorf("rules: %v", rules)
	}
}
