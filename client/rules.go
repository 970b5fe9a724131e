package client

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
)

// serviceRules are the rules of a service.
type serviceRules struct {
	client  *Client
	headers []string
}

// Rules returns the service's rules, for middleware. They are safe for concurrent use. The service is told a request's
// method, host, path, address, user, API key and attributes, and those of its header fields that headers names, in any
// case: name the fields that rules match or take a cost from. Of a field that stands several times it is told one
// value, with commas between. A text that is not UTF-8 is an error that wraps [stint.ErrInvalid].
//
// The service holds a request for rules that wait, no longer than [Options.Timeout]. A service that
// decides by its failure policy answers with a degraded decision; a service that can't be reached is an
// error that wraps [stint.ErrUnavailable]. A verdict has its Remote. A turn of a leaky bucket that comes
// after the context's deadline is denied, and stays taken at the service.
func (c *Client) Rules(headers ...string) enforce.Decider {
	r := &serviceRules{client: c}
	for _, name := range headers {
		r.headers = append(r.headers, http.CanonicalHeaderKey(name))
	}
	return r
}

// Decide implements [enforce.Decider].
func (r *serviceRules) Decide(ctx context.Context, request *rules.Request, v *enforce.Verdict) error {
	return r.decide(ctx, request, v, true)
}

// DecideNow implements [enforce.Decider].
func (r *serviceRules) DecideNow(ctx context.Context, request *rules.Request, v *enforce.Verdict) error {
	return r.decide(ctx, request, v, false)
}

// An answer without an algorithm is one that no limit made: no rule held, a ban, or the failure
// policy; it has no counters, and a denial has no time after which a retry helps.
func (r *serviceRules) decide(ctx context.Context, request *rules.Request, v *enforce.Verdict, wait bool) error {
	*v = enforce.Verdict{OnHold: v.OnHold}
	described := r.describe(request)
	if !wait {
		described.Wait = &wait
	}
	answer, header, err := r.client.evaluate(ctx, described)
	if err != nil {
		return err
	}
	v.Allowed, v.Matched, v.Shadowed = answer.Allowed, answer.Matched, answer.Shadowed
	v.Class, v.Via = answer.Class, answer.Via
	for _, x := range answer.Exceeded {
		v.Exceeded = append(v.Exceeded, enforce.Exceeded{
			Rule: x.Rule, LimitName: x.LimitName, Limit: x.Limit, RetryAfter: waitOf(x.RetryAfterMicros),
		})
	}
	v.Remote = &enforce.Remote{Reason: stint.Reason(answer.Reason), Missing: answer.Missing, Header: header}
	if v.Remote.Vias = answer.Vias; answer.Vias == nil && answer.Via != "" {
		v.Remote.Vias = map[string]string{answer.Rule: answer.Via}
	}
	v.Remote.Available = answer.Available
	v.Remote.Unauthenticated = !answer.Allowed && len(header["Www-Authenticate"]) > 0
	if answer.Rule != "" {
		v.Rule = &rules.Rule{ID: answer.Rule}
	}
	if answer.Algorithm == "" {
		v.Decision = stint.Decision{Allowed: answer.Allowed, Degraded: answer.Degraded}
		if answer.Degraded {
			v.Decision.Source = stint.SourceFailurePolicy
		}
		if !answer.Allowed {
			v.Decision.RetryAfter = stint.Never
		}
		return nil
	}
	v.Claim.Key = answer.Key
	v.Decision = decisionOf(nil, &answer.CheckResponse)
	algorithm, _ := notation.ParseAlgorithm(answer.Algorithm) // which is known, as the answer is plausible
	v.Remote.Limit = stint.Limit{Name: answer.LimitName, Algorithm: algorithm, Capacity: answer.Limit}
	if deadline, bounded := ctx.Deadline(); bounded && v.Allowed && v.Decision.Delay > time.Until(deadline) {
		v.Turn, v.Remote.Reason = v.Decision.Delay, stint.ReasonLimit
		v.Allowed, v.Decision.Allowed, v.Decision.RetryAfter = false, false, v.Decision.Delay
		v.Via = ""
	}
	return nil
}

