package activity

import (
	"cmp"
	"slices"
)

// windowRules is how many rules a process tells the others the counts of: those that decided most.
const windowRules = 100

// counted is what a process decided in the minutes that the top covers.
type counted struct {
	Total Counts
	Rules []RuleCounts
}

// counted counts up to a second; mu is held.
func (r *Recorder) counted(second uint32) (c counted) {
	minute := second / 60
	from := (minute - topMinutes + 1) * 60
	for at := from; at <= second; at++ {
		if bin := &r.totals[at%totalSeconds]; bin.second == at {
			c.Total.Admitted += int64(bin.admitted)
			c.Total.Denied += int64(bin.denied)
			c.Total.ShadowDenied += int64(bin.shadow)
			c.Total.Degraded += int64(bin.degraded)
		}
	}
	for _, s := range r.rules.busiest(minute) {
		if of := s.counted(minute); len(c.Rules) < windowRules && of.Admitted+of.Denied+of.ShadowDenied > 0 {
			c.Rules = append(c.Rules, of)
		}
	}
	return c
}

// counted is what the rule decided in the minutes that the top covers.
func (s *ruleSeries) counted(minute uint32) RuleCounts {
	c := RuleCounts{Rule: s.id}
	for i := range uint32(topMinutes) {
		if b := &s.minutes[(minute-i)%ruleMinutes]; b.at == minute-i {
			c.Admitted += int64(b.admitted)
			c.Denied += int64(b.denied)
			c.ShadowDenied += int64(b.shadow)
			c.Near += int64(b.near)
		}
	}
	return c
}

// rules adds up what rules decided in the processes in view: those that denied most, up to windowRules.
func (v *view) rules() []RuleCounts {
	sums := map[string]*RuleCounts{}
	for i := range v.summaries {
		for _, c := range v.summaries[i].Counted.Rules {
			sum := sums[c.Rule]
			if sum == nil {
				sum = &RuleCounts{Rule: c.Rule}
				sums[c.Rule] = sum
			}
			sum.add(c.Counts)
			sum.Near += c.Near
		}
	}
	type pair struct{ rule, client string }
	denied := map[pair]bool{}
	for i := range v.summaries {
		for _, item := range v.summaries[i].Denied {
			p, sum := pair{item.Rule, item.Client}, sums[item.Rule]
			if sum != nil && item.Count > item.Error && !denied[p] {
				denied[p] = true
				sum.DeniedClients++
			}
		}
	}
	rules := make([]RuleCounts, 0, len(sums))
	for _, sum := range sums {
		rules = append(rules, *sum)
	}
	slices.SortFunc(rules, func(a, b RuleCounts) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.ShadowDenied, a.ShadowDenied),
			cmp.Compare(b.Admitted, a.Admitted), cmp.Compare(a.Rule, b.Rule))
	})
	return rules[:min(windowRules, len(rules))]
}
