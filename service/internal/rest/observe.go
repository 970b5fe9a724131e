package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/logsampler"
	"github.com/stint-go/stint/service/internal/requestid"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/session"
)

// observeCheck tells of a check without rules. The event is the caller's, to be used again. It is
// called before the answer is written, by the same goroutine.
func (s *Service) observeCheck(
	w http.ResponseWriter,
	r *http.Request,
	e *stint.Event,
	t *target,
	claim *stint.Claim,
	d *stint.Decision,
	start time.Time,
	elapsed time.Duration,
) {
	*e = stint.Event{
		At: stint.Instant(start.UnixMicro()), Elapsed: elapsed, Claim: *claim, Rule: t.Rule, Decision: *d,
		RequestID: requestID(w),
	}
	e.Reason = stint.ReasonOf(e.Limit(), d, claim.Permits)
	s.observe(r.Context(), e)
}

// observeVerdict tells of a request that rules decided, and then of each rule in shadow.
func (s *Service) observeVerdict(
	ctx context.Context, id string, e *evaluation, start time.Time, elapsed time.Duration,
) {
	e.event = stint.Event{
		At: stint.Instant(start.UnixMicro()), Elapsed: elapsed, Claim: stint.Claim{Key: e.request.Address},
		Method: e.request.Method, Path: e.request.Path, RequestID: id, Attributes: e.request.Attributes,
	}
	e.verdict.Tell(ctx, &e.event, s.observeRule)
}

// observeRule tells of what a rule decided, or that none matched.
func (s *Service) observeRule(ctx context.Context, e *stint.Event) {
	s.ruleMetrics.Observe(ctx, e)
	s.observe(ctx, e)
}

// observe tells all observers of an event. The order is that of the configuration, after metrics.
func (s *Service) observe(ctx context.Context, e *stint.Event) {
	for _, observe := range s.observers {
		observe(ctx, e)
	}
}

// observeRules tells the recorder of other rules.
func (s *Service) observeRules(set *rules.Set, changes rulediff.Changes) {
	if s.config.Activity == nil || changes.None() {
		return
	}
	var words []string
	for _, c := range []struct {
		what string
		ids  []string
	}{{"added", changes.Added}, {"removed", changes.Removed}, {"changed", changes.Changed}} {
		if len(c.ids) > 0 {
			words = append(words, fmt.Sprintf("%s %s", c.what, strings.Join(c.ids, ", ")))
		}
	}
	s.config.Activity.RulesChanged(s.revisionOf(set), strings.Join(words, "; "), attributesOf(set.Rules()))
}

// attributesOf are the attributes that rules name, by which a request is found again: those of what they hold for, of
// clients, classes, costs and partitions, and the user where rules count users. API keys are none of them.
func attributesOf(list []rules.Rule) []string {
	named := map[string]bool{}
	for i := range list {
		rule := &list[i]
		for name := range rule.Match.Attributes {
			named[name] = true
		}
		for _, part := range rule.Scope {
			if name, custom := strings.CutPrefix(part, rules.CustomPrefix); custom {
				named[name] = true
			}
			named[api.AttributeUserID] = named[api.AttributeUserID] || part == rules.PerUser
		}
		for _, cost := range append([]rules.Cost{rule.Cost}, rule.Costs...) {
			named[cost.Attribute] = true
		}
		named[rule.Classes.By.Attribute], named[rule.PartitionBy] = true, true
	}
	for _, not := range []string{"", api.AttributeAPIKey} {
		delete(named, not)
	}
	maps.DeleteFunc(named, func(_ string, used bool) bool { return !used })
	return slices.Sorted(maps.Keys(named))
}

// revisionOf is the number of the rules' revision if they come from a store of revisions. Else it
// is the beginning of their SHA-256, so that processes with the same rules have the same, wherever
// they have them from. 4 bytes of it are enough for people to compare.
func (s *Service) revisionOf(set *rules.Set) string {
	if s.config.Manager != nil {
		if number := s.config.Manager.InForce(); number > 0 {
			return strconv.FormatInt(number, 10)
		}
	}
	text, err := rulestore.Encode(set.Rules())
	if err != nil {
		s.logger.Error("rules in force can't be encoded", "err", err)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:4])
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
	refused map[string]prometheus.Counter // by outcome
	// untrusted counts requests whose forwarded header was ignored.
	untrusted prometheus.Counter

	// those in which a proxy names the client, as http.Header keeps them
	forwardHeaders []string

	tokenLines, overloadLines, untrustedLines, algorithmLines, handshakeLines *logsampler.Sampler
}

