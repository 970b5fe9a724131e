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

// mark notes which limits mark an admitted request. A failure policy's answer knows no limit.
func (v *Verdict) mark() {
	if v.Decision.Degraded {
		return
	}
	first, charged := 0, int8(all)
	for i := range v.claims {
		c := &v.claims[i]
		n := c.Claim.Policy.Len()
		marks, at := c.marks(), int64(c.Rule.MarkAt)
		if at > 0 && !marks && c.way != all && (i == 0 || v.claims[i-1].Rule != c.Rule) {
			claims, limits := v.ofRule(i)
			charged = int8(v.decisionOf(i, claims, v.each[first:first+limits]).Via) // #nosec G115 -- at most MaxWays
		}
		if c.way != all && !marks && c.way != charged {
			at = 0 // of a way that was not charged
		}
		for j := 0; j < n && (marks || at > 0); j++ {
			o := &v.each[first+j]
			if o.Denials { // which marks nothing
				continue
			}
			exceeds := marks && !o.Allowed
			if exceeds || at > 0 && o.Allowed && (o.Limit-o.Remaining)*100 >= at*o.Limit {
				v.noteExceeded(c, j, o, exceeds)
			}
		}
		first += n
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
