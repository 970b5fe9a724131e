package server

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/clientip"
	cliptext "github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/logsampler"
	"github.com/stint-go/stint/server/problem"
)

const (
	// maxAttr bounds a text in a line of the log, in bytes.
	maxAttr = 1 << 10
	// maxLongAttr bounds those that nobody else writes: messages of net/http, and stacks.
	maxLongAttr = 16 << 10
	// stackAttr is the attribute of a stack.
	stackAttr = "stack"
)

// A clippedLog shortens long texts. All lines of the service go through it.
type clippedLog struct{ slog.Handler }

func clipLog(logger *slog.Logger) *slog.Logger {
	if _, clipped := logger.Handler().(clippedLog); clipped {
		return logger
	}
	return slog.New(clippedLog{logger.Handler()})
}

// Handle clips the record's message and attributes.
func (l clippedLog) Handle(ctx context.Context, r slog.Record) error {
	clipped := slog.NewRecord(r.Time, r.Level, cliptext.To(maxLongAttr, r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clipped.AddAttrs(clipAttr(a))
		return true
	})
	return l.Handler.Handle(ctx, clipped)
}

// WithAttrs clips the attributes.
func (l clippedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	clipped := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clipped[i] = clipAttr(a)
	}
	return clippedLog{l.Handler.WithAttrs(clipped)}
}

// WithGroup is a log in which the attributes have a group.
func (l clippedLog) WithGroup(name string) slog.Handler { return clippedLog{l.Handler.WithGroup(name)} }

func clipAttr(a slog.Attr) slog.Attr {
	most := maxAttr
	if a.Key == stackAttr {
		most = maxLongAttr
	}
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text) > most {
			a.Value = slog.StringValue(cliptext.To(most, text))
		}
	case slog.KindGroup:
		group := a.Value.Group()
		clipped := make([]slog.Attr, len(group))
		for i, member := range group {
			clipped[i] = clipAttr(member)
		}
		a.Value = slog.GroupValue(clipped...)
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(cliptext.To(most, err.Error()))
		}
	case slog.KindBool, slog.KindDuration, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64, slog.KindLogValuer:
	}
	return a
}

// The outcomes of requests to the REST API that their callers may not make.
const (
	outcomeUnauthenticated = "unauthenticated" // without a token
	outcomeInvalidToken    = "invalid_token"   // with an unknown token
	outcomeForbidden       = "forbidden"
)

// events counts what clients do wrong and what operators must know, and bounds the lines of the log about it: anybody
// can cause as many events as they like.
type events struct {
	refused   map[string]prometheus.Counter // by outcome
	untrusted prometheus.Counter

	forwardHeaders []string // those in which a proxy names the client, as http.Header keeps them

	tokenLines, overloadLines, untrustedLines, algorithmLines *logsampler.Sampler
}

func newEvents(registry prometheus.Registerer, headers []string) (*events, error) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_api_refused_total",
		Help: "Requests to the REST API without a token, with an unknown token, or that their callers may not make.",
	}, []string{"outcome"})
	e := &events{
		refused: map[string]prometheus.Counter{},
		untrusted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_untrusted_forwarded_total",
			Help: "Requests with a forwarded header from a peer that is not in trusted_proxies. The header was ignored.",
		}),
		tokenLines:     logsampler.New(10, time.Second, nil),
		overloadLines:  logsampler.New(1, time.Minute, nil),
		untrustedLines: logsampler.New(1, time.Minute, nil),
		algorithmLines: logsampler.New(1, time.Minute, nil),
	}
	if len(headers) == 0 {
		headers = clientip.DefaultHeaders()
	}
	for _, name := range headers {
		e.forwardHeaders = append(e.forwardHeaders, http.CanonicalHeaderKey(name))
	}
	for _, outcome := range []string{outcomeUnauthenticated, outcomeInvalidToken, outcomeForbidden} {
		e.refused[outcome] = refused.WithLabelValues(outcome)
	}
	return e, register(registry, refused, e.untrusted)
}

// warn writes a line, if the sampler admits it, with the number of lines that were skipped before it.
func warn(logger *slog.Logger, lines *logsampler.Sampler, message string, attributes ...any) {
	skipped, ok := lines.Admit()
	if !ok {
		return
	}
	if skipped > 0 {
		attributes = append(attributes, "skipped", skipped)
	}
	logger.Warn(message, attributes...)
}

// noteRefusal counts a request that failed, if the reason is that its caller may not make it, and records
// a wrong token in the audit. A request without a token, or one that the configuration forbids, is no attempt to guess a token.
func (s *service) noteRefusal(w http.ResponseWriter, r *http.Request, f *problem.Error) {
	var outcome string
	switch {
	case f.Status == http.StatusUnauthorized && f.Value == challengeInvalidToken:
		outcome = outcomeInvalidToken
	case f.Status == http.StatusUnauthorized:
		outcome = outcomeUnauthenticated
	case f.Status == http.StatusForbidden:
		outcome = outcomeForbidden
	default:
		return
	}
	s.events.refused[outcome].Inc()
	if outcome == outcomeInvalidToken {
		warn(s.logger, s.events.tokenLines, "audit", "service", serviceHTTP, "who", "", "from", r.RemoteAddr,
			"client", s.clients.Key(r.RemoteAddr, r.Header), "action", path.Base(r.URL.Path), "outcome", outcome, "detail", f.Detail, "request_id", requestID(w))
	}
}

// noteForwarded counts and logs a request whose forwarded header is ignored, as its peer is not a trusted proxy. Behind a
// proxy that is missing in trusted_proxies, all clients would count as one.
func (s *service) noteForwarded(r *http.Request) {
	for _, name := range s.events.forwardHeaders {
		if len(r.Header[name]) == 0 {
			continue
		}
		if !s.clients.TrustsPeer(r.RemoteAddr) {
			s.events.untrusted.Inc()
			warn(s.logger, s.events.untrustedLines, "a forwarded header is ignored: its peer is not in trusted_proxies. If the peer is your proxy, add its address there",
				"peer", r.RemoteAddr, "header", name)
		}
		return
	}
}

// noteUnknownAlgorithm logs that TOKEN_BUCKET decides for an algorithm that does not exist.
func (s *service) noteUnknownAlgorithm(r *http.Request, name string) {
	warn(s.logger, s.events.algorithmLines, "TOKEN_BUCKET decides for an unknown algorithm: api.unknown_algorithm is fallback", "algorithm", problem.Short(name), "peer", r.RemoteAddr)
}

// noteOverload counts a request for which there was no time, and logs it.
func (s *service) noteOverload(r *http.Request, err error) {
	s.metrics.Overloaded()
	warn(s.logger, s.events.overloadLines, "this process is overloaded: requests are answered 503, or decided by on_store_failure under on_overload: admit",
		"err", err, "path", r.URL.Path)
}
