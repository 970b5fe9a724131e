package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// The commands of docs/rules.md meet the rules that the page shows.
func TestRulesGuide(t *testing.T) {
	guide := readFile(t, "../../../docs/rules.md")
	blocks := func(language string) (all []string) {
		for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(guide, -1) {
			all = append(all, found[1])
		}
		return all
	}
	shown := blocks("yaml") // the first rule, one with a partition, one with costs
	if len(shown) != 3 {
		t.Fatalf("the page has %d documents of rules", len(shown))
	}
	rules := writeFile(t, shown[0]+regexp.MustCompile(`(?m)^`).ReplaceAllString(strings.TrimSpace(shown[2]), "  "))

	words := regexp.MustCompile(`'[^']*'|[^\s\\]+`)
	commands := blocks("sh")
	var args []string
	for _, word := range words.FindAllString(regexp.MustCompile(`(?s)stint (rules explain.*?) +#`).FindStringSubmatch(commands[0])[1], -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	for i, arg := range args {
		if arg == "rules.yaml" {
			args[i] = rules
		}
	}
	if code, stdout, stderr := do(t, nil, "rules", "validate", rules); code != exitOK || stdout != rules+": 2 rules, 2 enabled\n" {
		t.Errorf("validate: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := do(t, nil, args...); code != exitOK || !strings.Contains(stdout, "login") || strings.Contains(stdout, "no rule holds") {
		t.Errorf("%q: exit code %d, %s%s", args, code, stdout, stderr)
	}

	base, _ := startAdmin(t, "--rules-from", rules)
	type answer struct {
		Allowed bool
		Matched []string
		Applied int64
	}
	ask := func(path, body string) (got answer) {
		t.Helper()
		status, text := fetch(t, http.MethodPost, base+path, body)
		if json.Unmarshal([]byte(text), &got) != nil {
			t.Fatalf("%s %s: %d %s", path, body, status, text)
		}
		return got
	}
	sent := regexp.MustCompile(`(?s)curl http://127.0.0.1:8080(\S+) -d '(.*?)'`).FindAllStringSubmatch(strings.Join(commands, ""), -1)
	if len(sent) != 2 {
		t.Fatalf("the page has %d requests", len(sent))
	}
	if got := ask(sent[0][1], sent[0][2]); !got.Allowed || len(got.Matched) != 1 || got.Matched[0] != "login" {
		t.Errorf("%s: %+v", sent[0][0], got)
	}
	const evaluate = "/api/v1/rate-limit/evaluate"
	if got := ask(evaluate, strings.Replace(sent[1][2], `"permits": -120`, `"wait": false`, 1)); !got.Allowed || len(got.Matched) != 1 {
		t.Errorf("before the refund: %+v", got)
	}
	if got := ask(sent[1][1], sent[1][2]); got.Applied != -120 {
		t.Errorf("%s: %+v", sent[1][0], got)
	}
}
