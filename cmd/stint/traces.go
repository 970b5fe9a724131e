package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/otellimit"
)

// traces sends spans by OTLP, as the standard variables of OpenTelemetry say. nil sends none.
type traces struct {
	provider *sdk.TracerProvider
	logger   *slog.Logger
}

// tracesTime is the longest that spans may take to be sent at the end.
const tracesTime = 2 * time.Second

// startTraces reads the variables: there are traces if OTEL_TRACES_EXPORTER is otlp, or an endpoint is named and it is not none.
// The sampler, the service's name, headers and the rest are read by the SDK.
func startTraces(ctx context.Context, p process, logger *slog.Logger) (*traces, error) {
	variable := func(name string) string {
		text, _ := p.Env(name)
		return text
	}
	exporter := variable("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "", "otlp", "none":
	default:
		return nil, misconfigured(stint.Invalid("OTEL_TRACES_EXPORTER", exporter, "otlp or none"))
	}
	named := variable("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	if exporter == "none" || exporter == "" && !named || variable("OTEL_SDK_DISABLED") == "true" {
		return nil, nil //nolint:nilnil // no traces are no fault
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := variable(name); protocol != "" && protocol != "http/protobuf" {
			return nil, misconfigured(stint.Invalid(name, protocol, "http/protobuf"))
		}
	}
	sender, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, misconfigured(err)
	}
	// What the variables say beats the name that is given here.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attribute.String("service.name", "stint")), resource.WithFromEnv())
	if err != nil {
		return nil, misconfigured(err)
	}
	logger.Info("traces are sent by OTLP")
	return &traces{sdk.NewTracerProvider(sdk.WithBatcher(sender), sdk.WithResource(about)), logger}, nil
}

// close sends what waits.
func (t *traces) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tracesTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.Warn("spans were lost", "err", err)
	}
}

// calls makes spans of a store's calls.
func (t *traces) calls(store stint.Store) stint.Store {
	if t == nil {
		return store
	}
	return otellimit.Calls(store, t.provider)
}

// decisions makes spans of what a store decides.
func (t *traces) decisions(store stint.Store) stint.Store {
	if t == nil {
		return store
	}
	return otellimit.Decisions(store, t.provider)
}

// middleware makes spans of requests, in the trace that they name; nil without traces.
func (t *traces) middleware() func(http.Handler) http.Handler {
	if t == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		return otellimit.Handler(next, t.provider, propagation.TraceContext{})
	}
}
