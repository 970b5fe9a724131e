package rulesapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/stint-go/stint"
	cliptext "github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// The outcomes of calls that change something.
const (
	outcomeDone        = "done"
	outcomeUnchanged   = "unchanged"
	outcomeFailed      = "failed"
	outcomeUnconfirmed = "unconfirmed"
)

// outcomeOf says what came of a call that failed.
func outcomeOf(err error) string {
	status := statusOf(err)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal) && refusal.unconfirmed:
		return outcomeUnconfirmed
	case hidden(err) != nil:
		return outcomeFailed
	case status == http.StatusUnauthorized:
		return "unauthenticated"
	case status == http.StatusForbidden:
		return "forbidden"
	case status == http.StatusNotFound, status == http.StatusGone:
		return "not_found"
	case status == http.StatusConflict, status == http.StatusTooManyRequests:
		return "conflict"
	case status == http.StatusPreconditionFailed:
		return "precondition_failed"
	case status == http.StatusServiceUnavailable, errors.Is(err, stint.ErrUnavailable), errors.Is(err, context.Canceled):
		return outcomeUnconfirmed
	case status != 0 && status < 500, errors.Is(err, stint.ErrInvalid):
		return "invalid"
	default:
		return outcomeFailed
	}
}

// A record is what the audit is told of a change, or of an attempt at one. It holds no secrets.
type record struct {
	caller  Caller
	action  string
	rule    string
	client  string // as the rule counts it, which hides API keys
	version int64
	outcome string
	detail  string
	err     error // what the detail leaves out
	leftOut int64 // records of strangers before it
}

// audit writes a record to the log.
func (a *API) audit(ctx context.Context, r record) {
	attributes := []slog.Attr{
		slog.String("who", r.caller.Name), slog.String("from", r.caller.From),
		slog.String("action", r.action), slog.String("outcome", r.outcome),
	}
	for _, text := range [][2]string{{"rule", r.rule}, {"client", r.client}, {"detail", r.detail}} {
		if text[1] != "" {
			attributes = append(attributes, slog.String(text[0], clip(text[1])))
		}
	}
	if r.err != nil {
		attributes = append(attributes, errorAttr(r.err))
	}
	if r.version != 0 {
		attributes = append(attributes, slog.Int64("version", r.version))
	}
	if r.leftOut != 0 {
		attributes = append(attributes, slog.Int64("left_out", r.leftOut))
	}
	level := slog.LevelInfo
	if r.outcome != outcomeDone && r.outcome != outcomeUnchanged {
		level = slog.LevelWarn
	}
	a.config.Logger.LogAttrs(ctx, level, "audit", attributes...)
}

// errorAttr is an error in the log, without the secrets of URLs. What is wrong with much is told in part.
func errorAttr(err error) slog.Attr {
	const most = 1024
	return slog.String("err", cliptext.To(most, notation.Redact(err.Error())))
}

// note records what came of the call.
func (c *Call) note(err error) {
	outcome, detail := c.outcome, ""
	switch {
	case err != nil:
		outcome, detail = outcomeOf(err), detailOf(err)
	case outcome == "":
		outcome = outcomeDone
	}
	c.api.metrics.edited(c.Action, outcome)
	c.api.audit(c.r.Context(), record{
		caller: c.caller, action: c.Action, rule: c.Rule, client: c.shown, version: c.version, outcome: outcome, detail: detail,
		err: hidden(err),
	})
}

// detailOf is what a refusal says. What is wrong with rules is not repeated: it may quote what the
// caller sent, an API key among it.
func detailOf(err error) string {
	if statusOf(err) != 0 {
		return err.Error()
	}
	return ""
}

// Refused records a request of who may not make it, which was answered before its call was served:
// with call nil, before it was known what it asks for. Of callers without a name, who are not known,
// some records are left out where there are many; the next one says how many.
func (a *API) Refused(r *http.Request, caller Caller, call *Call, status int, detail string) {
	rec := record{caller: caller, action: "request", outcome: outcomeOf(&Refusal{Status: status}), detail: detail}
	if call != nil {
		rec.action, rec.rule = call.Action, call.Rule
		if call.Changes {
			a.metrics.edited(rec.action, rec.outcome)
		}
	}
	a.metrics.refused(rec.outcome)
	if caller.Name == "" {
		var ok bool
		if rec.leftOut, ok = a.strangers.Admit(); !ok {
			return
		}
	}
	a.audit(r.Context(), rec)
}

// about notes which client of a rule the call is about, in a form that can be shown.
func (c *Call) about(rule *rules.Rule, client string) {
	if key, err := rule.OverrideKey(client); err == nil {
		c.shown = key
	}
}
