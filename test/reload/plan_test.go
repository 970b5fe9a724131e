package reload_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
)

// A plan are the rules as they come and go. Seven of ten stay as they are for good.
type plan struct {
	drawer
	number       int // of the set
	kept, moving []rules.Rule
	gone         []rules.Rule // that may come back
	drawn        int
	last         map[string]rules.Rule
	made         changed
}

// changed is what was made of the rules, summed over all reloads.
type changed struct{ added, returned, removed, limits, others, toggled int }

func newPlan(s *site, seed uint64, count int) *plan {
	p := &plan{drawer: drawer{rand.New(rand.NewPCG(seed, 0)), s}}
	for i := range s.shared {
		p.kept = append(p.kept, sharedRule(i, s.capacity))
	}
	for caller := range s.callers {
		p.kept = append(p.kept, p.laneRules(caller)...)
	}
	p.kept = append(p.kept, p.everywhereRules()...)
	const ends = 2 // the rules that carry the set's number
	for len(p.kept)+len(p.moving)+ends < count {
		r := p.fresh()
		r.Disabled = in(p.Rand, 5)
		if len(p.kept) < 7*count/10 {
			p.kept = append(p.kept, r)
		} else {
			p.moving = append(p.moving, r)
		}
	}
	return p
}

func (p *plan) fresh() rules.Rule {
	p.drawn++
	return p.sectionRule("rule-" + strconv.Itoa(p.drawn))
}

// ends are the first and the last rule of a set, which tell its number.
func ends(number int) []rules.Rule {
	first := rules.Rule{ID: fmt.Sprintf("first-%d", number), Priority: 1000, Scope: []string{rules.Global}, Unlimited: true}
	last := first
	last.ID, last.Priority = fmt.Sprintf("last-%d", number), -1000
	return []rules.Rule{first, last}
}

// list is the present set, in any order.
func (p *plan) list() []rules.Rule {
	list := slices.Concat(ends(p.number), p.kept, p.moving)
	p.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// next makes the next set, and tells in which IDs it differs from the one before.
func (p *plan) next() ([]rules.Rule, rulediff.Changes) {
	if p.number++; p.number > 1 {
		p.change()
	}
	list := p.list()
	var changes rulediff.Changes
	known := make(map[string]rules.Rule, len(list))
	for _, r := range list {
		known[r.ID] = r
		if was, there := p.last[r.ID]; !there {
			changes.Added = append(changes.Added, r.ID)
		} else if !reflect.DeepEqual(was, r) {
			changes.Changed = append(changes.Changed, r.ID)
		}
	}
	for id := range p.last {
		if _, there := known[id]; !there {
			changes.Removed = append(changes.Removed, id)
		}
	}
	p.last = known
	slices.Sort(changes.Added)
	slices.Sort(changes.Removed)
	slices.Sort(changes.Changed)
	return list, changes
}

// change lets about a third of the rules that move do so.
func (p *plan) change() {
	var stay []rules.Rule
	removed := 0
	for _, r := range p.moving {
		switch what := p.IntN(100); {
		case what < 6:
			p.gone = append(p.gone, r)
			removed++
			continue
		case what < 16 && len(r.Limits) > 0:
			p.relimit(&r)
			p.made.limits++
		case what < 26:
			p.alter(&r)
			p.made.others++
		case what < 33:
			r.Disabled = !r.Disabled
			p.made.toggled++
		}
		stay = append(stay, r)
	}
	p.moving = stay
	p.made.removed += removed
	for range removed {
		if in(p.Rand, 50) {
			p.moving = append(p.moving, p.fresh())
			p.made.added++
			continue
		}
		i := p.IntN(len(p.gone))
		p.moving = append(p.moving, p.gone[i])
		p.gone = slices.Delete(p.gone, i, i+1)
		p.made.returned++
	}
}

// alter changes something of a rule that is not its limits.
func (p *plan) alter(r *rules.Rule) {
	switch p.IntN(8) {
	case 0:
		r.Priority = p.IntN(5)
	case 1:
		r.Labels = map[string]string{"number": strconv.Itoa(p.number)}
	case 2:
		r.OnExceed = rules.Shadow - r.OnExceed
	case 3:
		p.rematch(r)
	case 4:
		p.rescope(r)
	case 5:
		r.Cost = rules.Cost{Permits: 1 + p.Int64N(2)}
	case 6:
		r.Timeout = time.Duration(1+p.IntN(9)) * time.Second
		r.OnStoreFailure = pick(p.Rand, "", rules.FailOpen, rules.FailClosed)
	default:
		p.override(r, p.IntN(p.sections))
	}
}
