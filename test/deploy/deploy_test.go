// Package deploy_test holds the metrics of a running service, docs/reference/metrics.md, the rules and alerts for Prometheus and
// the dashboard for Grafana to one another, and to operators' pages: docs/monitor.md, docs/on-call.md, docs/capacity.md, docs/failure.md.
package deploy_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

const page = "../docs/reference/metrics.md"

// A metric as the page, or a service, describes it.
type metric struct{ kind, labels, meaning string }

// described are the metrics of the page.
func described(t *testing.T) map[string]metric {
	t.Helper()
	metrics := map[string]metric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(rate_limiter_\\w+)` \\| (\\w+) \\| (.*?) \\| (.*) \\|$").FindAllStringSubmatch(read(t, page), -1) {
		metrics[row[1]] = metric{row[2], strings.ReplaceAll(row[3], "`", ""), row[4]}
	}
	return metrics
}

// served are the metrics in texts that services serve. Labels are those of any of its series.
func served(texts ...string) map[string]metric {
	metrics := map[string]metric{}
	for _, text := range texts {
		for _, found := range regexp.MustCompile(`(?m)^# HELP (rate_limiter_\w+) (.*)\n# TYPE \w+ (\w+)\n(\w+)(?:\{(.*)\})?`).FindAllStringSubmatch(text, -1) {
			var labels []string
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[5], -1) {
				if label[1] != "le" {
					labels = append(labels, label[1])
				}
			}
			slices.Sort(labels)
			metrics[found[1]] = metric{found[3], strings.Join(labels, ", "), found[2]}
		}
	}
	return metrics
}

// startAll runs one service on Redis, with a replica and an append-only file, and one on memory, under load.
func startAll(t *testing.T) (redis *testredis.Server, services []string) {
	t.Helper()
	redis = testredis.Start(t, testredis.Config("appendonly", "yes"), testredis.Config("maxmemory", "100mb"))
	testredis.Start(t, testredis.Config("replicaof", "127.0.0.1", strings.TrimPrefix(redis.Addr(), "127.0.0.1:")))
	for _, store := range []string{redis.URL(), "memory://"} {
		service, admin := startService(t, store)
		load(t, service, admin)
		services = append(services, service)
	}
	return redis, services
}

// TestPage: the page lists what services serve, with type, labels and meaning, and nothing else.
func TestPage(t *testing.T) {
	_, services := startAll(t)
	want := described(t)
	var got map[string]metric
	soon(func() bool { // the health of Redis is there late
		got = served(send(t, http.MethodGet, "http://"+services[0]+"/metrics", "", ""), send(t, http.MethodGet, "http://"+services[1]+"/metrics", "", ""))
		return len(got) >= len(want)
	})
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if w, known := want[name]; !known {
			t.Errorf("%s lacks %s", page, name)
		} else if w != got[name] {
			t.Errorf("%s is\n%+v, the page says\n%+v", name, got[name], w)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("no service serves %v", slices.Sorted(maps.Keys(want)))
	}
}

// expressions are the PromQL of the rules, of the alerts, of the dashboard and of the pages.
type expressions struct{ rules, alerts, dashboard, page []string }

type ruleFile struct {
	Groups []struct{ Rules []rule }
}

type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

// alertRules are all alerts.
func alertRules(t *testing.T) []rule {
	t.Helper()
	return slices.Concat(readRules(t, "prometheus/alerts.yaml").Groups[0].Rules, readRules(t, "prometheus/slo.yaml").Groups[1].Rules)
}

func readRules(t *testing.T, name string) (file ruleFile) {
	t.Helper()
	must.Do(t, yaml.Unmarshal([]byte(read(t, name)), &file))
	return file
}

// A target is a query of the dashboard.
type target struct{ Expr, LegendFormat string }

func dashboard(t *testing.T) (targets []target) {
	t.Helper()
	var page struct {
		Panels []struct{ Targets []target }
	}
	must.Do(t, json.Unmarshal([]byte(read(t, "grafana/stint.json")), &page))
	for _, panel := range page.Panels {
		targets = append(targets, panel.Targets...)
	}
	return targets
}

func readExpressions(t *testing.T) (e expressions, records []string) {
	t.Helper()
	for _, rule := range readRules(t, "prometheus/rules.yaml").Groups[0].Rules {
		e.rules, records = append(e.rules, rule.Expr), append(records, rule.Record)
	}
	for _, rule := range readRules(t, "prometheus/slo.yaml").Groups[0].Rules {
		e.rules, records = append(e.rules, rule.Expr), append(records, rule.Record)
	}
	for _, rule := range alertRules(t) {
		e.alerts = append(e.alerts, rule.Expr)
	}
	for _, target := range dashboard(t) {
		e.dashboard = append(e.dashboard, strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "1m").Replace(target.Expr))
	}
	e.page = shownQueries(t, page, onCallPage, capacityPage, sloPage)
	return e, records
}

var (
	metricName = regexp.MustCompile(`\b(?:[a-z_]+:)?rate_limiter_\w+(?::\w+)?`)
	histogram  = regexp.MustCompile(`_(bucket|sum|count)$`)
	selector   = regexp.MustCompile(`\b(?:[a-z_]+:)?rate_limiter_\w+(?::\w+)?(?:\{[^}]*\})?`)
)

