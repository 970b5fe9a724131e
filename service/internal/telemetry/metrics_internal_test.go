package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"

	"github.com/stint-go/stint/internal/must"
)

// answerer is a transport that answers by a function.
type answerer func(*http.Request) (*http.Response, error)

func (a answerer) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// Metrics are sent once in each interval, and one attempt takes no longer than it may: the next comes in time.
func TestMetricsAreSentEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		var faults []string
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { faults = append(faults, err.Error()) }))
		begin := time.Now()
		sender := must.Get(otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithHTTPClient(&http.Client{
			Transport: answerer(func(r *http.Request) (*http.Response, error) {
				sent = append(sent, time.Since(begin))
				if len(sent) == 2 { // a receiver that does not answer
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return httptest.NewRecorder().Result(), nil
			}),
		})))(t)
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "g", Help: "G."}))
		m := metrics{sender: sender, gathered: bridge.NewMetricProducer(bridge.WithGatherer(registry))}
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		m.sendEvery(ctx, 10*time.Second, 4*time.Second)
		if len(sent) != 3 || sent[0] != 10*time.Second || sent[1] != 20*time.Second || sent[2] != 30*time.Second {
			t.Errorf("sent after %v; want every 10s", sent)
		}
		if len(faults) != 1 || !strings.Contains(faults[0], "deadline") {
			t.Errorf("faults %q; want that of the attempt that was not answered", faults)
		}
	})
}

// A variable with no time is refused.
func TestMetricsRefuse(t *testing.T) {
	for _, name := range []string{"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"} {
		for _, text := range []string{"1m", "0", "-5", "9223372036855"} {
			variables := map[string]string{"OTEL_METRICS_EXPORTER": "otlp", name: text}
			_, err := StartMetrics(
				t.Context(), func(name string) string { return variables[name] }, prometheus.NewRegistry(), slog.Default(),
			)
			if err == nil || !strings.Contains(err.Error(), name+` is "`+text+`"; allowed: whole milliseconds`) {
				t.Errorf("%s=%s: %v; want a fault that names it", name, text, err)
			}
		}
	}
}
