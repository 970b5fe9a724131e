package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// TestTelemetryRefuses: the variables that say whether a signal is sent are the service's own to read, so it refuses what it does not know.
// All others are the SDK's, which reports a fault in the log and goes on.
func TestTelemetryRefuses(t *testing.T) {
	for variable, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=jaeger":      `OTEL_TRACES_EXPORTER is "jaeger"; allowed: otlp or none`,
		"OTEL_METRICS_EXPORTER=prometheus": `OTEL_METRICS_EXPORTER is "prometheus"; allowed: otlp or none`,
		"OTEL_SDK_DISABLED=yes":            `OTEL_SDK_DISABLED is "yes"; allowed: true or false`,
	} {
		name, text, _ := strings.Cut(variable, "=")
		code, _, stderr := do(t, map[string]string{name: text}, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "off")
		if code != exitUsage || strings.Count(stderr, "stint: "+want) != 1 {
			t.Errorf("%s: exit code %d, want once %s\n%s", variable, code, want, stderr)
		}
	}
}

// TestRecordedBelow: the bound for requests that name no trace is the sampler's; without a part that can be read, all are recorded, as the
// SDK has it.
func TestRecordedBelow(t *testing.T) {
	const all = 1 << 63
	for _, test := range []struct {
		sampler, part string
		want          uint64
	}{
		{"", "", all},
		{"always_off", "", 0},
		{"parentbased_always_off", "", 0},
		{"ParentBased_TraceIDRatio", "0.25", all / 4},
		{"traceidratio", "0", 0},
		{"traceidratio", "", all},
		{"traceidratio", "1%", all},
		{"traceidratio", "1.1", all},
		{"traceidratio", "-0.1", all},
		{"traceidratio", "NaN", all},
	} {
		p := process{Env: environment(map[string]string{"OTEL_TRACES_SAMPLER": test.sampler, "OTEL_TRACES_SAMPLER_ARG": test.part})}
		if got := recordedBelow(p); got != test.want {
			t.Errorf("%s of %q: %d, want %d", test.sampler, test.part, got, test.want)
		}
	}
}

// TestTelemetryLog: what the SDK says is a line of the log, the same once a minute, without what may be secret.
func TestTelemetryLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		logTelemetry(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
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
