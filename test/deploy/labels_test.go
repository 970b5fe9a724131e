package deploy_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	named    = regexp.MustCompile(`\b((?:[a-z_]+:)?rate_limiter_\w+(?::\w+)?|up|process_cpu_seconds_total)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\b(?:by|on)\s*\(([^)]*)\)`)
	shown    = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}`)
)

// A query is PromQL, and the texts that name labels of what it finds.
type labelled struct {
	promql string
	texts  []string
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// unknown are the labels of a query that its metrics do not have, and those of its texts that what it finds does not have.
// Of each metric known says the labels. What a query finds has the labels of its first grouping, or else of its metrics.
func unknown(q labelled, known map[string][]string) (faults []string) {
	var all []string
	for _, found := range named.FindAllStringSubmatch(q.promql, -1) {
		labels, is := known[found[1]]
		if !is {
			labels, is = known[histogram.ReplaceAllString(found[1], "")]
		}
		if !is {
			faults = append(faults, found[1])
		}
		labels = append(slices.Clone(labels), "job", "instance", "le")
		all = append(all, labels...)
		for _, match := range matcher.FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(labels, match[1]) {
				faults = append(faults, found[1]+"{"+match[1]+"}")
			}
		}
	}
	result := all
	for i, list := range grouping.FindAllStringSubmatch(q.promql, -1) {
		for _, label := range words(list[1]) {
			if !slices.Contains(all, label) {
				faults = append(faults, "by ("+label+")")
			}
		}
		if i == 0 {
			result = words(list[1])
		}
	}
	for _, text := range q.texts {
		for _, label := range shown.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(result, label[1]) {
				faults = append(faults, text)
			}
		}
	}
	return faults
}

// TestLabels: the labels by which rules, alerts, dashboard and operators' pages select, group, and tell what they find, are those of the metrics on the
// page, which TestPage holds to what services serve.
func TestLabels(t *testing.T) {
	known := map[string][]string{"up": nil, "process_cpu_seconds_total": nil}
	for name, m := range described(t) {
		known[name] = words(m.labels)
	}
	var queries []labelled
	for _, name := range []string{"prometheus/rules.yaml", "prometheus/alerts.yaml", "prometheus/slo.yaml"} {
		for _, group := range readRules(t, name).Groups {
			for _, rule := range group.Rules {
				if by := grouping.FindStringSubmatch(rule.Expr); rule.Record != "" {
					known[rule.Record] = words(by[1])
				}
				queries = append(queries, labelled{rule.Expr, slices.Collect(maps.Values(rule.Annotations))})
			}
		}
	}
	for _, target := range dashboard(t) {
		queries = append(queries, labelled{target.Expr, []string{target.LegendFormat}})
	}
	for _, promql := range shownQueries(t, page, onCallPage, capacityPage, sloPage) {
		queries = append(queries, labelled{promql, nil})
	}
	if len(queries) < 60 {
		t.Errorf("only %d queries were found", len(queries))
	}
	for _, q := range queries {
		if faults := unknown(q, known); len(faults) > 0 {
			t.Errorf("%s: %q", q.promql, faults)
		}
	}

	for promql, text := range map[string]string{
		`rate_limiter_rules{rule="a"}`:               "",
		`sum by (rule) (rate_limiter_rules)`:         "",
		`sum by (job) (rate_limiter_rules)`:          "{{instance}}",
		`job:rate_limiter_requests:rate1m`:           "{{ $labels.rule }}",
		`rate_limiter_nothing`:                       "",
		`rate_limiter_requests_total{algorithms=""}`: "",
	} {
		if len(unknown(labelled{promql, []string{text}}, known)) == 0 {
			t.Errorf("%s with %q has no fault", promql, text)
		}
	}
}
