package enforce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/rules"
)

// An ExplainedWay is one way to charge a request by a rule.
type ExplainedWay struct {
	// Via is by what it charges, as [Claimed] has it; "" of the rule's own limits where there is no
	// other way.
	Via string
	// Allowed says whether all of its limits admit.
	Allowed bool
	// First is the place in Each of the first of its limits.
	First int
	// Why says in words why it denies; "" of a way that does not.
	Why string
}

// Ways are the ways to charge the request, in the order in which they are tried: the first that is
// allowed is charged. They are nil of a rule that has neither ways nor classes, of one that keeps
// nothing for others, and without Each.
func (x *Explained) Ways() (ways []ExplainedWay) {
	if x.Each == nil || len(x.Vias) == 0 && x.Class == "" && !x.keeps() {
		return nil
	}
	at := 0
	var why []string
	end := func() {
		if n := len(ways) - 1; n >= 0 {
			ways[n].Allowed, ways[n].Why = len(why) == 0, strings.Join(why, ", and ")
		}
		why = nil
	}
	for i := range x.claims {
		c := &x.claims[i]
		if i == 0 || c.way != x.claims[i-1].way {
			end()
			ways = append(ways, ExplainedWay{Via: c.Via, First: at})
		}
		for j := range c.Claim.Policy.Len() {
			if text := x.whyLimit(at, &c.Claim, j, c.Via); text != "" {
				why = append(why, text)
			}
			at++
		}
	}
	end()
	return ways
}

// Available is [Verdict.Available] of the rule alone.
func (x *Explained) Available() (n int64, chooses bool) {
	if x.Each == nil {
		return 0, false
	}
	op := x.op(false)
	if op.Groups() == nil {
		return 0, false
	}
	return decide.Available(&op, x.Each)
}

// ViaAt is by what a request is charged that takes of the limit at a place of Each; "" by the
// rule's own limits.
func (x *Explained) ViaAt(limit int) string {
	claim, _ := locate(x.claims, limit)
	return x.claims[claim].Via
}

// op is the rule's claims as an operation that looks: bare without what they leave to others.
func (x *Explained) op(bare bool) stint.Op {
	claims := slices.Clone(x.claims)
	for i := range claims {
		if bare {
			claims[i].Claim.Keep = 0
		}
	}
	op := new(built).op(claims)
	op.Verb, op.Each = stint.VerbPeek, make([]stint.Outcome, op.Limits())
	return op
}

// keeps reports whether a claim leaves permits to others.
func (x *Explained) keeps() bool {
	return slices.ContainsFunc(x.claims, func(c Claimed) bool { return c.Claim.Keep > 0 })
}

// whyLimit says why a limit denies, which is at a place of Each and has a number in its claim's policy;
// "" if it does not.
func (x *Explained) whyLimit(at int, claim *stint.Claim, number int, via string) string {
	out, limit := &x.Each[at], claim.Policy.Limit(number)
	if out.Allowed {
		return ""
	}
	id := strings.TrimPrefix(claim.Policy.Name(), rules.PolicyPrefix)
	what := "rule " + id
	if limit.Name != "" {
		what = limit.Name + " of rule " + id
	}
	free := out
	if x.bare != nil {
		free = &x.bare[at]
	}
	switch {
	case free.Allowed && claim.Keep >= limit.Capacity:
		return "the client is guaranteed nothing, and may not borrow"
	case free.Allowed:
		return fmt.Sprintf("%d of %d permits of %s are kept for %s", claim.Keep, limit.Capacity, what,
			x.keptFor(claim, limit.Capacity, via))
	case limit.Denials:
		return fmt.Sprintf("%s blocks for %v, after %d denials", what, free.RetryAfter, limit.Capacity)
	case free.RetryAfter == stint.Never:
		return fmt.Sprintf("the cost of %d is above the limit of %s, %d", claim.Permits, what, limit.Capacity)
	case free.Remaining >= claim.Permits:
		return fmt.Sprintf("%s denies for %v", what, free.RetryAfter)
	default:
		return fmt.Sprintf("%s has %d of %d permits left", what, free.Remaining, limit.Capacity)
	}
}

// keptFor says for whom permits are kept.
func (x *Explained) keptFor(claim *stint.Claim, capacity int64, via string) string {
	percent := int64(x.Rule.Classes.Keep[x.Class])
	switch {
	case percent == 0 || via == rules.ViaGuaranteed:
		return "what others are guaranteed"
	case claim.Keep == capacity*percent/100:
		return "higher classes"
	default:
		return "what others are guaranteed, and for higher classes"
	}
}

// whyWays completes the words about a verdict by what the ways of the deciding rule say.
func (x *Explained) whyWays(v *Verdict, why string) string {
	ways := x.Ways()
	if len(ways) == 0 || v.Claim.Policy == nil || v.Decision.Degraded {
		return why
	}
	if !v.Allowed {
		if v.Decision.RetryAfter == stint.Never {
			why = "no wait helps"
		}
		for i := range ways {
			if ways[i].Why != "" {
				why += "; " + cmp.Or(ways[i].Via, rules.ViaLimits) + ": " + ways[i].Why
			}
		}
		return why
	}
	switch v.Via {
	case rules.ViaGuaranteed:
		why += "; the request is charged to what its client is guaranteed"
	case rules.ViaBorrowed:
		why += "; the request borrows from rule " + x.Rule.Within
	case rules.ViaOtherwise:
		why += "; its own limits deny, and the request is charged to rule " + x.Rule.Otherwise
	}
	return why
}
