package otellimit

import (
	"cmp"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint/internal/answered"
)

// Handler makes a server's span of each request, named by its method, within the trace that the
// request's header names; propagation.TraceContext{} reads W3C's traceparent. The provider's
// sampler says which are recorded. The others reach next with the request as it came. Attributes
// have the names of OpenTelemetry's semantic conventions of HTTP. The status is an error from 500
// on: a denial is what the service is for.
func Handler(next http.Handler, provider trace.TracerProvider, propagator propagation.TextMapPropagator) http.Handler {
	tracer, options := provider.Tracer(scope), []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header)), r.Method, options...)
		defer span.End()
		if !span.IsRecording() {
			next.ServeHTTP(w, r)
			return
		}
		answer := &answered.Writer{ResponseWriter: w}
		next.ServeHTTP(answer, r.WithContext(ctx))
		status := cmp.Or(answer.Begun, http.StatusOK) // of one that the handler does not begin, too
		span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", r.URL.Path),
			attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}

// Transport sends with each request the trace of its context, so that the server's spans belong to
// it. The request is cloned first, as a RoundTripper must not change what it is given.
func Transport(next http.RoundTripper, propagator propagation.TextMapPropagator) http.RoundTripper {
	return transport{next, propagator}
}

type transport struct {
	next       http.RoundTripper
	propagator propagation.TextMapPropagator
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if trace.SpanContextFromContext(r.Context()).IsValid() {
		r = r.Clone(r.Context())
		t.propagator.Inject(r.Context(), propagation.HeaderCarrier(r.Header))
	}
	return t.next.RoundTrip(r)
}