// describe is the request as the service is told it. User and API key travel as attributes of fixed
// names, which beat attributes of the same name.
func (r *serviceRules) describe(q *rules.Request) api.EvaluateRequest {
	described := api.EvaluateRequest{
		Method:     q.Method,
		Path:       q.Path,
		Host:       q.Host,
		IP:         addressOf(q.Address),
		Attributes: q.Attributes,
		Set:        q.Set,
	}
	for _, name := range r.headers {
		values := q.Header[name]
		if len(values) == 0 {
			continue
		}
		if described.Headers == nil {
			described.Headers = make(map[string]string, len(r.headers))
		}
		described.Headers[name] = strings.Join(values, ", ")
	}
	if q.User == "" && q.APIKey == "" {
		return described
	}
	described.Attributes = make(map[string]string, len(q.Attributes)+2)
	maps.Copy(described.Attributes, q.Attributes)
	if q.User != "" {
		described.Attributes[api.AttributeUserID] = q.User
	}
	if q.APIKey != "" {
		described.Attributes[api.AttributeAPIKey] = q.APIKey
	}
	return described
}

// addressOf is a client's address of the key that clientip makes of it: of a network its first.
func addressOf(key string) string {
	if network, err := netip.ParsePrefix(key); err == nil {
		return network.Addr().String()
	}
	return key
}

// Evaluate has the service decide a request by all of its rules that match it.
func (c *Client) Evaluate(ctx context.Context, request api.EvaluateRequest) (api.EvaluateResponse, error) {
	answer, _, err := c.evaluate(ctx, request)
	return answer, err
}

// evaluate has the service decide a request by its rules. A limit's answer names its rule.
func (c *Client) evaluate(ctx context.Context, request api.EvaluateRequest) (api.EvaluateResponse, http.Header, error) {
	if err := checkTexts(&request); err != nil {
		return api.EvaluateResponse{}, nil, err
	}
	q := call{method: http.MethodPost, path: apipath.Evaluate, body: request, denial: true}
	return do(ctx, c, q, "an evaluation", func(a *api.EvaluateResponse, ok bool) bool {
		limited := a.Algorithm != ""
		return a.Allowed == ok && (!limited || plausible(&a.CheckResponse) && a.Rule != "")
	})
}

// checkTexts refuses a text that JSON could not carry unchanged: two clients could become one.
func checkTexts(q *api.EvaluateRequest) error {
	fault := func(param, text string) error {
		return stint.Invalid(clip.To(maxClip, param), fmt.Sprintf("of %d bytes", len(text)), "UTF-8")
	}
	for _, text := range [...][2]string{
		{"method", q.Method}, {"path", q.Path}, {"host", q.Host}, {"ip", q.IP}, {"set", q.Set},
	} {
		if !utf8.ValidString(text[1]) {
			return fault(text[0], text[1])
		}
	}
	for of, texts := range map[string]map[string]string{"headers.": q.Headers, "attributes.": q.Attributes} {
		for name, text := range texts {
			if !utf8.ValidString(name) || !utf8.ValidString(text) {
				return fault(of+name, text)
			}
		}
	}
	return nil
}

// SettleRules charges Permits (above 0), refunds them (below 0) or does nothing (0) after the service's
// rules have decided a request. Where they have several ways to charge it, Via and Vias say which it
// was, as the evaluation answered.
func (c *Client) SettleRules(ctx context.Context, request api.SettleRulesRequest) (api.SettleRulesResponse, error) {
	request.Wait = nil
	if err := checkTexts(&request.EvaluateRequest); err != nil {
		return api.SettleRulesResponse{}, err
	}
	q := call{method: http.MethodPost, path: apipath.Settle, body: request}
	answer, _, err := do(ctx, c, q, "a settlement", func(a *api.SettleRulesResponse, _ bool) bool {
		if a.Rest == nil {
			return a.Rule == ""
		}
		left := checkOfRest(a.Rest)
		return plausible(&left) && a.Rule != ""
	})
	return answer, err
}
