package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stint-go/stint/internal/testtable"
)

// TestRecordedBelow: the bound for requests that name no trace is the sampler's; without a part that can be read, all are recorded, as the
// SDK has it.
func TestRecordedBelow(t *testing.T) {
	const all = 1 << 63
	bounds := map[string]uint64{"all": all, "quarter": all / 4, "none": 0}
	for _, row := range testtable.Rows[struct{ Sampler, Part, Bound string }](t, "testdata/samplers.txt") {
		variables := map[string]string{"OTEL_TRACES_SAMPLER": row.Sampler, "OTEL_TRACES_SAMPLER_ARG": row.Part}
		if got := recordedBelow(func(name string) string { return variables[name] }); got != bounds[row.Bound] {
			t.Errorf("%s of %q: %d, want %s", row.Sampler, row.Part, got, row.Bound)
		}
	}
}

// TestTelemetryLog: what the SDK says is a line of the log, the same once a minute, without what may be secret.
func TestTelemetryLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		logFaults(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		for port := range 3 {
			otel.Handle(fmt.Errorf("traces export: from port %d: http://ann:hush@h refuses", port))
		}
		otel.Handle(errors.New("failed to upload metrics: no"))
		_ = otlptracehttp.NewClient(otlptracehttp.WithEndpointURL("http://h:x")) // makes a line of the SDK's own
		<-time.After(time.Minute)
		otel.Handle(errors.New("traces export: again"))
		const want = `level=WARN msg="telemetry was lost" err="traces export: from port 0: http://redacted@h refuses"
level=WARN msg="telemetry was lost" err="failed to upload metrics: no"
level=WARN msg="OpenTelemetry: otlptrace: parse endpoint url" err="parse \"http://h:x\": invalid port \":x\" after host" url=http://h:x
level=WARN msg="telemetry was lost" err="traces export: again" skipped=2
`
		if out.String() != want {
			t.Errorf("logged\n%s\nwant\n%s", out.String(), want)
		}
		before := out.Len()
		for i := range 200 { // of many messages some share a line
			otel.Handle(fmt.Errorf("%d: x", i))
		}
		if lines := strings.Count(out.String()[before:], "\n"); lines > maxMessages {
			t.Errorf("%d lines of 200 messages", lines)
		}
	})
}

// TestTracesAreSampled: of requests of no trace as large a part is recorded as the sampler says, and the SDK agrees on each.
func TestTracesAreSampled(t *testing.T) {
	const requests = 4000
	for _, test := range []struct {
		sampler, ratio string
		// Expected of 4000, give or take 7 standard deviations: the probability of missing either is below 1e-10.
		least, most int
	}{
		{"", "", requests, requests},
		{"always_off", "", 0, 0},
		{"traceidratio", "", requests, requests},
		{"traceidratio", "0", 0, 0},
		{"parentbased_traceidratio", "1", requests, requests},
		{"Parentbased_TraceIDRatio", "0.1", 267, 533},
		{"traceidratio", "0.5", 1779, 2221},
	} {
		variables := map[string]string{"OTEL_TRACES_SAMPLER": test.sampler, "OTEL_TRACES_SAMPLER_ARG": test.ratio}
		for name, value := range variables {
			t.Setenv(name, value) // the SDK's own
		}
		recorded := tracetest.NewInMemoryExporter()
		traced := &Traces{
			provider: sdk.NewTracerProvider(sdk.WithSyncer(recorded), sdk.WithIDGenerator(drawnIDs{})),
			bound:    recordedBelow(func(name string) string { return variables[name] }),
		}
		reached, chosen := 0, 0
		handler := traced.Middleware()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reached++
			if _, is := r.Context().Value(drawn{}).(uint64); is {
				chosen++
			}
		}))
		for range requests {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		}
		spans := recorded.GetSpans()
		if n := len(spans); reached != requests || n != chosen || n < test.least || n > test.most {
			t.Errorf("%s %s: %d requests, %d chosen, %d recorded, want %d to %d", test.sampler, test.ratio, reached, chosen, n, test.least, test.most)
		}
		ids := map[string]bool{}
		for _, span := range spans {
			ids[span.SpanContext.TraceID().String()] = true
		}
		if len(ids) != len(spans) {
			t.Errorf("%s %s: %d spans of %d traces", test.sampler, test.ratio, len(spans), len(ids))
		}
	}
}
