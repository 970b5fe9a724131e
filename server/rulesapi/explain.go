package rulesapi

import (
	"context"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
)

// explainTimeout bounds the asking of the store.
const explainTimeout = 10 * time.Second

// explain says what the rules in force make of a request, and takes nothing.
func (c *call) explain() error {
	text, _, err := c.body(c.api.config.MaxBodyBytes, jsonBody)
	if err != nil {
		return err
	}
	request, err := c.api.config.ReadRequest(text)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), explainTimeout)
	defer cancel()
	x, err := c.api.config.Limiter.ExplainEach(ctx, request)
	if err != nil {
		return stateAway(err, "the store could not answer; nothing was consumed")
	}
	return c.answer(Explanation(x))
}

// explainClient says what a client, as overrides name it, has left by each rule that can count it.
func (c *call) explainClient() error {
	ctx, cancel := context.WithTimeout(c.r.Context(), explainTimeout)
	defer cancel()
	list, err := c.api.config.Limiter.ExplainClient(ctx, c.client)
	if err != nil {
		return stateAway(err, "the store could not answer; nothing was consumed")
	}
	shown := api.ClientExplanation{Client: c.client, Rules: []api.ExplainedRule{}}
	for i := range list {
		shown.Rules = append(shown.Rules, explained(&list[i]))
	}
	return c.answer(shown)
}

// Explanation is an explanation on the wire.
func Explanation(x *enforce.Explanation) api.Explanation {
	v := &x.Verdict
	shown := api.Explanation{
		Path: x.Path, Allowed: v.Allowed, Degraded: v.Decision.Degraded, Why: x.Why(), Reason: string(v.Reason()),
		RetryAfterSeconds: httplimit.Seconds(v.Decision.RetryAfter), RetryAfterMicros: api.Micros(v.Decision.RetryAfter),
		Rules: []api.ExplainedRule{},
	}
	if v.Rule != nil {
		shown.Rule = v.Rule.ID
	}
	for i := range x.Rules {
		shown.Rules = append(shown.Rules, explained(&x.Rules[i]))
	}
	return shown
}

func explained(rule *enforce.Explained) api.ExplainedRule {
	shown := api.ExplainedRule{Rule: rule.Rule.ID, Standing: rule.Outcome.String(), OnExceed: rule.Rule.OnExceed.String()}
	if rule.Fault != nil {
		shown.Allowed, shown.Error = true, rule.Fault.Error()
		return shown
	}
	switch rule.Outcome {
	case rules.Limited:
		shown.Allowed, shown.Key, shown.Cost = rule.Decision.Allowed, rule.Claim.Key, rule.Claim.Permits
	case rules.Skipped, rules.Unlimited:
		shown.Allowed = true
	case rules.Banned, rules.Lacking:
	}
	op := stint.Op{Claim: rule.Claim, And: rule.And}
	for i, o := range rule.Each {
		limit := op.LimitAt(i)
		shown.Limits = append(shown.Limits, api.ExplainedLimit{
			Name: limit.Name, Algorithm: limit.Algorithm.String(), Allowed: o.Allowed, Limit: o.Limit, Remaining: o.Remaining,
			ResetAfterSeconds: httplimit.Seconds(o.ResetAfter), ResetAfterMicros: o.ResetAfter.Microseconds(),
			RetryAfterSeconds: httplimit.Seconds(o.RetryAfter), RetryAfterMicros: api.Micros(o.RetryAfter),
		})
	}
	return shown
}
