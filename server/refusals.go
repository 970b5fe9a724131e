package server

import (
	"net/http"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/logsampler"
	"github.com/stint-go/stint/server/problem"
)

// The outcomes of requests to the REST API that their callers may not make.
const (
	outcomeUnauthenticated = "unauthenticated" // no token came
	outcomeInvalidToken    = "invalid_token"   // one that is not known
	outcomeForbidden       = "forbidden"
)

// refusals counts requests to the REST API that their callers may not make, and records wrong tokens in
// the audit at a bounded rate: anybody can send as many as they like.
type refusals struct {
	counts map[string]prometheus.Counter
	lines  *logsampler.Sampler
}

func newRefusals(registry prometheus.Registerer) (*refusals, error) {
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_api_refused_total",
		Help: "Requests to the REST API of callers who showed no token, one that is not known, or may not make them.",
	}, []string{"outcome"})
	r := &refusals{counts: map[string]prometheus.Counter{}, lines: logsampler.New(10, time.Second, nil)}
	for _, outcome := range []string{outcomeUnauthenticated, outcomeInvalidToken, outcomeForbidden} {
		r.counts[outcome] = counts.WithLabelValues(outcome)
	}
	return r, registry.Register(counts)
}

// noteRefusal counts a request that failed, if the reason is that its caller may not make it, and records
// a wrong token. What only the configuration forbids, or lacks a token, is no attempt to guess one.
func (s *service) noteRefusal(r *http.Request, f *problem.Error) {
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
	s.refusals.counts[outcome].Inc()
	if outcome != outcomeInvalidToken {
		return
	}
	skipped, ok := s.refusals.lines.Admit()
	if !ok {
		return
	}
	attributes := []any{
		"service", serviceHTTP, "who", "", "from", r.RemoteAddr, "client", s.clients.Key(r.RemoteAddr, r.Header),
		"action", path.Base(r.URL.Path), "outcome", outcome, "detail", f.Detail,
	}
	if skipped > 0 {
		attributes = append(attributes, "left_out", skipped)
	}
	s.logger.Warn("audit", attributes...)
}
