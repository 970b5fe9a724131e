package activity

import (
	"cmp"
	"slices"

	"github.com/stint-go/stint"
)

const (
	totalSeconds = 3600 // of totals
	ruleSeconds  = 300  // of a rule, by second
	ruleMinutes  = 60   // of a rule, by minute
	// maxRules is how many rules are counted apart: the busiest.
	maxRules = 1000
)

// A tally is of requests: what came of them. Those that a rule in shadow would have denied are counted by themselves.
type tally struct{ admitted, denied, shadow uint32 }

// add adds a tally to a step of the series.
func (s *Series) add(step int, t *tally) {
	s.Admitted[step] += t.admitted
	s.Denied[step] += t.denied
	s.ShadowDenied[step] += t.shadow
}

// A total is a second of the whole process. It is of the second that it says, whatever its place.
type total struct {
	second uint32
	tally
	degraded uint32
	timed    uint32 // of them asked the store
	micros   uint64 // which took so long together
}

// totals are those of an hour.
type totals [totalSeconds]total

// count adds an event to its second. The bins are a ring: that of a second which is long gone is
// emptied when its place is needed.
func (t *totals) count(second uint32, e *stint.Event) {
	bin := &t[second%totalSeconds]
	if bin.second != second {
		*bin = total{second: second}
	}
	switch outcomeOf(e) {
	case Admitted:
		bin.admitted++
	case Denied:
		bin.denied++
	case ShadowDenied:
		bin.shadow++
	case ShadowAdmitted:
	}
	if e.Decision.Degraded {
		bin.degraded++
	}
	if e.Elapsed > 0 {
		bin.timed++
		bin.micros += uint64(e.Elapsed.Microseconds())
	}
}

// series is the totals of so many seconds from one on.
func (t *totals) series(from uint32, seconds int) Totals {
	s := Totals{
		Series:      newSeries(int64(from), 1, seconds),
		Degraded:    make([]uint32, seconds),
		StoreMicros: make([]uint32, seconds),
	}
	for i := range seconds {
		bin := &t[(from+uint32(i))%totalSeconds]
		if bin.second != from+uint32(i) {
			continue
		}
		s.add(i, &bin.tally)
		s.Degraded[i] = bin.degraded
		if bin.timed > 0 {
			s.StoreMicros[i] = uint32(bin.micros / uint64(bin.timed))
		}
	}
	return s
}

// A bin is a second or a minute of a rule.
type bin struct {
	at uint32
	tally
	near uint32
}

// count adds one outcome. What a rule in shadow would have denied is counted by itself, what it
// would have admitted is admitted.
func (b *bin) count(o Outcome, near bool) {
	if near {
		b.near++
	}
	switch o {
	case Admitted, ShadowAdmitted:
		b.admitted++
	case Denied:
		b.denied++
	case ShadowDenied:
		b.shadow++
	}
}

// binOf is the bin of a step in a ring, emptied if it was another step's.
func binOf(bins []bin, at uint32) *bin {
	b := &bins[at%uint32(len(bins))]
	if b.at != at {
		*b = bin{at: at}
	}
	return b
}

// A ruleSeries is what was decided by one rule.
type ruleSeries struct {
	id      string
	seconds [ruleSeconds]bin
	minutes [ruleMinutes]bin
}

// count adds an outcome to the second and to the minute that it is in.
func (s *ruleSeries) count(second uint32, o Outcome, near bool) {
	binOf(s.seconds[:], second).count(o, near)
	binOf(s.minutes[:], second/60).count(o, near)
}

// show is the series of so many seconds from one on.
func (s *ruleSeries) show(from uint32, seconds int) RuleSeries {
	shown := RuleSeries{Rule: s.id, Seconds: seriesOf(s.seconds[:], from, seconds, 1)}
	for i := range seconds {
		if b := &s.seconds[(from+uint32(i))%ruleSeconds]; b.at == from+uint32(i) && b.near > 0 {
			if shown.Near == nil {
				shown.Near = make([]uint32, seconds)
			}
			shown.Near[i] = b.near
		}
	}
	return shown
}

// busy is how many requests it decided in the last minutes.
func (s *ruleSeries) busy(minute uint32) (n uint64) {
	for i := range s.minutes {
		if b := &s.minutes[i]; b.at+ruleSeconds/60 > minute && b.at <= minute {
			n += uint64(b.admitted) + uint64(b.denied) + uint64(b.shadow)
		}
	}
	return n
}

// busySince reports whether it decided something since a second.
func (s *ruleSeries) busySince(second uint32) bool {
	return slices.ContainsFunc(s.seconds[:], func(b bin) bool { return b.at >= second })
}

// seriesOf is a ring's last n steps from one on. Steps of which nothing was counted are 0, whatever
// the ring still has in their places.
func seriesOf(bins []bin, from uint32, n int, step int64) Series {
	s := newSeries(int64(from)*step, step, n)
	for i := range n {
		if b := &bins[(from+uint32(i))%uint32(len(bins))]; b.at == from+uint32(i) {
			s.add(i, &b.tally)
		}
	}
	return s
}

// newSeries makes the three lists of one allocation.
func newSeries(from, step int64, n int) Series {
	counts := make([]uint32, 3*n)
	return Series{
		From:         from,
		Step:         step,
		Admitted:     counts[:n:n],
		Denied:       counts[n : 2*n : 2*n],
		ShadowDenied: counts[2*n:],
	}
}

// A ruleTable has the busiest rules.
type ruleTable struct {
	known   map[string]*ruleSeries
	last    *ruleSeries // that was found
	others  ruleSeries  // the rules that are not known, together
	checked uint32      // when the least busy rule was last looked for
}

func (t *ruleTable) init() {
	t.known = make(map[string]*ruleSeries)
	t.last = &t.others
}

// find returns the series of a rule. When all are in use, the least busy one becomes the rule's, once a second at most;
// until then the rule is counted with the others.
func (t *ruleTable) find(rule string, second uint32) *ruleSeries {
	if t.last.id == rule {
		return t.last
	}
	s := t.known[rule]
	if s == nil {
		if s = t.free(second); s == nil {
			return &t.others
		}
		*s = ruleSeries{id: rule}
		t.known[rule] = s
	}
	t.last = s
	return s
}

// free makes room for a rule: of too many the one with the least load goes. It looks at most once a
// second, as that takes a sort; nil is that there is no room now.
func (t *ruleTable) free(second uint32) *ruleSeries {
	if len(t.known) < maxRules {
		return new(ruleSeries)
	}
	if second == t.checked {
		return nil
	}
	t.checked = second
	byLoad := t.busiest(second / 60)
	least := byLoad[len(byLoad)-1]
	delete(t.known, least.id)
	return least
}

// busiest are all known rules, the busiest first.
func (t *ruleTable) busiest(minute uint32) []*ruleSeries {
	type loaded struct {
		*ruleSeries
		load uint64
	}
	all := make([]loaded, 0, len(t.known))
	for _, s := range t.known {
		all = append(all, loaded{s, s.busy(minute)})
	}
	slices.SortStableFunc(all, func(a, b loaded) int {
		return cmp.Or(cmp.Compare(b.load, a.load), cmp.Compare(a.id, b.id))
	})
	sorted := make([]*ruleSeries, len(all))
	for i := range all {
		sorted[i] = all[i].ruleSeries
	}
	return sorted
}
