package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// TestTelemetryRefuses: each variable that is wrong is named at the start, with what came unless that may be secret, and with what is allowed.
func TestTelemetryRefuses(t *testing.T) {
	const endpoint = "; allowed: a URL by http or https, of a host and a path, such as http://collector:4318"
	for variable, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=jaeger":                    `OTEL_TRACES_EXPORTER is "jaeger"; allowed: otlp or none`,
		"OTEL_METRICS_EXPORTER=prometheus":               `OTEL_METRICS_EXPORTER is "prometheus"; allowed: otlp or none`,
		"OTEL_SDK_DISABLED=yes":                          `OTEL_SDK_DISABLED is "yes"; allowed: true or false`,
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318":     `OTEL_EXPORTER_OTLP_ENDPOINT is "collector:4318"` + endpoint,
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=unix:/run/o": `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is "unix:/run/o"` + endpoint,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://ann:hush@h":  `OTEL_EXPORTER_OTLP_ENDPOINT is "http://redacted@h"` + endpoint,
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://h?t=hush":    `OTEL_EXPORTER_OTLP_ENDPOINT is "http://h"` + endpoint,
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://":    `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is "http://"` + endpoint,
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=grpc":       `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is "grpc"; allowed: http/protobuf`,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/json":          `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json"; allowed: http/protobuf`,
		"OTEL_EXPORTER_OTLP_COMPRESSION=zstd":            `OTEL_EXPORTER_OTLP_COMPRESSION is "zstd"; allowed: gzip or none`,
		"OTEL_EXPORTER_OTLP_TIMEOUT=10s":                 `OTEL_EXPORTER_OTLP_TIMEOUT is "10s"; allowed: 1 to 86400000 milliseconds`,
		"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=-1":           `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT is "-1"; allowed: 1 to`,
		"OTEL_EXPORTER_OTLP_HEADERS=a=1,hush":            `OTEL_EXPORTER_OTLP_HEADERS is malformed at entry 2, which is not shown; allowed: NAME=VALUE`,
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=%zzhush":    `OTEL_EXPORTER_OTLP_TRACES_HEADERS is malformed at entry 1`,
		"OTEL_EXPORTER_OTLP_HEADERS=a b=hush":            `OTEL_EXPORTER_OTLP_HEADERS is malformed at entry 1`,
		"OTEL_EXPORTER_OTLP_HEADERS=a=hush%0Ahush":       `OTEL_EXPORTER_OTLP_HEADERS is malformed at entry 1`,
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/none":           `OTEL_EXPORTER_OTLP_CERTIFICATE is "/none"; allowed: a readable file of certificates in PEM`,
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/none":    `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is "/none"; allowed: a readable file of a certificate in PEM, beside OTEL_EXPORTER_OTLP_CLIENT_KEY with`,
		"OTEL_TRACES_SAMPLER=sometimes":                  `OTEL_TRACES_SAMPLER is "sometimes"; allowed: always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or parentbased_traceidratio`,
		"OTEL_BSP_SCHEDULE_DELAY=soon":                   `OTEL_BSP_SCHEDULE_DELAY is "soon"; allowed: 1 to 86400000 milliseconds`,
		"OTEL_BSP_MAX_QUEUE_SIZE=-1":                     `OTEL_BSP_MAX_QUEUE_SIZE is "-1"; allowed: 1 to 1000000`,
		"OTEL_METRIC_EXPORT_INTERVAL=0":                  `OTEL_METRIC_EXPORT_INTERVAL is "0"; allowed: 1 to 86400000 milliseconds`,
		"OTEL_METRIC_EXPORT_TIMEOUT=1.5":                 `OTEL_METRIC_EXPORT_TIMEOUT is "1.5"; allowed: 1 to`,
		"OTEL_RESOURCE_ATTRIBUTES=a=b,team":              `OTEL_RESOURCE_ATTRIBUTES is malformed at entry 2, "team"; allowed: KEY=VALUE`,
		"OTEL_RESOURCE_ATTRIBUTES=a=%zz":                 `OTEL_RESOURCE_ATTRIBUTES is malformed at entry 1, "a=%zz"; allowed: KEY=VALUE`,
	} {
		name, text, _ := strings.Cut(variable, "=")
		variables := map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1", name: text}
		code, _, stderr := do(t, variables, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "off")
		if code != exitUsage || strings.Count(stderr, "stint: "+want) != 1 || strings.Contains(stderr, "hush") {
			t.Errorf("%s: exit code %d, want once %s\n%s", variable, code, want, stderr)
		}
	}
	for ratio, sampler := range map[string]string{"1%": "traceidratio", "1.1": "PARENTBASED_traceidratio", "-0.1": "traceidratio", "NaN": "parentbased_traceidratio"} {
		variables := map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": ratio, "OTEL_EXPORTER_OTLP_TIMEOUT": "x"}
		_, _, stderr := do(t, variables, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "off")
		for _, want := range []string{fmt.Sprintf("OTEL_TRACES_SAMPLER_ARG is %q; allowed: the part of traces", ratio), "OTEL_EXPORTER_OTLP_TIMEOUT is"} {
			if !strings.Contains(stderr, "stint: "+want) {
				t.Errorf("%s is missing:\n%s", want, stderr)
			}
		}
	}
}

// TestTelemetryAllows: allowed values are accepted, and variables of a signal that is not sent are not checked.
func TestTelemetryAllows(t *testing.T) {
	pair := certificate(t)
	allowed := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318/base", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Basic%20abc%3D, x-tenant=a=b", "OTEL_EXPORTER_OTLP_TIMEOUT": "500", "OTEL_EXPORTER_OTLP_CERTIFICATE": pair,
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": pair, "OTEL_EXPORTER_OTLP_CLIENT_KEY": pair, "OTEL_RESOURCE_ATTRIBUTES": "a=b, deployment.environment=x%2Cy",
		"OTEL_TRACES_SAMPLER": "ParentBased_TraceIDRatio", "OTEL_TRACES_SAMPLER_ARG": "0.01", "OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_BSP_MAX_QUEUE_SIZE": "1",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://metrics:4318",
	}
	p := process{Env: environment(allowed)}
	if err := prepareTelemetry(p, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if traces, metrics := otlpEndpoint(p, "TRACES"), otlpEndpoint(p, "METRICS"); traces != "https://collector:4318/base/v1/traces" || metrics != "https://metrics:4318" {
		t.Errorf("traces are sent to %s, metrics to %s", traces, metrics)
	}
	if none := otlpEndpoint(process{Env: environment(nil)}, "TRACES"); none != "http://localhost:4318/v1/traces" {
		t.Errorf("without an endpoint, traces are sent to %s", none)
	}
	insecure := maps.Clone(allowed)
	insecure["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] = "http://metrics:4318"
	if err := prepareTelemetry(process{Env: environment(insecure)}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_CERTIFICATE is ") || !strings.Contains(err.Error(), "only with an endpoint by https") {
		t.Errorf("a certificate for http: %v", err)
	}
	allowed["OTEL_BSP_SCHEDULE_DELAY"], allowed["OTEL_TRACES_EXPORTER"] = "x", "none"
	if err := prepareTelemetry(process{Env: environment(allowed)}, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("traces are not sent: %v", err)
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

// certificate writes a certificate and its key into one file.
func certificate(t *testing.T) (file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}
