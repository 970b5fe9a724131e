package otellimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/otellimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// still is a clock that stands still, so that no window ends meanwhile.
func still() time.Time { return time.UnixMicro(1_790_000_000_000_000) }

// secret is a key, which no span may tell.
const secret = "ann@example.com"

func record(t *testing.T, sampler sdk.Sampler) (*tracetest.InMemoryExporter, *sdk.TracerProvider) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithSampler(sampler))
	t.Cleanup(func() {
		for _, span := range exporter.GetSpans() {
			for _, a := range append(span.Attributes, attribute.String("name", span.Name+span.Status.Description)) {
				if strings.Contains(a.Value.String(), secret) {
					t.Errorf("the attribute %s of %q tells the key", a.Key, span.Name)
				}
			}
		}
		_ = provider.Shutdown(context.Background())
	})
	return exporter, provider
}

// texts are a span's attributes.
func texts(span tracetest.SpanStub) string {
	var list []string
	for _, a := range span.Attributes {
		list = append(list, strings.TrimPrefix(string(a.Key), "stint.")+"="+a.Value.String())
	}
	return strings.Join(list, " ")
}

func TestDecisions(t *testing.T) {
	exporter, provider := record(t, sdk.AlwaysSample())
	store := otellimit.Decisions(memstore.New(memstore.Config{Now: still}), provider)
	limiter := must.Get(stint.New(store, "checkout", stint.FixedWindow(2, time.Hour), stint.Limit{Name: "day", Algorithm: stint.AlgorithmFixedWindow, Capacity: 1, Window: 24 * time.Hour}))(t)
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	for range 2 {
		must.Get(limiter.Allow(ctx, secret))(t)
	}
	must.Get(limiter.Peek(ctx, secret))(t)
	if _, err := limiter.AllowN(ctx, secret, -1); err == nil {
		t.Fatal("-1 permits were decided")
	}
	want := []string{
		"verb=take policy=checkout limit=day allowed=true degraded=false source=store",
		"verb=take policy=checkout limit=day allowed=false degraded=false source=store",
		"verb=peek policy=checkout limit=day allowed=false degraded=false source=store",
		"verb=take policy=checkout",
	}
	spans := exporter.GetSpans()
	if len(spans) != len(want) {
		t.Fatalf("%d spans, want %d", len(spans), len(want))
	}
	for i, span := range spans {
		if got := texts(span); got != want[i] || span.Name != "rate limit" || span.Parent.SpanID() != root.SpanContext().SpanID() {
			t.Errorf("span %d is %q with %q, want %q below the root", i, span.Name, got, want[i])
		}
	}
	if status := spans[3].Status; status.Code != codes.Error || status.Description != stint.ErrInvalid.Error() {
		t.Errorf("the status of a fault is %+v", status)
	}
}

// TestCalls: the call of the store is below the decision, with its failure, and the decision tells that it is degraded.
func TestCalls(t *testing.T) {
	exporter, provider := record(t, sdk.AlwaysSample())
	broken := errors.Join(stint.ErrUnavailable, errors.New("dial "+secret))
	inner := failing{Store: memstore.New(memstore.Config{Now: still}), err: &broken}
	guarded := must.Get(failover.New(otellimit.Calls(inner, provider), failover.Config{Mode: failover.Open}))(t)
	t.Cleanup(guarded.Close)
	set := must.Get(rules.Compile([]rules.Rule{{ID: "login", Scope: []string{rules.PerUser}, Missing: rules.MissingDeny, Limits: []stint.Limit{stint.TokenBucket(5, stint.PerSecond(1))}}}, rules.Options{}))(t)
	limiter := must.Get(enforce.New(enforce.Config{Store: otellimit.Decisions(guarded, provider), Set: set}))(t)
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	var v enforce.Verdict
	must.Do(t, limiter.Decide(ctx, &rules.Request{Path: "/", User: secret}, &v))
	spans := exporter.GetSpans()
	if len(spans) != 2 || spans[0].Name != "rate limit store" || spans[1].Name != "rate limit" {
		t.Fatalf("spans %+v, want one of the store, then one of the decision", spans)
	}
	call, decision := spans[0], spans[1]
	if call.Parent.SpanID() != decision.SpanContext.SpanID() || decision.Parent.SpanID() != root.SpanContext().SpanID() {
		t.Error("the call is not below the decision, or that not below the root")
	}
	if call.Status.Code != codes.Error || call.Status.Description != stint.ErrUnavailable.Error() || call.SpanKind != trace.SpanKindClient {
		t.Errorf("the call's status is %+v", call.Status)
	}
	if got, want := texts(decision), "verb=take rule=login limit=TOKEN_BUCKET allowed=true degraded=true source=failure-policy"; got != want {
		t.Errorf("the decision is %q, want %q", got, want)
	}
}

