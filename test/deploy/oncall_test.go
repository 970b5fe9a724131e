package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

const (
	onCallPage = "../docs/on-call.md"
	sloPage    = "../docs/slo.md"
)

// TestOnCallSections: every alert has a section, under its severity, to which its runbook_url leads; and every section is an alert's.
func TestOnCallSections(t *testing.T) {
	sectionsOf(t, "on-call.md", readRules(t, "prometheus/alerts.yaml").Groups[0].Rules)
	sectionsOf(t, "slo.md", readRules(t, "prometheus/slo.yaml").Groups[1].Rules)
}

// sectionsOf holds the sections of a page to alerts.
func sectionsOf(t *testing.T, name string, alerts []rule) {
	t.Helper()
	sections, under := map[string]string{}, ""
	for _, heading := range regexp.MustCompile(`(?m)^(##|###) (.*)$`).FindAllStringSubmatch(read(t, "../docs/"+name), -1) {
		if heading[1] == "##" {
			under = heading[2]
		} else {
			sections[heading[2]] = under
		}
	}
	address := "https://github.com/stint-go/stint/blob/main/docs/" + name + "#"
	for _, alert := range alerts {
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
	t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
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
	if queries := shownQueries(t, onCallPage, capacityPage, sloPage); len(queries) < 7 {
		t.Errorf("only %d queries were found", len(queries))
	}
}

// shownQueries are the queries of pages, one a line.
func shownQueries(t *testing.T, pages ...string) (queries []string) {
	t.Helper()
	for _, page := range pages {
		for _, text := range blocks(t, page, "promql") {
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "#") {
					queries = append(queries, strings.TrimSpace(line))
				}
			}
		}
	}
	return queries
}
