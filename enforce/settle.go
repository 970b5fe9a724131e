package enforce

import (
	"context"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// Settle charges, or refunds with negative permits, what rules decided about a request, after the fact: the limits whose cost
// requests may name, or all if there is none; rules in shadow each by itself. What a client has no limits for, since a rule bans it for
// example, is not settled. The verdict tells what was applied, of the limit with the least. Errors are Decide's; a refund to a leaky bucket is one.
func (l *Limiter) Settle(ctx context.Context, r *rules.Request, permits int64, v *Verdict) error {
	return l.adjust(ctx, v, l.match(r, v), stint.Settle, permits)
}

// SettleClient is Settle for a client of one rule, as overrides name it.
func (l *Limiter) SettleClient(ctx context.Context, rule, client string, permits int64, v *Verdict) error {
	v.reset()
	matched, err := l.set.Load().ClientMatch(rule, client)
	if err == nil && matched.Outcome == rules.Limited {
		v.Matched = append(v.Matched, rule)
		v.claim(&matched)
	}
	return l.adjust(ctx, v, err, stint.Settle, permits)
}

// Reset clears the states that decide a request, those of rules in shadow too.
func (l *Limiter) Reset(ctx context.Context, r *rules.Request, v *Verdict) error {
	return l.adjust(ctx, v, l.match(r, v), stint.Reset, 0)
}

// ResetClient clears the states of a client of one rule, as overrides name it, under the rule's limits and under its override's.
func (l *Limiter) ResetClient(ctx context.Context, rule, client string) error {
	claims, err := l.set.Load().ClientClaims(rule, client)
	if err != nil || len(claims) == 0 {
		return err
	}
	d, err := l.store.Decide(ctx, stint.Op{Verb: stint.Reset, Claim: claims[0], And: claims[1:]})
	if err == nil && d.Degraded {
		err = stint.ErrUnavailable
	}
	return err
}

// adjust carries out a verb on what a verdict claims, if there is no error so far.
func (l *Limiter) adjust(ctx context.Context, v *Verdict, err error, verb stint.Verb, permits int64) error {
	if err == nil && v.Allowed {
		if verb == stint.Settle {
			v.permit(permits)
		}
		err = l.decide(ctx, v, verb, true)
	}
	return v.settle(err)
}

// permit gives all claims so many permits, and leaves only those whose cost requests may name if there are any.
func (v *Verdict) permit(n int64) {
	named := slices.ContainsFunc(v.claims, func(c Claimed) bool { return c.named }) ||
		slices.ContainsFunc(v.shadows, func(s shadow) bool { return s.named > 0 })
	v.claims = slices.DeleteFunc(v.claims, func(c Claimed) bool { return named && !c.named })
	v.shadows = slices.DeleteFunc(v.shadows, func(s shadow) bool { return named && s.named == 0 })
	for i := range v.claims {
		v.claims[i].Claim.Permits = n
	}
	for i := range v.shadows {
		op := &v.shadows[i].op
		if named {
			op.And = op.And[:v.shadows[i].named-1]
		}
		op.Permits = n
		for j := range op.And {
			op.And[j].Permits = n
		}
	}
}
