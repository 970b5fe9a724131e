package telemetry

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/otellimit"
)

// Traces sends spans by OTLP, as the standard variables of OpenTelemetry say. nil sends none. It is safe for concurrent
// use.
type Traces struct {
	provider *sdk.TracerProvider
	logger   *slog.Logger
	// a request of no trace is recorded if a random number of 63 bits is below
	bound uint64
}

// StartTraces reads whether traces are sent, and returns what makes and sends them: nil if they are not. The endpoint,
// the sampler, the service's name, headers and the rest are read by the SDK, whose faults the log tells from then on.
// An error is a fault of a variable.
func StartTraces(ctx context.Context, env Env, logger *slog.Logger) (*Traces, error) {
	if err := prepare(env, logger); err != nil {
		return nil, err
	}
	if is, err := exported(env, "TRACES"); !is {
		return nil, err
	}
	var options []otlptracehttp.Option
	if !endpointNamed(env, "TRACES") {
		options = append(options, otlptracehttp.WithEndpointURL(defaultOTLP+"/v1/traces"))
	}
	sender, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, err
	}
	about, err := aboutService(ctx)
	if err != nil {
		return nil, err
	}
	logger.Info("traces are sent by OTLP")
	provider := sdk.NewTracerProvider(sdk.WithBatcher(sender), sdk.WithResource(about), sdk.WithIDGenerator(drawnIDs{}))
	return &Traces{provider, logger, recordedBelow(env)}, nil
}

// End sends what waits.
func (t *Traces) End() {
	if t != nil {
		sendRest(t.provider.Shutdown, t.logger, "spans were lost")
	}
}

// recordedBelow is the SDK's bound for what the variables say: it compares 63 bits of a trace's ID
// with it. The SDK's TraceIDRatioBased compares the last 8 bytes of the trace's ID, shifted right
// by one, with ratio * 2^63. The same comparison can be made before the ID is made, if its last 8
// bytes are drawn first.
func recordedBelow(env Env) uint64 {
	const all = 1 << 63
	sampler := strings.ToLower(strings.TrimSpace(env("OTEL_TRACES_SAMPLER")))
	switch {
	case strings.HasSuffix(sampler, "always_off"):
		return 0
	case strings.HasSuffix(sampler, "traceidratio"):
		ratio, err := strconv.ParseFloat(strings.TrimSpace(env("OTEL_TRACES_SAMPLER_ARG")), 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) { // absent or unfit: the SDK records all
			return all
		}
		return uint64(ratio * all)
	default:
		return all
	}
}

// drawn is the key of a context's random number for the ID of a new trace. See Middleware: the
// number has decided already that the trace is recorded, and the sampler of the SDK must come to
// the same result.
type drawn struct{}

// drawnIDs makes IDs. That of a new trace ends with the number of its context.
type drawnIDs struct{}

// NewIDs implements [sdk.IDGenerator].
func (g drawnIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	end, found := ctx.Value(drawn{}).(uint64)
	if !found {
		end = rand.Uint64() //nolint:gosec // an ID need not be secret
	}
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // an ID need not be secret
	binary.BigEndian.PutUint64(id[8:], end)
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements [sdk.IDGenerator]. No ID is 0.
func (drawnIDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1) //nolint:gosec // an ID need not be secret
	return id
}

// Calls makes spans of a store's calls.
func (t *Traces) Calls(store stint.Store) stint.Store {
	if t == nil {
		return store
	}
	return otellimit.Calls(store, t.provider)
}

// Decisions makes spans of what a store decides.
func (t *Traces) Decisions(store stint.Store) stint.Store {
	if t == nil {
		return store
	}
	return otellimit.Decisions(store, t.provider)
}

// Recorded finds the ID of the trace in which a request's span is recorded; "" if it is not. It is nil without traces.
func (t *Traces) Recorded() func(context.Context) string {
	if t == nil {
		return nil
	}
	return func(ctx context.Context) string {
		if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
			return span.TraceID().String()
		}
		return ""
	}
}

// Middleware makes spans of requests, in the trace that they name; nil without traces. Most
// requests that name no trace are not recorded. This is decided before the SDK does any work, by
// the number that becomes the end of the trace's ID. A request that names a trace is left to the
// SDK, whose sampler may follow the caller's decision.
func (t *Traces) Middleware() func(http.Handler) http.Handler {
	if t == nil {
		return nil
	}
	return func(next http.Handler) http.Handler {
		traced := otellimit.Handler(next, t.provider, propagation.TraceContext{})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(r.Header["Traceparent"]) == 0 {
				number := rand.Uint64() //nolint:gosec // it chooses requests
				if number>>1 >= t.bound {
					next.ServeHTTP(w, r)
					return
				}
				r = r.WithContext(context.WithValue(r.Context(), drawn{}, number))
			}
			traced.ServeHTTP(w, r)
		})
	}
}
