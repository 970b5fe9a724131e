package main

import (
	"context"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/otellimit"
)

// traces sends spans by OTLP, as the standard variables of OpenTelemetry say. nil sends none.
type traces struct {
	provider *sdk.TracerProvider
	logger   *slog.Logger
}

// startTraces reads the variables, and says what is wrong with them, those of metrics among them. The sampler, the service's name,
// headers and the rest are read by the SDK.
func startTraces(ctx context.Context, p process, logger *slog.Logger) (*traces, error) {
	if err := prepareTelemetry(p, logger); err != nil {
		return nil, err
	}
	if is, err := exported(p, "TRACES"); !is {
		return nil, err
	}
	sender, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(otlpEndpoint(p, "TRACES")))
	if err != nil {
		return nil, misconfigured(err)
	}
	about, err := aboutService(ctx)
	if err != nil {
		return nil, err
	}
	logger.Info("traces are sent by OTLP")
	return &traces{sdk.NewTracerProvider(sdk.WithBatcher(sender), sdk.WithResource(about)), logger}, nil
}

// close sends what waits.
func (t *traces) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), otlpTime)
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
