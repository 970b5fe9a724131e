package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/stint-go/stint/internal/testredis"
)

// TestTraces: an OTLP receiver gets the spans of a check over the REST API in the caller's trace: the request, below it the
// decision, below it the call of the store. A request of no trace that is sampled has none.
func TestTraces(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	var mu sync.Mutex
	received := map[string]*spans.Span{}
	service := ""
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var export collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &export); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, group := range export.GetResourceSpans() {
			service = attributeOf(group.GetResource().GetAttributes(), "service.name")
			for _, scope := range group.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					if received[span.GetName()] != nil {
						t.Errorf("two spans %q", span.GetName())
					}
					received[span.GetName()] = span
				}
			}
		}
	}))
	t.Cleanup(receiver.Close)
	variables := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "OTEL_TRACES_SAMPLER": "parentbased_always_off", "OTEL_METRICS_EXPORTER": "none"}
	for name, value := range variables {
		t.Setenv(name, value) // the SDK's own
	}
	url, stop := startWith(t, variables, "--store", testredis.Start(t).URL(), "--store-timeout=1m")
	for _, header := range [][]string{nil, {"Traceparent: 00-" + trace + "-" + parent + "-01"}} {
		fetch(t, http.MethodGet, url+"/api/v1/rate-limit/check?key=secret-key", "", header...)
	}
	stop() // which sends what waits
	mu.Lock()
	defer mu.Unlock()
	above := parent
	for _, name := range []string{"GET", "rate limit", "rate limit store"} {
		span := received[name]
		if span == nil {
			t.Fatalf("no span %q: %v", name, received)
		}
		if got := hex.EncodeToString(span.GetTraceId()); got != trace {
			t.Errorf("%q is in trace %s, want %s", name, got, trace)
		}
		if got := hex.EncodeToString(span.GetParentSpanId()); got != above {
			t.Errorf("%q is below %s, want %s", name, got, above)
		}
		if strings.Contains(span.String(), "secret-key") {
			t.Errorf("%q tells the key: %s", name, span)
		}
		above = hex.EncodeToString(span.GetSpanId())
	}
	if len(received) != 3 || service != "stint" {
		t.Errorf("%d spans of %q, want 3 of stint", len(received), service)
	}
}
