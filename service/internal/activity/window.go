package activity

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// What a process tells the others of the last hour: so many steps, each of so many seconds.
const (
	hourStep  = 15
	hourSteps = totalSeconds/hourStep - 1 // the ring of seconds has a part of one more
)

// windowRules is how many rules a process tells the others the counts of: those that decided most.
const windowRules = 100

// counted is what a process decided in the minutes that the top covers.
type counted struct {
	Total Counts
	Hour  TotalSeries
	Rules []RuleCounts
}

// counted counts up to a second; mu is held.
func (r *Recorder) counted(second uint32) (c counted) {
	minute := second / 60
	from := (minute - topMinutes + 1) * 60
	for at := from; at <= second; at++ {
		if bin := &r.totals[at%totalSeconds]; bin.second == at {
			c.Total.add(bin.counts())
			c.Total.Degraded += int64(bin.degraded)
		}
	}
	c.Hour = r.totals.hour(second)
	for _, s := range r.rules.busiest(minute) {
		if of := s.counted(minute); len(c.Rules) < windowRules && of.Admitted+of.Denied+of.ShadowDenied > 0 {
			c.Rules = append(c.Rules, of)
		}
	}
	return c
}

// newHour makes a series of the last hour that ends before a second.
func newHour(end int64) TotalSeries {
	return TotalSeries{
		Series:   newSeries(end-hourSteps*hourStep, hourStep, hourSteps),
		Degraded: make([]uint32, hourSteps),
	}
}

// end is the first second after the series.
func (s *TotalSeries) end() int64 { return s.From + hourSteps*hourStep }

// hour are the totals of the last hour, in the steps that ended before a second.
func (t *totals) hour(second uint32) TotalSeries {
	s := newHour(int64(second / hourStep * hourStep))
	for i := range uint32(hourSteps * hourStep) {
		at := uint32(s.From) + i
		if bin := &t[at%totalSeconds]; bin.second == at {
			step := int(i / hourStep)
			s.add(step, &bin.tally)
			s.Degraded[step] += bin.degraded
		}
	}
	return s
}

// hour adds up the last hour of the processes in view, up to the end of the one that told it first. Those of another
// version tell none.
func (v *view) hour() TotalSeries {
	var told []*TotalSeries
	end := int64(math.MaxInt64)
	for i := range v.summaries {
		s := &v.summaries[i].Counted.Hour
		whole := s.Step == hourStep && s.From%hourStep == 0
		for _, counts := range [][]uint32{s.Admitted, s.Denied, s.ShadowDenied, s.Degraded} {
			whole = whole && len(counts) == hourSteps
		}
		if whole {
			told, end = append(told, s), min(end, s.end())
		}
	}
	all := newHour(end)
	for _, s := range told {
		ahead := int((s.From - all.From) / hourStep) // the first steps of all are before the others' first
		for i := 0; i+ahead < hourSteps; i++ {
			all.add(i+ahead, &tally{s.Admitted[i], s.Denied[i], s.ShadowDenied[i]})
			all.Degraded[i+ahead] += s.Degraded[i]
		}
	}
	return all
}

// counts are the tally as others are told it.
func (t *tally) counts() Counts {
	return Counts{Admitted: int64(t.admitted), Denied: int64(t.denied), ShadowDenied: int64(t.shadow)}
}

// counted is what the rule decided in the minutes that the top covers.
func (s *ruleSeries) counted(minute uint32) RuleCounts {
	c := RuleCounts{Rule: s.id}
	for i := range uint32(topMinutes) {
		if b := &s.minutes[(minute-i)%ruleMinutes]; b.at == minute-i {
			c.add(b.counts())
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
	denied := map[of]bool{}
	for i := range v.summaries {
		for _, item := range v.summaries[i].Denied {
			client, sum := of{rule: item.Rule, client: item.Client}, sums[item.Rule]
			if sum != nil && item.Count > item.Error && !denied[client] {
				denied[client] = true
				sum.DeniedClients++
			}
		}
	}
	all := slices.SortedFunc(maps.Values(sums), func(a, b *RuleCounts) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.ShadowDenied, a.ShadowDenied),
			cmp.Compare(b.Admitted, a.Admitted), cmp.Compare(a.Rule, b.Rule))
	})
	rules := make([]RuleCounts, min(windowRules, len(all)))
	for i := range rules {
		rules[i] = *all[i]
	}
	return rules
}
