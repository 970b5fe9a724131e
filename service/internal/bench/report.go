package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/htmlpage"
	"github.com/stint-go/stint/service/internal/simulate"
)

// A Report is what a benchmark found.
type Report struct {
	// Load says what was verified, and how it was asked.
	Load string `json:"load"`
	// Targets are the one that was asked first, and those that it is compared with.
	Targets []*TargetReport `json:"targets"`
}

// A TargetReport is what one target did.
type TargetReport struct {
	Name      string  `json:"name"`
	Decisions int64   `json:"decisions"`
	Admitted  int64   `json:"admitted"`
	Denied    int64   `json:"denied"`
	Degraded  int64   `json:"degraded"`
	Failed    int64   `json:"failed"`
	Error     string  `json:"error,omitempty"` // one of them
	PerSecond float64 `json:"perSecond"`
	// Ratio is PerSecond by that of the first target.
	Ratio float64 `json:"ratio"`
	// EndedBy says why the load ended before its time: requests, after so many, or interrupted.
	EndedBy string `json:"endedBy,omitempty"`
	// Latency has percentiles in microseconds, such as p99 and p100. They are exact: the least latency that so many
	// requests have at most.
	Latency  map[string]float64 `json:"latencyMicros"`
	Findings Findings           `json:"findings"`

	elapsed time.Duration
	steps   [][3]int64 // of a plot: admitted, none, denied
	slowest [][3]int64 // of another: the longest latency in microseconds, none, none
}

// steps is how many bars a plot has.
const steps = 60

// percentiles are those that are told.
var percentiles = [...]float64{50, 90, 99, 99.9, 100}

// Add verifies a target's run of requests of n permits, and sums it up.
func (r *Report) Add(name string, run *Run, limits []stint.Limit, n int64) {
	t := &TargetReport{
		Name: name, Findings: run.Verify(limits, n), EndedBy: run.ended,
		elapsed: run.elapsed, steps: make([][3]int64, steps), slowest: make([][3]int64, steps), Latency: map[string]float64{},
	}
	var latencies []time.Duration
	for i := range run.records {
		d := &run.records[i]
		at := int64(d.received) * steps / (int64(run.elapsed) + 1)
		step, slowest := &t.steps[at], &t.slowest[at]
		switch {
		case d.err != nil:
			t.Failed, t.Error = t.Failed+1, cmp.Or(t.Error, d.err.Error())
			continue
		case d.Allowed:
			t.Admitted++
			step[0]++
		default:
			t.Denied++
			step[2]++
		}
		if d.Degraded {
			t.Degraded++
		}
		latencies = append(latencies, d.received-d.due)
		slowest[0] = max(slowest[0], (d.received - d.due).Microseconds())
	}
	t.Decisions = int64(len(latencies))
	t.PerSecond = float64(t.Decisions) / max(run.elapsed.Seconds(), 1e-9)
	slices.Sort(latencies)
	for _, p := range percentiles {
		if i := int(math.Ceil(p/100*float64(len(latencies)))) - 1; i >= 0 {
			t.Latency[fmt.Sprint("p", p)] = float64(latencies[i]) / 1e3
		}
	}
	r.Targets = append(r.Targets, t)
	t.Ratio = t.PerSecond / max(r.Targets[0].PerSecond, 1e-9)
}

// Verdict says how many decisions differ.
func (t *TargetReport) Verdict() string {
	f := &t.Findings
	switch {
	case t.Decisions == 0:
		return "nothing is verified: nothing was decided"
	case t.Degraded == t.Decisions:
		return "nothing is verified: the store decided nothing, the failure policy made all " +
			group(t.Degraded) + " decisions"
	}
	text := group(f.Differ()) + " decisions differ of " + group(t.Decisions)
	if f.Differ() > 0 {
		text += fmt.Sprintf(" (%s admitted beyond the limit, %s denied too much)", group(f.Beyond), group(f.TooLittle))
	}
	if f.Exact {
		return text + ", each at its own time"
	}
	return text + ", in any order that the times of sending and receiving allow"
}

func group(n int64) string { return simulate.Group(n) }

// short is a number for the narrow margin of a plot.
func short(n float64) string {
	switch {
	case n >= 999_500:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 9999.5:
		return fmt.Sprintf("%.0fk", n/1e3)
	default:
		return group(int64(math.Round(n)))
	}
}

