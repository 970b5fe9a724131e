package enforce

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/rules"
)

// An Explanation tells what the rules make of a request, and why.
type Explanation struct {
	// Path is the request's path in the form in which it was matched.
	Path string
	// Rules are all that match, by priority and ID, those that are skipped included.
	Rules []Explained
	// Verdict is what Decide would say, but that rules that wait are not waited for.
	Verdict Verdict
}

// An Explained rule is one that matches.
type Explained struct {
	rules.Matched
	// Decision is what the limits of its claim would say if they were asked alone. It is empty
	// without a claim.
	Decision stint.Decision
	// Each are the outcomes of these limits, in the order of Claim and And. They are nil without a claim, and where a
	// failure policy answered for the store.
	Each []stint.Outcome
	// what is asked of its limits, and their outcomes as Each, if nothing were kept for others; nil if nothing is
	claims []Claimed
	bare   []stint.Outcome
	// Holds is what is held of the claim, the next to expire first, with the places of Permits as in Each.
	// Only of a client.
	Holds []stint.Hold
	// Fault is a cost that the request names and that is none, of a rule in shadow: others
	// refuse such a request. There is no claim then.
	Fault error
}

// Explain tells what Decide would, and what each rule that matches says by itself. It takes nothing, and does not wait
// for rules that wait. The store is asked twice: the verdict and what single rules say may differ by what others took
// in between. Errors are Decide's.
func (l *Limiter) Explain(ctx context.Context, r *rules.Request) (*Explanation, error) {
	x := &Explanation{}
	v := &x.Verdict
	if err := l.adjust(ctx, v, l.Steps().Prepare(r, v, stint.VerbPeek), stint.VerbPeek, 0); err != nil {
		return nil, err
	}
	x.Path = v.matches.Path()
	for i := range v.matches.Len() {
		var matched rules.Matched
		err := v.matches.At(i, stint.VerbTake, &matched)
		x.Rules = append(x.Rules, explained(&matched))
		x.Rules[i].Fault = err
	}
	if err := l.peek(ctx, x.Rules); err != nil {
		return nil, err
	}
	return x, nil
}

// explained is a rule that is to be explained.
func explained(matched *rules.Matched) Explained {
	x := Explained{Matched: *matched}
	if matched.Claim.Policy != nil {
		x.claims = appendClaims(nil, matched)
	}
	return x
}

