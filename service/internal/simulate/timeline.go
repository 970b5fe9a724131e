package simulate

import (
	"slices"
	"time"

	"github.com/stint-go/stint"
)

// A timeline counts over time, in steps that grow with the time that they cover. Steps begin at
// multiples of their width, of those of a day and more since the Unix epoch. The zero value is
// empty. However long the time is, it takes at most maxSteps steps: when a new one would be past
// them, pairs and groups are summed to the next width. What is counted never gets lost, only less
// exact in time.
type timeline struct {
	width int // of widths
	first stint.Instant
	steps []Step
	// last is the step that was counted in last, of the instants from on and before to
	last     int
	from, to stint.Instant
}

// A Step is what happened in a step of time, by when requests came.
type Step struct {
	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`
	// Shadow are those among the admitted that a rule in shadow would have denied.
	Shadow int64 `json:"shadow,omitempty"`
}

// maxSteps bounds the steps of a timeline.
const maxSteps = 600

// widths are those that steps may have; each divides the next.
var widths = [...]time.Duration{
	100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour, 364 * 24 * time.Hour,
}

func (t *timeline) step() stint.Instant { return stint.Instant(widths[t.width].Microseconds()) }

// add counts a request that came at an instant. Instants come in order, but one may be a little
// earlier than the first, and counts in the first step then.
func (t *timeline) add(at stint.Instant, admitted, shadow bool) {
	if at < t.from || at >= t.to {
		t.turn(at)
	}
	s := &t.steps[t.last]
	if !admitted {
		s.Denied++
		return
	}
	s.Admitted++
	if shadow {
		s.Shadow++
	}
}

// turn goes on to the step of an instant.
func (t *timeline) turn(at stint.Instant) {
	if t.steps == nil {
		t.first = at - at%t.step()
	}
	i := int((at - t.first) / t.step())
	for i >= maxSteps && t.width < len(widths)-1 {
		t.coarsen()
		i = int((at - t.first) / t.step())
	}
	i = max(0, min(i, maxSteps-1))
	for i >= len(t.steps) {
		t.steps = append(t.steps, Step{})
	}
	t.last, t.from = i, t.first+stint.Instant(i)*t.step()
	t.to = t.from + t.step()
}

// coarsen goes on to the next width. As each width divides the next, every old step falls into
// exactly one new one. It works in place: a new step is never behind the old one that it is made
// of.
func (t *timeline) coarsen() {
	was := t.step()
	t.width++
	first := t.first - t.first%t.step()
	used := 0
	for i, s := range t.steps {
		to := int((t.first + stint.Instant(i)*was - first) / t.step())
		if to >= used {
			t.steps[to], used = s, to+1
			continue
		}
		sum := &t.steps[to]
		sum.Admitted, sum.Denied, sum.Shadow = sum.Admitted+s.Admitted, sum.Denied+s.Denied, sum.Shadow+s.Shadow
	}
	t.first, t.steps, t.to = first, t.steps[:used], t.from
}

// smooth coarsens many steps of which none has many requests: their differences would say nothing.
func (t *timeline) smooth() {
	few := func(s Step) bool { return s.Admitted+s.Denied < 10 }
	for len(t.steps) > 24 && t.width < len(widths)-1 &&
		!slices.ContainsFunc(t.steps, func(s Step) bool { return !few(s) }) {
		t.coarsen()
	}
}