// Lines are what is to be said besides the figures: the first decisions that differ, and what a reader should know.
func (r *Report) Lines() (lines []string) {
	for _, d := range r.Targets[0].Findings.First {
		what := "denied, the limit admits it"
		if d.Allowed {
			what = "admitted, the limit denies it"
		}
		lines = append(lines, fmt.Sprintf("differs: %s at %s: %s", d.Key, d.At, what))
	}
	for _, t := range r.Targets {
		switch t.EndedBy {
		case "requests":
			lines = append(lines, fmt.Sprintf("note: %s: the load ended early, after %s requests", t.Name,
				group(t.Decisions+t.Failed)))
		case "interrupted":
			lines = append(lines, fmt.Sprintf("note: %s: the load was interrupted after %v", t.Name,
				t.elapsed.Round(time.Millisecond)))
		}
		if t.Failed > 0 {
			lines = append(lines, fmt.Sprintf("note: %s: %s requests failed. One of them: %s", t.Name, group(t.Failed), t.Error))
		}
		switch kept := t.Decisions - t.Degraded; {
		case kept > 0 && t.Denied == 0:
			lines = append(lines, fmt.Sprintf("note: %s: no request was denied: that verifies little; "+
				"use fewer keys or a higher rate", t.Name))
		case kept > 0 && t.Admitted == 0:
			lines = append(lines, fmt.Sprintf("note: %s: no request was admitted: that verifies little; use more keys, "+
				"or fewer permits for each request", t.Name))
		}
		if t.Degraded > 0 {
			lines = append(lines, fmt.Sprintf("note: %s: the failure policy made %s decisions, without the store", t.Name,
				group(t.Degraded)))
		}
	}
	return lines
}

// Figures are a table of the targets: its head, and a row for each.
func (r *Report) Figures() (head []string, rows [][]string) {
	head = []string{"target", "decisions", "per second", "ratio", "admitted", "denied", "failed", "beyond", "too little"}
	for _, p := range percentiles {
		head = append(head, fmt.Sprint("p", p))
	}
	for _, t := range r.Targets {
		row := []string{t.Name}
		for _, n := range []int64{
			t.Decisions, int64(t.PerSecond), 0, t.Admitted, t.Denied, t.Failed, t.Findings.Beyond, t.Findings.TooLittle,
		} {
			row = append(row, group(n))
		}
		row[3] = fmt.Sprintf("%.2f", t.Ratio)
		for _, p := range percentiles {
			if t.Decisions == 0 {
				row = append(row, "-")
				continue
			}
			row = append(row, threeDigits(time.Duration(t.Latency[fmt.Sprint("p", p)]*1e3)))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// threeDigits is a duration, rounded.
func threeDigits(d time.Duration) string {
	digits := time.Duration(1)
	for d/digits >= 1000 {
		digits *= 10
	}
	return d.Round(digits).String()
}

// HTML is the report as one page that needs nothing else.
func (r *Report) HTML() string {
	p := htmlpage.New("stint bench")
	p.Add("<h1>%s</h1>", r.Targets[0].Verdict())
	p.Add(`<p class="faint">%s</p>`, r.Load)
	p.Raw(`<h2>Decisions over time</h2>
<p>Each plot has its own scale: <span class="admitted">■ admitted</span>, <span class="denied">■ denied</span>.</p>
<div class="grid">
`)
	for _, t := range r.Targets {
		var most int64
		for _, step := range t.steps {
			most = max(most, step[0]+step[2])
		}
		top := short(float64(most) * steps / max(t.elapsed.Seconds(), 1e-9))
		p.Add("<figure><figcaption><b>%s</b>: %s</figcaption>", t.Name, t.Verdict())
		p.Bars(&htmlpage.Bars{
			Label: t.Name + ": decisions per second, up to " + top,
			Most:  most, Top: top, Per: "/s", From: "0s", To: t.elapsed.Round(time.Millisecond).String(), Steps: t.steps,
		})
		p.Raw("</figure>\n")
	}
	p.Raw("</div>\n<h2>Latency over time</h2>\n<p>The longest latency of the decisions in each sixtieth of the " +
		"run.</p>\n<div class=\"grid\">\n")
	for _, t := range r.Targets {
		longest := slices.MaxFunc(t.slowest, func(a, b [3]int64) int { return cmp.Compare(a[0], b[0]) })[0]
		top := threeDigits(time.Duration(longest) * time.Microsecond)
		p.Add("<figure><figcaption><b>%s</b></figcaption>", t.Name)
		p.Bars(&htmlpage.Bars{
			Label: t.Name + ": longest latency, up to " + top,
			Most:  longest, Top: top, From: "0s", To: t.elapsed.Round(time.Millisecond).String(), Steps: t.slowest,
		})
		p.Raw("</figure>\n")
	}
	p.Raw("</div>\n<h2>In figures</h2>\n")
	head, rows := r.Figures()
	p.Table(head[:1], head[1:], rows)
	p.Raw("<ul>\n")
	for _, line := range r.Lines() {
		p.Add("<li>%s</li>", line)
	}
	p.Raw("</ul>\n")
	return p.End()
}
