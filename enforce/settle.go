package enforce

import (
	"context"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/rules"
)

// Settle charges, or refunds with negative permits, what rules decided about a request, after the
// fact: the limits whose cost requests may name, or all if there is none; of a rule in shadow, those
// that it would be if the rule were in force. What a client has no limits for, since a rule bans it for
// example, is not settled. The verdict tells what was applied, of the limit with the least. Errors are
// Decide's; a refund to a leaky bucket is one.
//
// Of rules with ways it is the way that charged the request: vias are what [Verdict.Vias] said when it
// was decided; nil where no rule has ways. Under "" is the way of rules that vias don't name. A rule in
// shadow has to be named: else it is not settled if it has several ways. The error wraps
// stint.ErrInvalid where a rule has no such way, or several and none is said.
func (l *Limiter) Settle(
	ctx context.Context, r *rules.Request, permits int64, vias map[string]string, v *Verdict,
) error {
	err := l.Steps().Prepare(r, v, stint.VerbSettle)
	if err == nil && v.Allowed {
		err = v.choose(vias)
	}
	return l.adjust(ctx, v, err, stint.VerbSettle, permits)
}

// SettleClient is Settle for a client of one rule, as overrides name it.
func (l *Limiter) SettleClient(ctx context.Context, rule, client string, permits int64, v *Verdict) error {
	v.reset()
	matched, err := l.set.Load().ClientMatch(rule, client, l.wall)
	if err == nil && matched.Outcome == rules.Limited {
		v.Matched = append(v.Matched, rule)
		v.claims = appendClaims(v.claims, &matched)
	}
	return l.adjust(ctx, v, err, stint.VerbSettle, permits)
}

// adjust carries out a verb on what a verdict claims, if there is no error so far.
func (l *Limiter) adjust(ctx context.Context, v *Verdict, err error, verb stint.Verb, permits int64) error {
	if err == nil && v.Allowed {
		if verb == stint.VerbSettle {
			v.setPermits(permits)
		}
		err = l.decide(ctx, v, verb, true)
	}
	return v.clearOnError(err)
}

// setPermits gives all claims so many permits, and leaves only those whose cost requests may name if there are any.
// What is in shadow changes nothing for the others.
func (v *Verdict) setPermits(n int64) {
	isNamed := func(c Claimed) bool { return c.named }
	set := func(claims []Claimed, named bool) []Claimed {
		claims = slices.DeleteFunc(claims, func(c Claimed) bool { return named && !c.named })
		for i := range claims {
			claims[i].Claim.Permits = n
		}
		return claims
	}
	named := slices.ContainsFunc(v.claims, isNamed)
	v.claims = set(v.claims, named)
	for i := range v.shadows {
		s := &v.shadows[i]
		s.claims = set(s.claims, named || slices.ContainsFunc(s.claims, isNamed))
	}
	v.shadows = slices.DeleteFunc(v.shadows, func(s shadow) bool { return len(s.claims) == 0 })
}

// Vias are by which way each rule with ways charged an admitted request, for [Limiter.Settle]:
// by the rule's ID, what the verdict's Via is. Where a rule can lend from several others it is
// followed by a colon and the ID of the one that did. Rules in shadow are there that would have
// admitted. It is nil if no rule charged by a way, and has to be asked before the verdict is used
// again.
func (v *Verdict) Vias() (vias map[string]string) {
	if v.Remote != nil {
		return v.Remote.Vias
	}
	note := func(claims []Claimed, via uint8) {
		if vias == nil {
			vias = map[string]string{}
		}
		ways := waysOf(claims)
		vias[claims[0].Rule.ID] = ways.name(int(via))
	}
	charged := v.Allowed && !v.Decision.Degraded && v.Claim.Policy != nil
	for r := range v.byRule() {
		if charged && r.claims[0].Via != "" {
			note(r.claims, v.decisionOf(r).Via)
		}
	}
	for i := range v.shadows {
		if s := &v.shadows[i]; s.charged && s.claims[0].Via != "" {
			note(s.claims, s.way)
		}
	}
	return vias
}

