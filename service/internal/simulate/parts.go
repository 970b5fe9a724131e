package simulate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

const (
	// maxParts is how many values of an attribute are counted, each by itself.
	maxParts = 100
	// shownParts is how many parts a report has at most.
	shownParts = 8
)

// parts count what became of requests by the value of an attribute. Nil counts nothing.
type parts struct {
	attribute string
	index     map[string]int // by value
	list      []partCounts   // in the order in which their values came
	rest      partCounts     // of the values that came later
}

// A partCounts counts the requests with one value.
type partCounts struct {
	value            string
	plot             timeline
	admitted, denied int64
}

// A PartReport is of the requests with one value of the attribute Config.By.
type PartReport struct {
	// Value is "" if the attribute is missing, and of Others.
	Value string `json:"value"`
	// Others says that these are the requests of all values that have no part of their own.
	Others   bool  `json:"others,omitempty"`
	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`
	// Steps are those of the candidate.
	Steps []Step `json:"steps"`
}

// newParts makes parts of an attribute; nil of "", which counts nothing.
func newParts(attribute string) *parts {
	if attribute == "" {
		return nil
	}
	return &parts{attribute: attribute, index: map[string]int{}}
}

// of is the number of the part that an event is of, -1 for the rest.
func (p *parts) of(ev *Event) int {
	if p == nil {
		return -1
	}
	value := ev.Request.Attributes[p.attribute]
	i, known := p.index[value]
	if !known && len(p.list) < maxParts {
		i, known = len(p.list), true
		value = strings.Clone(value) // which is a part of a line
		p.index[value] = i
		p.list = append(p.list, partCounts{value: value})
	}
	if !known {
		return -1
	}
	return i
}

// add counts a request of a part.
func (p *parts) add(number int, at stint.Instant, admitted, shadow bool) {
	if p == nil {
		return
	}
	to := &p.rest
	if number >= 0 {
		to = &p.list[number]
	}
	to.plot.add(at, admitted, shadow)
	if admitted {
		to.admitted++
	} else {
		to.denied++
	}
}

func (p *partCounts) requests() int64 { return p.admitted + p.denied }

// report has the parts with the most requests, in the order in which their values came, and what is
// left.
func (p *parts) report(total *timeline) (made []PartReport) {
	if p == nil {
		return nil
	}
	list := make([]*partCounts, len(p.list))
	for i := range p.list {
		list[i] = &p.list[i]
	}
	others := &PartReport{Others: true, Steps: make([]Step, len(total.steps))}
	if p.rest.requests() > 0 || len(list) > shownParts {
		slices.SortStableFunc(list, func(a, b *partCounts) int { return cmp.Compare(b.requests(), a.requests()) })
		for _, small := range append(list[min(len(list), shownParts-1):], &p.rest) {
			others.add(small, total)
		}
		list = list[:min(len(list), shownParts-1)]
		slices.SortFunc(list, func(a, b *partCounts) int { return cmp.Compare(p.index[a.value], p.index[b.value]) })
	}
	for _, one := range list {
		r := PartReport{Value: one.value, Steps: make([]Step, len(total.steps))}
		r.add(one, total)
		made = append(made, r)
	}
	if others.Admitted+others.Denied > 0 {
		made = append(made, *others)
	}
	return made
}

// add adds a part, whose steps become those of all requests.
func (r *PartReport) add(p *partCounts, total *timeline) {
	r.Admitted, r.Denied = r.Admitted+p.admitted, r.Denied+p.denied
	for p.plot.width < total.width && len(p.plot.steps) > 0 {
		p.plot.coarsen()
	}
	for i, s := range p.plot.steps {
		at := int((p.plot.first-total.first)/total.step()) + i
		to := &r.Steps[max(0, min(at, len(r.Steps)-1))]
		to.Admitted, to.Denied, to.Shadow = to.Admitted+s.Admitted, to.Denied+s.Denied, to.Shadow+s.Shadow
	}
}

// Name is the value, or what to say in its place.
func (r *PartReport) Name() string {
	if r.Others {
		return "others"
	}
	return cmp.Or(r.Value, "none")
}

// said is how much of it is admitted.
func (r *PartReport) said() string {
	return Group(r.Admitted) + " of " + Group(r.Admitted+r.Denied) + " (" + percent(r.Admitted, r.Admitted+r.Denied) + ")"
}