// failing fails every decision.
type failing struct {
	stint.Store
	err *error
}

func (f failing) Decide(context.Context, stint.Op) (stint.Decision, error) {
	return stint.Decision{}, *f.err
}

func TestDecideAll(t *testing.T) {
	exporter, provider := record(t, sdk.AlwaysSample())
	store := otellimit.Decisions(memstore.New(memstore.Config{Now: still}), provider)
	policy := must.Get(stint.NewPolicy("", stint.FixedWindow(1, time.Hour)))(t)
	ctx, _ := provider.Tracer("test").Start(t.Context(), "root")
	op := stint.Op{Claim: stint.Claim{Key: secret, Policy: policy, Permits: 1}}
	store.DecideAll(ctx, []stint.Op{op, op, op}, make([]stint.Result, 3))
	store.DecideAll(ctx, nil, nil)
	spans := exporter.GetSpans()
	if len(spans) != 2 || texts(spans[0]) != "operations=3 verb=take limit=FIXED_WINDOW allowed=false degraded=false source=store" || texts(spans[1]) != "operations=0" {
		t.Errorf("spans %v", spans)
	}
}

// TestIncomplete: an operation that lacks a policy or a claim is refused by the store, and described as far as it goes.
func TestIncomplete(t *testing.T) {
	exporter, provider := record(t, sdk.AlwaysSample())
	store := otellimit.Decisions(memstore.New(memstore.Config{Now: still}), provider)
	ctx, _ := provider.Tracer("test").Start(t.Context(), "root")
	for _, op := range []stint.Op{
		{Claim: stint.Claim{Key: "k", Permits: 1}},
		{Extra: &stint.Extra{Groups: [][]stint.Way{{}}}},
	} {
		if _, err := store.Decide(ctx, op); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%+v: %v", op, err)
		}
	}
	for _, span := range exporter.GetSpans() {
		if texts(span) != "verb=take" || span.Status.Description != stint.ErrInvalid.Error() {
			t.Errorf("%q with %+v", texts(span), span.Status)
		}
	}
}

// TestWakes: a store that tells when a place is free does so through one that makes spans, however often it is wrapped.
func TestWakes(t *testing.T) {
	_, provider := record(t, sdk.NeverSample())
	store := otellimit.Decisions(otellimit.Calls(memstore.New(memstore.Config{Now: still}), provider), provider)
	policy := must.Get(stint.NewPolicy("p", stint.Concurrency(1)))(t)
	waker, wakes := store.(interface {
		Wake(key string, policy *stint.Policy, wake func()) (stop func())
	})
	if !wakes {
		t.Fatal("it has no Wake")
	}
	woken := 0
	defer waker.Wake("k", policy, func() { woken++ })()
	held, _ := must.Two(must.Get(stint.NewLimiter(stint.Config{Store: store, Policy: policy}))(t).Reserve(t.Context(), "k", 1, stint.Hold{}))(t)
	must.Get(held.Cancel(t.Context()))(t)
	if woken != 1 {
		t.Errorf("woken %d times, want once", woken)
	}
	deaf := otellimit.Calls(failing{Store: memstore.New(memstore.Config{})}, provider)
	deaf.(interface {
		Wake(key string, policy *stint.Policy, wake func()) (stop func())
	}).Wake("k", policy, func() {})()
}

