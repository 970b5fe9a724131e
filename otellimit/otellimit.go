// Package otellimit makes spans of decisions, on OpenTelemetry's API alone: the program brings the
// SDK, or none.
//
//	limited := otellimit.Decisions(failing, provider)            // a span per decision
//	shared := otellimit.Calls(redis, provider)                   // below it, the call of the store
//	handler := otellimit.Handler(mux, provider, propagator)      // a server's span, continued from traceparent
//	transport := otellimit.Transport(http.DefaultTransport, propagator) // sends traceparent
//
// Spans of decisions and calls are made only in a trace that is recorded: without one, or where it
// was not sampled, they cost a look at the context and allocate nothing. No attribute carries a
// key. They are
//
//	stint.rule       the rule's ID, of a decision by a rule
//	stint.policy     the policy's name, of another one with a name
//	stint.limit      the deciding limit's name, or its algorithm where it has none
//	stint.verb       take, try, peek, reset, settle, reserve, commit, cancel, drop, list
//	stint.allowed    whether the request is admitted
//	stint.degraded   whether a failure policy decided instead of the store
//	stint.source     where the decision was made: store, denial-cache, lease, failure-policy
//	stint.operations how many operations were decided at once, if they were more than one call's
//
// An operation that could not be decided sets the span's status to Error.
package otellimit

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

const scope = "github.com/stint-go/stint/otellimit"

// A store makes spans of what another one decides.
type store struct {
	wrapped stint.Store
	tracer  trace.Tracer
	name    string
	kind    trace.SpanKind
}

// Decisions makes a span "rate limit" of each decision of a store, which is the one that a [stint.Limiter] or an
// enforce.Limiter is given: they get what it returns.
func Decisions(of stint.Store, provider trace.TracerProvider) stint.Store {
	return &store{of, provider.Tracer(scope), "rate limit", trace.SpanKindInternal}
}

// Calls makes a span "rate limit store" of each call of a store on another machine, with the wait before the call was
// sent. It stands below what decides without that store, such as package failover's; a store that watches itself still
// does.
func Calls(of stint.Store, provider trace.TracerProvider) stint.Store {
	return &store{of, provider.Tracer(scope), "rate limit store", trace.SpanKindClient}
}

var _ stint.Store = (*store)(nil)

// recorded reports whether the context belongs to a trace that is recorded.
func recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// begin begins a span below the one of the context. It is called for recorded traces only: what it
// costs then is paid there alone.
func (s *store) begin(ctx context.Context) (context.Context, trace.Span) {
	return s.tracer.Start(ctx, s.name, trace.WithSpanKind(s.kind))
}

// Decide implements [stint.Store].
func (s *store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if !recorded(ctx) {
		return s.wrapped.Decide(ctx, op)
	}
	ctx, span := s.begin(ctx)
	defer span.End()
	d, err := s.wrapped.Decide(ctx, op)
	describe(span, &op, &d, err)
	return d, err
}

// Take implements [stint.Store].
func (s *store) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	if !recorded(ctx) {
		return s.wrapped.Take(ctx, policy, key, n)
	}
	return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

// DecideAll implements [stint.Store]. Operations that are decided at once have one span.
func (s *store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if !recorded(ctx) {
		s.wrapped.DecideAll(ctx, ops, results)
		return
	}
	ctx, span := s.begin(ctx)
	defer span.End()
	s.wrapped.DecideAll(ctx, ops, results)
	span.SetAttributes(attribute.Int("stint.operations", len(ops)))
	if len(ops) == 0 {
		return
	}
	shown := 0 // the first that was not decided, or was denied, tells more than those before it
	for i := range ops {
		if results[i].Err != nil || !results[i].Decision.Allowed {
			shown = i
			break
		}
	}
	d := &results[shown].Decision
	describe(span, &ops[shown], d, results[shown].Err)
}

// Watch implements [stint.Store].
func (s *store) Watch(timeout time.Duration, unreachable func(int, error)) stint.Shards {
	return s.wrapped.Watch(timeout, unreachable)
}

// ResetAll implements [stint.Store].
func (s *store) ResetAll(ctx context.Context, scope stint.Scope) error {
	return s.wrapped.ResetAll(ctx, scope)
}

// A waker is a store that tells when permits come back, see [stint.Store].
type waker interface {
	Wake(key string, policy *stint.Policy, wake func()) (stop func())
}

// Wake tells when permits come back, see [stint.Store], as far as the store does.
func (s *store) Wake(key string, policy *stint.Policy, wake func()) (stop func()) {
	if w, tells := s.wrapped.(waker); tells {
		return w.Wake(key, policy, wake)
	}
	return func() {}
}

// describe says on a span what was decided.
func describe(span trace.Span, op *stint.Op, d *stint.Decision, err error) {
	attributes := append(make([]attribute.KeyValue, 0, 6), attribute.String("stint.verb", op.Verb.String()))
	limit, claim := stint.Limit{}, op.First()
	if err == nil {
		limit, claim = op.LimitAt(int(d.Index))
	}
	policy := ""
	if claim != nil && claim.Policy != nil { // what is refused may lack them
		policy = claim.Policy.Name()
	}
	if rule, ok := strings.CutPrefix(policy, rules.PolicyPrefix); ok {
		attributes = append(attributes, attribute.String("stint.rule", rule))
	} else if policy != "" {
		attributes = append(attributes, attribute.String("stint.policy", policy))
	}
	if err != nil {
		span.SetAttributes(attributes...)
		span.SetStatus(codes.Error, kindOf(err))
		return
	}
	name := limit.Name
	if name == "" {
		name = limit.Algorithm.String()
	}
	span.SetAttributes(
		append(attributes, attribute.String("stint.limit", name), attribute.Bool("stint.allowed", d.Allowed),
			attribute.Bool("stint.degraded", d.Degraded), attribute.String("stint.source", d.Source.String()))...)
}

// kindOf is an error without its text, in which a key may stand.
func kindOf(err error) string {
	for _, kind := range []error{
		stint.ErrOverloaded, stint.ErrUnavailable, stint.ErrInvalid, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "not decided"
}
