package rulesapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// The outcomes of calls that change something. unconfirmed is an edit that may have been made.
const (
	outcomeDone        = "done"
	outcomeUnchanged   = "unchanged"
	outcomeFailed      = "failed"
	outcomeUnconfirmed = "unconfirmed"
)

// outcomes are the outcomes of failed calls by their status. They are labels of metrics, so there
// are few of them.
var outcomes = map[int]string{
	http.StatusUnauthorized:       "unauthenticated",
	http.StatusForbidden:          "forbidden",
	http.StatusNotFound:           "not_found",
	http.StatusGone:               "not_found",
	http.StatusConflict:           "conflict",
	http.StatusTooManyRequests:    "conflict",
	http.StatusPreconditionFailed: "precondition_failed",
	http.StatusServiceUnavailable: outcomeUnconfirmed,
}

// outcomeOf is the outcome of a failed call.
func outcomeOf(err error) string {
	switch status := problem.Of(err).Status; {
	case errors.Is(err, errUnconfirmed):
		return outcomeUnconfirmed
	case hidden(err) != nil:
		return outcomeFailed
	case outcomes[status] != "":
		return outcomes[status]
	case errors.Is(err, context.Canceled):
		return outcomeUnconfirmed
	case status < 500:
		return "invalid"
	default:
		return outcomeFailed
	}
}

// statusOf is the status of a [problem.Error], and 0 of any other error.
func statusOf(err error) int {
	var known *problem.Error
	if errors.As(err, &known) {
		return known.Status
	}
	return 0
}

// hidden is the cause that the answer does not show. It is nil if the answer shows all, or if the
// caller is gone. What is hidden goes to the log: it may name servers, files and users.
func hidden(err error) error {
	var known *problem.Error
	switch {
	case errors.As(err, &known):
		return known.Cause
	case errors.Is(err, stint.ErrInvalid), errors.Is(err, stint.ErrUnavailable), errors.Is(err, context.Canceled):
		return nil
	default:
		return err
	}
}

// audit records a change, or an attempt at one, in the log, without secrets. Details that are empty
// or 0 are left out.
func (a *API) audit(ctx context.Context, who Caller, action, outcome string, details ...slog.Attr) {
	attributes := []slog.Attr{
		slog.String("who", who.Name), slog.String("from", who.From), slog.String("action", action),
		slog.String("outcome", outcome),
	}
	for _, d := range details {
		switch {
		case d.Value.Equal(slog.StringValue("")), d.Value.Equal(slog.Int64Value(0)), d.Key == "":
		case d.Value.Kind() == slog.KindString && d.Key != "err":
			attributes = append(attributes, slog.String(d.Key, problem.Short(d.Value.String())))
		default:
			attributes = append(attributes, d)
		}
	}
	level := slog.LevelInfo
	if outcome != outcomeDone && outcome != outcomeUnchanged {
		level = slog.LevelWarn
	}
	a.config.Logger.LogAttrs(ctx, level, "audit", attributes...)
}

// errorAttr is an error in the log, without the secrets of URLs. Long errors are shortened. For nil
// it is empty.
func errorAttr(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	const most = 1024
	return slog.String("err", clip.To(most, prefix.Trim(document.Redact(err.Error()))))
}

// note records the outcome of the call.
func (c *call) note(err error) {
	outcome, detail := c.outcome, ""
	switch {
	case err != nil:
		outcome = outcomeOf(err)
		// Faults of rules are not logged: they may quote an API key that the caller sent.
		if statusOf(err) != 0 {
			detail = prefix.Trim(err.Error())
		}
	case outcome == "":
		outcome = outcomeDone
	}
	c.api.metrics.edits.WithLabelValues(c.action, outcome).Inc()
	c.api.audit(
		c.r.Context(), c.caller, c.action, outcome, slog.String("rule", c.rule), slog.String("client", c.shown),
		slog.String("hold", c.hold), slog.String("detail", detail), errorAttr(hidden(err)),
		slog.Int64("revision", c.revision), slog.String("target", c.target),
	)
}

// report logs why a read failed. If the store of rules is unreachable, it logs only a sample.
func (a *API) report(ctx context.Context, caller Caller, action, rule string, err, cause error) {
	attributes := []slog.Attr{
		slog.String("who", caller.Name), slog.String("action", action),
		slog.String("rule", problem.Short(rule)), errorAttr(cause),
	}
	if statusOf(err) == http.StatusServiceUnavailable {
		leftOut, ok := a.unreachableLines.Admit()
		if !ok {
			return
		}
		if leftOut > 0 {
			attributes = append(attributes, slog.Int64("left_out", leftOut))
		}
	}
	a.config.Logger.LogAttrs(ctx, slog.LevelError, "a request failed", attributes...)
}

// Failed logs why a request to the admin listener failed that is not about rules, unless its answer
// says all.
func (a *API) Failed(ctx context.Context, caller Caller, action string, err error) {
	if cause := hidden(err); cause != nil {
		a.report(ctx, caller, action, "", err, cause)
	}
}

// Refused records a refused request to the admin listener that is not about rules.
func (a *API) Refused(ctx context.Context, caller Caller, err error) {
	a.refused(ctx, caller, "request", "", err)
}

// refused records a refused call, with its rule if it names one. Of many calls by unknown callers only some are
// recorded; the next record counts the others.
func (a *API) refused(ctx context.Context, caller Caller, action, rule string, err error) {
	outcome, leftOut := outcomeOf(err), int64(0)
	a.metrics.refusals.WithLabelValues(outcome).Inc()
	if caller.Name == "" {
		var ok bool
		if leftOut, ok = a.unknownCallers.Admit(); !ok {
			return
		}
	}
	a.audit(
		ctx, caller, action, outcome, slog.String("rule", rule), slog.String("detail", prefix.Trim(err.Error())),
		slog.Int64("left_out", leftOut),
	)
}

// about notes which client of a rule the call is about, in a form that can be shown.
func (c *call) about(rule *rules.Rule, client string) {
	if key, err := rule.OverrideKey(client); err == nil {
		c.shown = key
	}
}

// metrics count what administrators do:
//
//	rate_limiter_rule_edits_total{action,outcome}  calls that change something, refused ones included
//	rate_limiter_admin_refused_total{outcome}      refused requests to the admin listener
//	rate_limiter_rule_resets_total{outcome}        resets of all clients of a rule, or of everything
type metrics struct {
	edits, refusals, resets *prometheus.CounterVec
}

// newMetrics registers the metrics.
func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		edits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limiter_rule_edits_total",
			Help: "Requests that change rules or reset clients, by outcome.",
		}, []string{"action", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limiter_admin_refused_total",
			Help: "Requests to the admin listener without a known token, or that their callers may not make.",
		}, []string{"outcome"}),
		resets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limiter_rule_resets_total",
			Help: "Resets of all clients of a rule, or of everything, by outcome.",
		}, []string{"outcome"}),
	}
	for _, collector := range []prometheus.Collector{m.edits, m.refusals, m.resets} {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}
