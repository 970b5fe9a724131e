package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// TestOTLPMetrics: an OTLP receiver gets the metrics that are served for Prometheus, at the end at the latest; a receiver that fails is a
// line of the log.
func TestOTLPMetrics(t *testing.T) {
	for status, fault := range map[int]string{http.StatusOK: "", http.StatusBadRequest: "level=WARN"} {
		var mu sync.Mutex
		received, service := map[string]*metrics.Metric{}, ""
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			var export collector.ExportMetricsServiceRequest
			if err := proto.Unmarshal(body, &export); err != nil || r.URL.Path != "/v1/metrics" {
				t.Errorf("%s: %v", r.URL, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, group := range export.GetResourceMetrics() {
				service = attributeOf(group.GetResource().GetAttributes(), "service.name")
				for _, scope := range group.GetScopeMetrics() {
					for _, metric := range scope.GetMetrics() {
						received[metric.GetName()] = metric
					}
				}
			}
			w.WriteHeader(status)
		}))
		variables := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "OTEL_TRACES_EXPORTER": "none"}
		for name, value := range variables {
			t.Setenv(name, value) // the SDK's own
		}
		url, log, stop := startIn(t, variables, yearly(t))
		for range 2 {
			checkAs(t, url, "r-1", "key=secret-key&algorithm=FIXED_WINDOW&permits=60")
		}
		stop() // which sends them
		receiver.Close()
		counts := map[string]float64{}
		for _, point := range received["rate_limiter_requests_total"].GetSum().GetDataPoints() {
			if attributeOf(point.GetAttributes(), "algorithm") == "FIXED_WINDOW" {
				counts[attributeOf(point.GetAttributes(), "allowed")] = point.GetAsDouble()
			}
		}
		if len(counts) != 2 || counts["true"] != 1 || counts["false"] != 1 || service != "stint" {
			t.Errorf("of service %q came %v, want one admitted and one denied", service, counts)
		}
		if received["rate_limiter_check_seconds"].GetExponentialHistogram() == nil || received["go_goroutines"] == nil {
			t.Errorf("%d metrics came, and some are missing", len(received))
		}
		for name, metric := range received {
			if strings.Contains(metric.String(), "secret-key") {
				t.Errorf("%s tells a key: %s", name, metric)
			}
		}
		if text := log.String(); !strings.Contains(text, "metrics are sent by OTLP") || strings.Contains(text, " were lost") != (fault != "") || !strings.Contains(text, fault) {
			t.Errorf("receiver %d:\n%s", status, text)
		}
	}
}

func attributeOf(all []*common.KeyValue, name string) string {
	for _, one := range all {
		if one.GetKey() == name {
			return one.GetValue().GetStringValue()
		}
	}
	return ""
}
