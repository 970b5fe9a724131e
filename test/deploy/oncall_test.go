package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint/internal/testredis"
)

const onCallPage = "../docs/on-call.md"

// TestOnCallSections: every alert has a section, under its severity, to which its runbook_url leads; and every section is an alert's.
func TestOnCallSections(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	sections, under := map[string]string{}, ""
	for _, heading := range regexp.MustCompile(`(?m)^(##|###) (.*)$`).FindAllStringSubmatch(read(t, onCallPage), -1) {
		if heading[1] == "##" {
			under = heading[2]
		} else {
			sections[heading[2]] = under
		}
	}
	const address = "https://github.com/stint-go/stint/blob/main/docs/on-call.md#"
	for _, alert := range file.Groups[0].Rules {
		want := map[string]string{"page": "Pages", "ticket": "Tickets"}[alert.Labels["severity"]]
		if under, is := sections[alert.Alert]; !is || under != want {
			t.Errorf("%s has a section: %t, under %q, want %q", alert.Alert, is, under, want)
		}
		if url := alert.Annotations["runbook_url"]; url != address+strings.ToLower(alert.Alert) {
			t.Errorf("%s leads to %s", alert.Alert, url)
		}
		delete(sections, alert.Alert)
	}
	if len(sections) > 0 {
		t.Errorf("no alert has the sections %v", sections)
	}
}

// TestOnCallCommands: each command of the page answers. TestPrometheus asks its queries.
func TestOnCallCommands(t *testing.T) {
	redis := testredis.Start(t)
	service, admin := startService(t, redis.URL())
	load(t, service, admin)
	t.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("STINT_ADMIN", "http://"+admin)
	t.Setenv("STINT_ADMIN_TOKEN", adminToken)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, "rules: [{id: a, scope: global, limits: [{algorithm: fixed_window, limit: 5, window: 1h}]}]\n")
	place := strings.NewReplacer("127.0.0.1:8080", service, "redis://127.0.0.1:6379", redis.URL(), "/etc/stint/rules.yaml", rules)
	commands := 0
	for _, text := range blocks(t, onCallPage, "sh") {
		for line := range strings.Lines(text) {
			commands++
			got, err := try(t, ".", place.Replace(line))
			var exit *exec.ExitError
			advised := strings.HasPrefix(line, "stint doctor") && errors.As(err, &exit) && exit.ExitCode() == 1
			if err != nil && !advised || got == "" {
				t.Errorf("%s%s%v", line, got, err)
			}
		}
	}
	if commands < 7 {
		t.Errorf("only %d commands were found", commands)
	}
	if queries := shownQueries(t); len(queries) < 7 {
		t.Errorf("only %d queries were found", len(queries))
	}
}

// shownQueries are the queries of operators' pages, one a line.
func shownQueries(t *testing.T) (queries []string) {
	t.Helper()
	for _, page := range []string{onCallPage, capacityPage} {
		for _, text := range blocks(t, page, "promql") {
			queries = slices.Concat(queries, strings.Split(strings.TrimSpace(text), "\n"))
		}
	}
	return queries
}