// newEvents makes the counters and samplers. headers are those in which proxies name clients; none
// stands for the default.
func newEvents(registry prometheus.Registerer, headers []string) (*events, error) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_api_refused_total",
		Help: "Requests to the REST API, and commands of the Redis protocol, without a token, with an unknown token, " +
			"or that their callers may not make.",
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
		handshakeLines: logsampler.New(1, time.Minute, nil),
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
	return e, errors.Join(registry.Register(refused), registry.Register(e.untrusted))
}

// outcomeOf is "" if a request failed for another reason than that its caller may not make it.
func outcomeOf(f *problem.Error) string {
	switch {
	case f.Status == http.StatusUnauthorized && f.Value == session.ChallengeInvalid:
		return outcomeInvalidToken
	case f.Status == http.StatusUnauthorized:
		return outcomeUnauthenticated
	case f.Status == http.StatusForbidden:
		return outcomeForbidden
	}
	return ""
}

// noteRefusal counts a request that failed, if the reason is that its caller may not make it.
func (s *Service) noteRefusal(w http.ResponseWriter, r *http.Request, f *problem.Error) {
	if outcome := outcomeOf(f); outcome != "" {
		s.noteRefused(
			outcome, listen.HTTP, r.RemoteAddr, s.clients.Key(r.RemoteAddr, r.Header), path.Base(r.URL.Path),
			f.Detail, requestID(w),
		)
	}
}

// noteRefused counts what its caller may not do, and records a wrong token in the audit. A request without a token, or
// one that the configuration forbids, is no attempt to guess a token.
func (s *Service) noteRefused(outcome, service, from, client, action, detail, id string) {
	s.events.refused[outcome].Inc()
	if outcome == outcomeInvalidToken {
		s.events.tokenLines.Warn(s.logger, "audit", "service", service, "who", "", "from", from, "client", client,
			"action", action, "outcome", outcome, "detail", detail, "request_id", id,
		)
	}
}

// noteForwarded counts and logs a request whose forwarded header is ignored, as its peer is not a trusted proxy. Behind
// a proxy that is missing in trusted_proxies, all clients would count as one.
func (s *Service) noteForwarded(r *http.Request) {
	for _, name := range s.events.forwardHeaders {
		if len(r.Header[name]) == 0 {
			continue
		}
		if !s.clients.TrustsPeer(r.RemoteAddr) {
			s.events.untrusted.Inc()
			s.events.untrustedLines.Warn(s.logger, "a forwarded header is ignored: its peer is not in trusted_proxies. "+
				"If the peer is your proxy, add its address there",
				"peer", r.RemoteAddr, "header", name)
		}
		return
	}
}

// noteUnknownAlgorithm logs that TOKEN_BUCKET decides for an algorithm that does not exist.
func (s *Service) noteUnknownAlgorithm(r *http.Request, name string) {
	s.events.algorithmLines.Warn(s.logger,
		"TOKEN_BUCKET decides for an unknown algorithm: api.unknown_algorithm is fallback",
		"algorithm", problem.Short(name), "peer", r.RemoteAddr,
	)
}

// noteOverload counts a request for which there was no time, and logs it, once.
func (s *Service) noteOverload(asked string, err error) {
	if errors.As(err, new(notedOverload)) {
		return
	}
	s.metrics.Overloaded()
	s.events.overloadLines.Warn(s.logger,
		"this process is overloaded: requests are answered 503, or decided by on_store_failure under on_overload: admit",
		"err", err, "path", asked,
	)
}

// requestID is the ID of the request that is answered.
func requestID(w http.ResponseWriter) string {
	if lines := w.Header()[requestid.Field]; len(lines) > 0 {
		return lines[0]
	}
	return ""
}