// ExplainClient tells what every rule that can count a client, as overrides name it, has for it, by ID. It takes
// nothing. Errors are the store's.
func (l *Limiter) ExplainClient(ctx context.Context, client string) ([]Explained, error) {
	set := l.set.Load()
	var list []Explained
	for _, rule := range set.Rules() {
		if matched, err := set.ClientMatch(rule.ID, client, l.wall); err == nil {
			list = append(list, explained(&matched))
		}
	}
	if err := l.peek(ctx, list); err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Each == nil {
			continue
		}
		if err := l.listHolds(ctx, &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// listHolds lists what is held of a rule's claims.
func (l *Limiter) listHolds(ctx context.Context, x *Explained) error {
	first := 0
	for i := range x.claims {
		claim := &x.claims[i].Claim
		live, err := listHolds(ctx, l.store, claim)
		if err != nil {
			return err
		}
		for _, h := range live {
			for i, permits := range h.Permits {
				x.Holds = decide.AppendHold(x.Holds, h.ID, first+i, len(x.Each), permits, h.ExpiresAt)
			}
		}
		first += claim.Policy.Len()
	}
	return nil
}

// peek asks the store what the claims of rules would be told, each rule's by themselves. Where
// permits are kept for others, the claim is asked a second time as if nothing were, which tells the
// two reasons of a denial apart.
func (l *Limiter) peek(ctx context.Context, list []Explained) error {
	var ops []stint.Op
	var of []*Explained // each operation
	for i := range list {
		x := &list[i]
		if len(x.claims) > 0 {
			ops, of = append(ops, x.op(false)), append(of, x)
		}
		if x.keeps() {
			ops, of = append(ops, x.op(true)), append(of, x)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	results := make([]stint.Result, len(ops))
	l.store.DecideAll(ctx, ops, results)
	for i, x := range of {
		each := ops[i].Each
		if results[i].Err != nil {
			return results[i].Err
		} else if results[i].Decision.Degraded {
			each = nil
		}
		if i == 0 || of[i-1] != x {
			x.Decision, x.Each = results[i].Decision, each
		} else if x.Each != nil {
			x.bare = each
		}
	}
	return nil
}

// Why says in words what decided.
func (x *Explanation) Why() string {
	v := &x.Verdict
	switch {
	case v.byDefault:
		return "no rule holds for the request, and those are denied"
	case v.Rule == nil:
		switch {
		case len(v.Matched) > 0:
			return "no rule limits the request"
		case slices.ContainsFunc(x.Rules, func(rule Explained) bool { return rule.NeedsReserve() }):
			return "no rule holds for the request but for a reserve, since the limits that it meets are of concurrency, or of " +
				"rules with count"
		}
		return "no rule holds for the request"
	}
	why := v.why()
	for i := range x.Rules {
		if x.Rules[i].Rule == v.Rule {
			why = x.Rules[i].whyWays(v, why)
		}
	}
	return "rule " + v.Rule.ID + " decides: " + why
}

// lacking says what the deciding rule would have to know of the request.
func (v *Verdict) lacking() string {
	parts, instead := v.Missing(), ""
	if n := len(parts) - 1; v.Rule.Missing == rules.MissingIP && n > 0 && parts[n] == rules.PerIP &&
		!slices.Contains(v.Rule.Scope, rules.PerIP) {
		parts, instead = parts[:n], ", and the address to count it by instead"
	}
	return "the request lacks what it counts by, " + strings.Join(parts, " and ") + instead
}

// why the deciding rule decides so.
func (v *Verdict) why() string {
	switch d := &v.Decision; {
	case v.Outcome == rules.Lacking:
		return v.lacking()
	case v.Outcome == rules.Banned:
		return "it bans the client"
	case d.Degraded && d.Allowed:
		return "the store is unreachable, and a failure policy admits"
	case d.Degraded:
		return "the store is unreachable, and a failure policy denies"
	case d.Allowed:
		return fmt.Sprintf("it has the fewest permits left, %d of %d", d.Remaining, d.Limit)
	case v.Limit().Denials:
		return fmt.Sprintf("it blocks the client, which was denied %d times, for %v", d.Limit, d.RetryAfter)
	case d.RetryAfter == stint.Never:
		return fmt.Sprintf("the cost of %d is above its limit of %d", v.Claim.Permits, d.Limit)
	default:
		return fmt.Sprintf("it denies for the longest, %v", d.RetryAfter)
	}
}

// Tell tells an observer of the verdict, and then of what each rule in shadow would have decided.
// The event says what the verdict does not know: when it was asked for, and of which request. Its
// Claim.Key stands for a client whom no limit counts, such as one that is banned: the client's
// address.
func (v *Verdict) Tell(ctx context.Context, e *stint.Event, observe stint.Observer) {
	address := e.Claim.Key
	e.Claim, e.Decision, e.Reason, e.Class, e.Via = v.Claim, v.Decision, v.Reason(), v.Class, v.Via
	if v.Rule != nil {
		e.Rule, e.Set = v.Rule.ID, v.Rule.Set
	}
	if !v.Allowed {
		e.Claim.Key = cmp.Or(e.Claim.Key, address)
	}
	observe(ctx, e)
	e.Shadow = true
	for i := range v.Shadows {
		s := &v.Shadows[i]
		e.Rule, e.Set, e.Claim, e.Decision, e.Reason, e.Class, e.Via = s.Rule, s.Set, s.Claim, s.Decision,
			s.Reason, s.Class, s.Via
		e.Marked = s.Marked
		e.Claim.Key = cmp.Or(e.Claim.Key, address)
		observe(ctx, e)
	}
}

// Reason is why the request is denied; "" of one that is not, or could not be decided.
func (v *Verdict) Reason() stint.Reason {
	switch {
	case v.Remote != nil:
		return v.Remote.Reason
	case v.byDefault:
		return stint.ReasonDefault
	case v.Outcome == rules.Banned, v.Outcome == rules.Lacking:
		return reasonWithoutLimit(v.Outcome)
	case v.Allowed || v.Claim.Policy == nil:
		return ""
	case v.Turn > 0:
		return stint.ReasonLimit
	default:
		return stint.ReasonOf(v.Limit(), &v.Decision, v.Claim.Permits)
	}
}

// reasonWithoutLimit is why a rule denies without its limits.
func reasonWithoutLimit(o rules.Outcome) stint.Reason {
	if o == rules.Banned {
		return stint.ReasonBanned
	}
	return stint.ReasonMissing
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

// Unauthenticated reports whether the request is denied since it does not say who sends it, by a rule that has that
// answered 401 (UNAUTHENTICATED in gRPC) rather than 429.
func (v *Verdict) Unauthenticated() bool {
	if v.Remote != nil {
		return v.Remote.Unauthenticated
	}
	return !v.Allowed && v.Outcome == rules.Lacking && v.Rule.MissingStatus == 401
}

// Missing are the parts of the deciding rule's scope that the request lacks; nil but with
// stint.ReasonMissing.
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
