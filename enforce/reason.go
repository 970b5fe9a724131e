package enforce

import (
	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// A Reason says why a request is denied; "" is that it is not.
type Reason string

// The reasons.
const (
	ReasonLimit       Reason = "limit"        // a limit has too few permits left
	ReasonMinInterval Reason = "min_interval" // a limit has permits left, but the one before came too short a time ago
	ReasonNever       Reason = "never"        // the cost is above the limit itself
	ReasonBanned      Reason = "banned"       // a rule bans the client
	ReasonMissing     Reason = "missing"      // the request lacks what a rule counts by
	ReasonDefault     Reason = "default"      // no rule holds for the request
)

// ReasonOf is why a limit's decision about so many permits denies.
func ReasonOf(limit stint.Limit, d *stint.Decision, permits int64) Reason {
	least := limit.MinInterval
	switch {
	case d.Allowed:
		return ""
	case d.RetryAfter == stint.Never:
		return ReasonNever
	case least > 0 && d.RetryAfter <= least && (d.Remaining >= permits || limit.CountDenied && d.RetryAfter == least):
		return ReasonMinInterval // a denial that is counted may have taken the last permit
	default:
		return ReasonLimit
	}
}

// Reason is why the request is denied; "" of one that is not, or could not be decided.
func (v *Verdict) Reason() Reason {
	switch {
	case v.Remote != nil:
		return v.Remote.Reason
	case v.byDefault:
		return ReasonDefault
	case v.Outcome == rules.Banned, v.Outcome == rules.Lacking:
		return reasonWithoutLimit(v.Outcome)
	case v.Allowed || v.Claim.Policy == nil:
		return ""
	case v.Turn > 0:
		return ReasonLimit
	default:
		return ReasonOf(v.Limit(), &v.Decision, v.Claim.Permits)
	}
}

// reasonWithoutLimit is why a rule denies without its limits.
func reasonWithoutLimit(o rules.Outcome) Reason {
	if o == rules.Banned {
		return ReasonBanned
	}
	return ReasonMissing
}

// Limit is the one that decided; the zero Limit when no limit was asked.
func (v *Verdict) Limit() stint.Limit {
	switch {
	case v.Remote != nil:
		return v.Remote.Limit
	case v.Claim.Policy == nil:
		return stint.Limit{}
	}
	return v.Claim.Policy.Limit(int(v.Decision.Index))
}

// Missing are the parts of the deciding rule's scope that the request lacks; nil but with ReasonMissing.
func (v *Verdict) Missing() []string {
	if v.Remote != nil {
		return v.Remote.Missing
	}
	for i := range v.matches.Len() {
		if v.Outcome == rules.Lacking && v.matches.Rule(i) == v.Rule {
			return v.matches.Lacks(i)
		}
	}
	return nil
}