// Available is how many permits the limits that decide have for the request, one after another of one permit each, if
// nobody else takes any: of each rule with ways what they have together, of all rules the least. It reports false of a
// verdict without ways, whose Decision.Remaining says it, and where no limit was asked. It has to be asked before the
// verdict is used again.
func (v *Verdict) Available() (n int64, chooses bool) {
	if v.Remote != nil && v.Remote.Available != nil {
		return *v.Remote.Available, true
	}
	isWay := func(c Claimed) bool { return c.way != all }
	if v.Claim.Policy == nil || v.Decision.Degraded || !slices.ContainsFunc(v.claims, isWay) {
		return 0, false
	}
	op := v.op(stint.VerbPeek)
	return decide.Available(&op, op.Each)
}

// ways are the ways of a rule, each of claims.
type ways [][]Claimed

// waysOf are those of the claims of a rule: one of all if they are no alternatives.
func waysOf(claims []Claimed) (list ways) {
	from := 0
	for i := range claims {
		if i > 0 && claims[i].way != claims[i-1].way {
			list, from = append(list, claims[from:i]), i
		}
	}
	return append(list, claims[from:])
}

// name is by what a way charges, and where others charge by the same, whose limit it takes of.
func (w ways) name(way int) string {
	via := w[way][0].Via
	for i := range w {
		if i != way && w[i][0].Via == via {
			return w.full(way)
		}
	}
	return via
}

// full is by what a way charges, and whose limit it takes of.
func (w ways) full(way int) string {
	first := &w[way][0]
	return first.Via + ":" + strings.TrimPrefix(first.Claim.Policy.Name(), rules.PolicyPrefix)
}

// find is the number of the way of a name, with or without whose limit it takes of; -1 if there is none.
func (w ways) find(via string) int {
	for i := range w {
		if via == w.name(i) || via == w.full(i) {
			return i
		}
	}
	return -1
}

// word is a value that faults show without quotes.
type word string

// choose leaves of each rule the claims of the way that charged the request.
func (v *Verdict) choose(vias map[string]string) error {
	var left []Claimed
	some := false // whether a rule has ways
	for r := range v.byRule() {
		claims := r.claims
		some = some || claims[0].Via != ""
		param, via := "vias."+claims[0].Rule.ID, vias[claims[0].Rule.ID]
		if via == "" && claims[0].Via != "" {
			param, via = "via", vias[""]
		}
		way, err := chosen(claims, param, via)
		if err != nil {
			return err
		}
		left = append(left, way...)
	}
	if via := vias[""]; via != "" && !some {
		return stint.Invalid("via", via, "none, since no rule that decides the request has several ways to charge it")
	}
	v.claims = append(v.claims[:0], left...)
	return v.chooseShadows(vias)
}

// chosen are the claims of a rule's way, which is needed where there are several.
func chosen(claims []Claimed, param, via string) ([]Claimed, error) {
	list := waysOf(claims)
	way := list[0]
	switch {
	case via == "" && len(list) == 1:
	case via != "" && claims[0].Via == "":
		return nil, stint.Invalid(param, via, "none, since the rule has one way to charge the request")
	default:
		var value any = via
		if via == "" {
			value = word("missing")
		}
		i := list.find(via)
		if i >= 0 {
			way = list[i]
		} else {
			var names []string
			for i := range list {
				names = append(names, list.name(i))
			}
			return nil, stint.Invalid(param, value, "by what rule "+claims[0].Rule.ID+
				" charged the request, as its decision said: "+strings.Join(names, " or "))
		}
	}
	way = slices.Clone(way)
	for i := range way {
		way[i].way = all
	}
	return way, nil
}

// chooseShadows is choose for rules in shadow.
func (v *Verdict) chooseShadows(vias map[string]string) error {
	v.shadows = slices.DeleteFunc(v.shadows, func(s shadow) bool {
		via := vias[s.rule.ID]
		return via == "" && len(waysOf(s.claims)) > 1 // it may have admitted nothing
	})
	for i := range v.shadows {
		s := &v.shadows[i]
		way, err := chosen(s.claims, "vias."+s.rule.ID, vias[s.rule.ID])
		if err != nil {
			return err
		}
		s.claims = way
	}
	return nil
}