// TestNames: rules, alerts, dashboard and page take histograms of the page alone for such, and use every record that is not for
// alerts alone. That they use no others than metrics of the page, and records of the rules, TestLabels says.
func TestNames(t *testing.T) {
	metrics := described(t)
	e, records := readExpressions(t)
	used := map[string]bool{}
	for _, promql := range slices.Concat(e.rules, e.alerts, e.dashboard, e.page) {
		for _, name := range metricName.FindAllString(promql, -1) {
			used[name] = true
			family := metrics[histogram.ReplaceAllString(name, "")]
			if histogram.MatchString(name) && family.kind != "histogram" && metrics[name] == (metric{}) && !strings.Contains(name, ":") {
				t.Errorf("%s is no histogram: %s", name, promql)
			}
		}
	}
	if len(e.dashboard) < 20 || len(e.page) < 5 {
		t.Errorf("%d queries of the dashboard, %d of the page", len(e.dashboard), len(e.page))
	}
	if unused := slices.DeleteFunc(records, func(name string) bool {
		return used[name] || strings.HasSuffix(name, "_allowed:rate1m") || strings.HasSuffix(name, "requests:rate1m") || strings.HasSuffix(name, "_denied:rate1m")
	}); len(unused) > 0 {
		t.Errorf("nobody uses the records %v", unused)
	}
}

// TestAlerts: promtool's unit tests pass, and make each alert fire.
func TestAlerts(t *testing.T) {
	for _, command := range []string{"promtool check rules rules.yaml alerts.yaml slo.yaml", "promtool test rules alerts_test.yaml slo_test.yaml"} {
		if text, err := try(t, "prometheus", command); err != nil {
			t.Errorf("%s: %v (`make test` installs it)\n%s", command, err, text)
		}
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, name := range []string{"prometheus/alerts_test.yaml", "prometheus/slo_test.yaml"} {
		var file struct {
			Tests []struct {
				AlertRuleTest []struct {
					Alertname string
					ExpAlerts []any `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		must.Do(t, yaml.Unmarshal([]byte(read(t, name)), &file))
		for _, test := range file.Tests {
			for _, alert := range test.AlertRuleTest {
				if len(alert.ExpAlerts) > 0 {
					fires[alert.Alertname] = true
				} else {
					rests[alert.Alertname] = true
				}
			}
		}
	}
	for _, rule := range alertRules(t) {
		if !fires[rule.Alert] || !rests[rule.Alert] {
			t.Errorf("%s is tested to fire: %t, and not to fire: %t", rule.Alert, fires[rule.Alert], rests[rule.Alert])
		}
	}
}

// TestPrometheus: a real one answers every query of the dashboard and of the page, finds series for every selector of the
// alerts, and fires the alert of a store that was stopped.
func TestPrometheus(t *testing.T) {
	redis, services := startAll(t)
	address := startPrometheus(t, services)
	keepLoading(t, services)
	e, _ := readExpressions(t)
	queries := slices.Concat(e.page, e.dashboard)
	for _, promql := range e.alerts {
		queries = append(queries, selector.FindAllString(promql, -1)...)
	}
	answered(t, address, queries)
	if series, _ := query(t, address, `ALERTS{alertname="StintStoreUnreachable"}`); series != 0 {
		t.Error("the store is said to be unreachable")
	}
	must.Do(t, redis.Stop())
	answered(t, address, []string{`ALERTS{alertname="StintStoreUnreachable",alertstate="firing"}`, `rate_limiter_redis_up == 0`})
}

// TestNativeHistograms: a Prometheus that scrapes native histograms, and so has no classic buckets, answers every query of the
// dashboard and of the pages, and keeps the traces of answers.
func TestNativeHistograms(t *testing.T) {
	_, services := startAll(t)
	address := startPrometheus(t, services, "--enable-feature=native-histograms,exemplar-storage")
	keepLoading(t, services)
	e, _ := readExpressions(t)
	answered(t, address, slices.Concat(e.page, e.dashboard))
	answered(t, address, []string{
		`histogram_count(rate_limiter_check_seconds) > 0`, `histogram_count(rate_limiter_store_round_trip_seconds{outcome="answered"}) > 0`,
		`job:rate_limiter_check_seconds:p99_5m > 0`, `job:rate_limiter_store_round_trip_seconds:p99_5m > 0`,
	})
	traces := func() string {
		return send(t, http.MethodGet, "http://"+address+"/api/v1/query_exemplars?query=rate_limiter_answer_seconds&start=0&end=4102444800", "", "")
	}
	if !soon(func() bool { return strings.Contains(traces(), `"trace_id":"`+loadTrace+`"`) }) {
		t.Fatalf("no trace of an answer: %s", traces())
	}
	if series, _ := query(t, address, `rate_limiter_check_seconds_bucket`); series != 0 {
		t.Error("there are classic buckets: the records' quantiles are not known to come from native ones")
	}
}

// TestDashboard: it is what Grafana's schema says.
func TestDashboard(t *testing.T) {
	dir := t.TempDir()
	source := "import type { Dashboard } from \"@grafana/schema\";\nexport const dashboard: Dashboard = " + read(t, "grafana/stint.json") + ";\n"
	write(t, filepath.Join(dir, "dashboard.ts"), source)
	shell(t, dir, "npm install --ignore-scripts --no-audit --no-fund --no-package-lock @grafana/schema@13.2.3 typescript@7.0.2")
	shell(t, dir, "npx tsc --noEmit --strict --skipLibCheck --moduleResolution bundler --module esnext dashboard.ts")
}
