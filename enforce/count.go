package enforce

import (
	"context"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/running"
)

// countsAnswers reports whether the rule counts requests by their answers.
func (c *Claimed) countsAnswers() bool { return len(c.Rule.Count.Status) > 0 }

// countsAnswers reports whether a rule that decides counts requests by their answers.
func (v *Verdict) countsAnswers() bool {
	return slices.ContainsFunc(v.claims, func(c Claimed) bool { return c.countsAnswers() })
}

// markAsked notes of each claim whether its cost is what a commit says: of those whose cost requests may name; if
// there is none, of rules that count by answers; if there is none, of all.
func (v *Verdict) markAsked() {
	named, counts := slices.ContainsFunc(v.claims, func(c Claimed) bool { return c.named }), v.countsAnswers()
	for i := range v.claims {
		c := &v.claims[i]
		c.Asked = c.named || !named && (c.countsAnswers() || !counts)
	}
}

// asked are the marks of the claims.
func (v *Verdict) asked() []bool {
	asked := make([]bool, len(v.claims))
	for i := range v.claims {
		asked[i] = v.claims[i].Asked
	}
	return asked
}

// awaitEnds corrects the waits of a denied Reserve: of limits that count by answers, and admit once the requests under
// way are not counted, it is soon. It asks what is held of them; where that can't be said, the wait stays. The decision
// is that of the limit with the longest wait. Places are left to package httplimit, which knows them by the limit.
func (l *Limiter) awaitEnds(ctx context.Context, v *Verdict, d stint.Decision) stint.Decision {
	if d.Allowed || d.Degraded || d.Full || !v.countsAnswers() {
		return d
	}
	v.Decision = d
	corrected := stint.Decision{Allowed: true}
	for r := range v.byRule() {
		outs := v.outcomesOf(r)
		for i := range r.claims {
			claim := &r.claims[i].Claim
			n := claim.Policy.Len()
			if r.claims[i].countsAnswers() {
				running.AwaitEnds(claim, outs[:n], func() ([]stint.Hold, error) { return listHolds(ctx, l.store, claim) })
			}
			outs = outs[n:]
		}
		if of := v.decisionOf(r); !of.Allowed && (corrected.Allowed || of.RetryAfter > corrected.RetryAfter) {
			corrected = of
			corrected.Index += int16(r.first) // #nosec G115 -- MaxOpLimits
		}
	}
	corrected.Source = d.Source
	return corrected
}

// listHolds lists what is held of a claim.
func listHolds(ctx context.Context, store stint.Store, claim *stint.Claim) (live []stint.Hold, err error) {
	_, err = store.Decide(ctx, stint.Op{Verb: stint.VerbList, Claim: *claim, Extra: &stint.Extra{Live: &live}})
	return live, err
}
