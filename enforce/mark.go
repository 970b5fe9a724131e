package enforce

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// An Exceeded limit marks a request that is admitted.
type Exceeded struct {
	// Rule is the ID of its rule.
	Rule string
	// LimitName is the limit's name, and Limit how many permits it has.
	LimitName string
	Limit     int64
	// RetryAfter is how long until the limit would admit the request; 0 if it does, and is only used up to the rule's
	// mark_at.
	RetryAfter time.Duration
}

// marks reports whether a claim is charged only if it fits. Where the claims of its rule are all to be charged, as of a
// Settle, it is not.
func (c *Claimed) marks() bool { return c.Rule.OnExceed == rules.Mark && c.way != all }

// isMarking reports whether a verb asks for admission, so that rules may mark its request: what is settled, cleared or
// ended was admitted before.
func isMarking(verb stint.Verb) bool { return verb <= stint.VerbPeek || verb == stint.VerbReserve }

// mark notes which limits mark an admitted request. A failure policy's answer knows no limit.
func (v *Verdict) mark() {
	if v.Decision.Degraded {
		return
	}
	for r := range v.byRule() {
		marks, at, outs := r.claims[0].marks(), int64(r.claims[0].Rule.MarkAt), v.outcomesOf(r)
		if !marks && at == 0 {
			continue
		}
		charged := int8(all)
		if !marks && r.claims[0].way != all {
			charged = int8(v.decisionOf(r).Via) // #nosec G115 -- at most MaxWays
		}
		for i := range r.claims {
			c := &r.claims[i]
			for j := range c.Claim.Policy.Len() {
				o := &outs[j]
				exceeds := marks && !o.Allowed
				used := o.Limit - o.Remaining - c.Claim.Keep // what is kept for others is not used
				full := at > 0 && o.Allowed && used*100 >= at*o.Limit
				if !o.Denials && (exceeds || full && (marks || c.way == charged)) { // not of a way that was not charged
					v.noteExceeded(c, j, o, exceeds)
				}
			}
			outs = outs[c.Claim.Policy.Len():]
		}
	}
}

// noteExceeded notes a limit of a claim that marks, and an event of that.
func (v *Verdict) noteExceeded(c *Claimed, index int, o *stint.Outcome, exceeds bool) {
	limit := c.Claim.Policy.Limit(index)
	e := stint.Event{
		Rule: c.Rule.ID, Set: c.Rule.Set, Class: c.Class, Claim: c.Claim, Shadow: true, Marked: true,
		Decision: stint.Decision{
			Allowed: !exceeds, Index: int16(index), Limit: o.Limit, Remaining: o.Remaining, // #nosec G115 -- MaxLimits
			ResetAfter: o.ResetAfter, At: v.Decision.At, Source: v.Decision.Source,
		},
	}
	if exceeds {
		e.Decision.RetryAfter = o.RetryAfter
		e.Reason = stint.ReasonOf(limit, &e.Decision, c.Claim.Permits)
	}
	e.Claim.Key = c.Client
	v.Shadows = append(v.Shadows, e)
	v.Exceeded = append(v.Exceeded, Exceeded{c.Rule.ID, limit.Name, o.Limit, e.Decision.RetryAfter})
}
