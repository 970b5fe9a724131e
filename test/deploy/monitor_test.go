package deploy_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testredis"
)

const monitorPage = "../docs/monitor.md"

// A delivery is what Alertmanager sends to a webhook.
type delivery struct {
	at     string // the webhook's path
	Alerts []struct {
		Status              string
		Labels, Annotations map[string]string
	}
}

// receive is a webhook for Alertmanager.
func receive(t *testing.T) (url string, deliveries <-chan delivery) {
	t.Helper()
	received := make(chan delivery, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d := delivery{at: r.URL.Path}
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			t.Error(err)
		}
		received <- d
	}))
	t.Cleanup(server.Close)
	return server.URL, received
}

// delivered waits for an alert, and returns where it arrived and with what annotations.
func delivered(t *testing.T, deliveries <-chan delivery, alert string) (at string, annotations map[string]string) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case d := <-deliveries:
			for _, a := range d.Alerts {
				if a.Labels["alertname"] == alert {
					return d.at, a.Annotations
				}
			}
		case <-deadline:
			t.Fatalf("%s did not arrive", alert)
		}
	}
}

// TestMonitorPage: with the page's configurations a real Prometheus scrapes processes by TLS with a certificate of its own, a
// real Alertmanager hands a page to the one and a ticket to the other, leaves out what is silenced, and takes the
// page's commands.
func TestMonitorPage(t *testing.T) {
	authority := testredis.NewAuthority(t)
	redis := testredis.Start(t)
	certificate, key := authority.Issue(t, "stint")
	service, _ := startService(t, redis.URL(), "--admin-tls-cert-file=off",
		"--tls-cert-file="+certificate, "--tls-key-file="+key, "--tls-client-ca-file="+authority.CAFile)
	other, _ := startService(t, "memory://")
	keepLoading(t, []string{other})

	webhook, deliveries := receive(t)
	dir := t.TempDir()
	alertmanager := block(t, monitorPage, "yaml", "# alertmanager.yml")
	for text, want := range map[string]int{"http://127.0.0.1:9095": 2, "group_wait: 30s": 1, "group_interval: 5m": 1} {
		if n := strings.Count(alertmanager, text); n != want {
			t.Errorf("%s is there %d times, want %d", text, n, want)
		}
	}
	alertmanager = replaced(t, alertmanager, "http://127.0.0.1:9095", webhook, "group_wait: 30s", "group_wait: 1s", "group_interval: 5m", "group_interval: 1s")
	write(t, filepath.Join(dir, "alertmanager.yml"), alertmanager)
	manager := testport.Address(t)
	start(t, []string{`msg="(Listening on)"`}, "prometheus-alertmanager", "--config.file="+filepath.Join(dir, "alertmanager.yml"),
		"--storage.path="+dir, "--cluster.listen-address=", "--web.listen-address="+manager)

	tls := block(t, monitorPage, "yaml", "# in the job")
	tls = replaced(t, tls, "ca.pem", authority.CAFile, "prometheus.pem", authority.CertFile, "prometheus.key", authority.KeyFile)
	config := block(t, monitorPage, "yaml", "# prometheus.yml")
	config = replaced(t, config, `"stint-1:8080", "stint-2:8080"`, `"`+service+`"`, "alertmanager:9093", manager, ": 15s", ": 1s", "alerting:\n", tls+"alerting:\n")
	address := runPrometheus(t, config)

	answered(t, address, []string{`up{job="stint"} == 1`, `rate_limiter_requests_total{job="stint"}`})
	for line := range strings.Lines(block(t, monitorPage, "sh", "promtool query")) {
		if text := shell(t, dir, replaced(t, line, "127.0.0.1:9090", address)); !strings.Contains(text, service) {
			t.Errorf("%s%s", line, text)
		}
	}
	shell(t, "..", block(t, monitorPage, "sh", "promtool check rules"))

	routes := 0
	for line := range strings.Lines(block(t, monitorPage, "sh", "amtool check-config")) {
		command, want, routed := strings.Cut(line, "#")
		if text := shell(t, dir, command); routed {
			routes++
			if strings.TrimSpace(text) != strings.TrimSpace(want) {
				t.Errorf("%s leads to %s, the page says %s", command, text, want)
			}
		}
	}
	if routes != 2 {
		t.Errorf("the page shows %d routes", routes)
	}

	must.Do(t, redis.Stop())
	if at, annotations := delivered(t, deliveries, "StintStoreUnreachable"); at != "/on-call" || !strings.HasSuffix(annotations["runbook_url"], "#stintstoreunreachable") {
		t.Errorf("it arrives at %s with %v", at, annotations)
	}
	for _, alert := range []struct{ name, labels, at string }{
		{"StintDegraded", "job=stint severity=page", ""},
		{"StintRedisEvicts", "job=x node=a severity=ticket", "/queue"},
		{"StintRedisMemory", "job=x node=a severity=ticket", ""},
		{"StintRedisMemory", "job=x node=b severity=ticket", "/queue"},
	} {
		shell(t, dir, "amtool alert add "+alert.name+" "+alert.labels+" --alertmanager.url=http://"+manager)
		if alert.at == "" {
			filter := "amtool alert query --inhibited -o json alertname=" + alert.name + " " + alert.labels + " --alertmanager.url=http://" + manager
			if text := shell(t, dir, filter); !strings.Contains(text, alert.name) {
				t.Errorf("%s is not silenced: %s", alert.name, text)
			}
		} else if at, _ := delivered(t, deliveries, alert.name); at != alert.at {
			t.Errorf("%s arrives at %s, want %s", alert.name, at, alert.at)
		}
	}
	shell(t, dir, replaced(t, block(t, monitorPage, "sh", "amtool alert add"), "127.0.0.1:9093", manager))
	if at, annotations := delivered(t, deliveries, "StintDrill"); at != "/on-call" || annotations["summary"] != "a drill" {
		t.Errorf("the drill arrives at %s with %v", at, annotations)
	}
}