// TestUnrecorded: without a trace, and in one that was not sampled, there are no spans and no allocations.
func TestUnrecorded(t *testing.T) {
	exporter, provider := record(t, sdk.NeverSample())
	store := otellimit.Decisions(memstore.New(memstore.Config{Now: still}), provider)
	limiter := must.Get(stint.New(store, "quick", stint.TokenBucket(1000, stint.PerSecond(1000))))(t)
	unsampled, _ := provider.Tracer("test").Start(t.Context(), "root")
	for name, ctx := range map[string]context.Context{"no trace": t.Context(), "a trace that is not sampled": unsampled} {
		if n := testing.AllocsPerRun(100, func() { _, _ = limiter.Allow(ctx, "k") }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if n := len(exporter.GetSpans()); n != 0 {
		t.Errorf("%d spans, want none", n)
	}
}

// TestWatch: package failover finds what it asks of a store.
func TestWatch(t *testing.T) {
	_, provider := record(t, sdk.AlwaysSample())
	store := otellimit.Calls(watching{memstore.New(memstore.Config{Now: still})}, provider)
	if shards := store.Watch(time.Second, nil); shards.Count != 3 || shards.Of("k") != 2 {
		t.Errorf("%d shards", shards.Count)
	}
}

type watching struct{ stint.Store }

func (watching) Watch(time.Duration, func(int, error)) stint.Shards {
	return stint.Shards{Count: 3, Of: func(string) int { return 2 }}
}

// TestConforms: a store with spans decides as the one below.
func TestConforms(t *testing.T) {
	_, provider := record(t, sdk.AlwaysSample())
	clock := storetest.NewClock(1_790_000_000_000_000)
	store := otellimit.Decisions(memstore.New(memstore.Config{Now: clock.Now}), provider)
	ctx, _ := provider.Tracer("test").Start(t.Context(), "root")
	for seed, algorithm := range notation.Algorithms() {
		if err := storetest.Replay(ctx, store, clock, storetest.Generate(uint64(seed), algorithm, 200)); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
}

// TestOneTrace: a client's request, the server's and its decision are one trace, told by traceparent (W3C Trace Context, 3.2).
func TestOneTrace(t *testing.T) {
	exporter, provider := record(t, sdk.ParentBased(sdk.NeverSample()))
	limiter := must.Get(stint.New(otellimit.Decisions(memstore.New(memstore.Config{Now: still}), provider), "api", stint.FixedWindow(1, time.Hour)))(t)
	limit := must.Get(httplimit.New(httplimit.Config{Limiter: limiter, Key: func(*http.Request) (string, error) { return secret, nil }}))(t)
	w3c := propagation.TraceContext{}
	server := httptest.NewServer(otellimit.Handler(limit.Wrap(http.NotFoundHandler()), provider, w3c))
	t.Cleanup(server.Close)
	client := http.Client{Transport: otellimit.Transport(http.DefaultTransport, w3c)}
	ask := func(ctx context.Context) {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/things?key="+secret, http.NoBody))(t)
		response := must.Get(client.Do(request))(t)
		_ = response.Body.Close()
		if request.Header.Get("traceparent") != "" {
			t.Error("the caller's request was changed")
		}
	}
	ask(t.Context()) // of no trace: the server's sampler says no
	if n := len(exporter.GetSpans()); n != 0 {
		t.Errorf("%d spans of a request that is not sampled", n)
	}
	_, caller := record(t, sdk.AlwaysSample())
	ctx, root := caller.Tracer("test").Start(t.Context(), "root")
	ask(ctx)
	server.Close() // which waits for the handler
	spans := exporter.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans, want the decision's and the request's", len(spans))
	}
	decision, request := spans[0], spans[1]
	if request.Parent.SpanID() != root.SpanContext().SpanID() || decision.Parent.SpanID() != request.SpanContext.SpanID() || decision.SpanContext.TraceID() != root.SpanContext().TraceID() {
		t.Error("the spans are not one below the other in the caller's trace")
	}
	if got := texts(request); request.Name != "GET" || got != "http.request.method=GET url.path=/things http.response.status_code=429" {
		t.Errorf("the request's span is %q with %q", request.Name, got)
	}
}

// TestAnswers: a span has the status of the answer, not that of a hint before it, and a handler that streams or takes
// over the connection finds in a trace what it finds without one.
func TestAnswers(t *testing.T) {
	exporter, provider := record(t, sdk.AlwaysSample())
	server := httptest.NewServer(otellimit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upgrade" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"))
			_ = conn.Close()
			return
		}
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write([]byte("a part"))
		w.(http.Flusher).Flush()
		w.WriteHeader(http.StatusTeapot) // which comes too late
	}), provider, propagation.TraceContext{}))
	t.Cleanup(server.Close)
	for path, want := range map[string]int{"/stream": http.StatusOK, "/upgrade": http.StatusNoContent} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody))(t)
		response := must.Get(http.DefaultClient.Do(request))(t)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
	server.Close() // which waits for handlers, but not for one that took over its connection
	for _, span := range exporter.GetSpans() {
		if got := texts(span); strings.Contains(got, "stream") && !strings.HasSuffix(got, "response.status_code=200") {
			t.Error(got)
		}
	}
}
