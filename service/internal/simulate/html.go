package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/htmlpage"
)

// The measures of a small plot, in pixels of its own.
const smallWidth, smallLeft = 320, 44

// An htmlPage is a page under work.
type htmlPage struct{ *htmlpage.Page }

// HTML is the report as one page that needs nothing else. Candidates are drawn on one scale. It has
// no script and loads nothing, so that it can be kept, mailed and opened from a disk.
func (r *Report) HTML() string {
	p := &htmlPage{htmlpage.New("stint simulate")}
	p.Add("<h1>What the limits would have done</h1>")
	p.Add(
		`<p class="faint">%s requests in %s, from %s to %s UTC.</p>`, Group(r.Events), round(int64(r.Last-r.First)),
		r.First.Time().Format(time.DateTime), r.Last.Time().Format(time.DateTime),
	)
	for _, line := range r.Input.Head() {
		p.Add(`<p class="faint">%s</p>`, line)
	}
	p.overview(r)
	p.parts(r)
	p.figures(r)
	p.hurt(r)
	if notes := r.Notes(); len(notes) > 0 {
		p.Add("<h2>What to know</h2>\n<ul>")
		for _, note := range notes {
			p.Add("<li>%s</li>", note)
		}
		p.Add("</ul>")
	}
	return p.End()
}

// overview draws the candidates beside each other, on one scale, with what each of them denies.
func (p *htmlPage) overview(r *Report) {
	var most int64
	shadow := false
	for i := range r.Candidates {
		steps := r.Candidates[i].Steps
		most, shadow = max(most, busiest(steps)), shadow || hasShadow(steps)
	}
	p.Raw(`<h2>Requests over time</h2>
<p>Each plot has all requests, by the same scales: <span class="admitted">■ admitted</span>,
<span class="denied">■ denied</span>`)
	if shadow {
		p.Raw(`, <span class="shadow">■ admitted, and denied if rules in shadow were enforced</span>`)
	}
	p.Raw(".</p>\n<div class=\"grid\">\n")
	for i := range r.Candidates {
		c := &r.Candidates[i]
		p.Add(
			"<figure><figcaption><b>%s</b> denies %s of %s requests (%s)</figcaption>", c.Name,
			Group(c.Total.Denied), Group(c.Total.Requests), percent(c.Total.Denied, c.Total.Requests),
		)
		p.small(c, c.Name, c.Steps, most)
		p.Raw("</figure>\n")
	}
	p.Raw("</div>\n")
}

// parts draws each part's requests over time, of all candidates on one scale.
func (p *htmlPage) parts(r *Report) {
	if r.By == "" {
		return
	}
	p.Add("<h2>By %s</h2>", r.By)
	for part := range r.Candidates[0].Parts {
		var most int64
		for i := range r.Candidates {
			most = max(most, busiest(r.Candidates[i].Parts[part].Steps))
		}
		p.Add("<h3>%s</h3>", r.Candidates[0].Parts[part].Name())
		p.Raw("<div class=\"grid\">\n")
		for i := range r.Candidates {
			c := &r.Candidates[i]
			p.Add("<figure><figcaption><b>%s</b> admits %s</figcaption>", c.Name, c.Parts[part].said())
			p.small(c, c.Parts[part].Name()+" by "+c.Name, c.Parts[part].Steps, most)
			p.Raw("</figure>\n")
		}
		p.Raw("</div>\n")
	}
}

// small draws a candidate's requests over time: all of them, or those of a part. What rules in
// shadow would have denied is drawn between what is admitted and what is denied, and is part of the
// admitted in all figures.
func (p *htmlPage) small(c *CandidateReport, name string, steps []Step, most int64) {
	per := stint.Per(1, micros(c.Step)).String()[1:] // such as /s and /5m
	bars := &htmlpage.Bars{Most: most, Top: Group(most), Per: per}
	var denied, all int64
	for _, s := range steps {
		bars.Steps = append(bars.Steps, [3]int64{s.Admitted - s.Shadow, s.Shadow, s.Denied})
		denied, all = denied+s.Denied, all+s.Admitted+s.Denied
	}
	bars.Label = fmt.Sprintf("%s: requests per %s, up to %s; %s denied", name, per[1:], Group(most), percent(denied, all))
	layout, length := "15:04:05", int64(max(len(c.Steps), 1))*c.Step
	if length > 24*3_600_000_000 {
		layout = "2 Jan 15:04"
	}
	bars.From = c.StepFrom.Time().Format(layout)
	bars.To = (c.StepFrom + stint.Instant(length)).Time().Format(layout) + " UTC"
	p.Bars(bars)
}

// figures is the table of all rules. A candidate with several rules has a row for the total, too;
// the peak is that of the first limit of a rule.
func (p *htmlPage) figures(r *Report) {
	p.Add("<h2>In figures</h2>")
	var rows [][]string
	for i := range r.Candidates {
		c := &r.Candidates[i]
		list := c.Rules
		if len(list) != 1 {
			total := c.Total
			total.Rule = "all rules"
			list = append(slices.Clone(list), total)
		}
		for j := range list {
			rule := &list[j]
			clients, once, shut, peak := "", "", "", ""
			if rule.Clients > 0 {
				clients, once, shut = Group(rule.Clients), Group(rule.ClientsDenied), round(rule.LongestShut)
			}
			if len(rule.Limits) > 0 {
				l := &rule.Limits[0]
				peak = map[bool]string{true: "≥ "}[l.AtLeast] + Group(l.ClientPeak) + " " + l.per("in ")
			}
			rows = append(rows, []string{
				c.Name, rule.Rule, Group(rule.Requests), Group(rule.Admitted), Group(rule.Denied),
				percent(rule.Denied, rule.Requests),
				clients, once, shut, peak, round(max(rule.LongestWait, rule.LongestDelay)),
			})
		}
	}
	p.Table([]string{"limits", "rule"}, []string{
		"requests", "admitted", "denied", "of them", "clients",
		"denied once or more", "longest shut out", "most of one client", "longest wait",
	}, rows)
}

// shareNames name the places of Shares.
var shareNames = [...]string{"none", "≤ 1 %", "≤ 10 %", "≤ 25 %", "≤ 50 %", "≤ 75 %", "< 100 %", "all"}

// half is the first place of Shares above half of a client's requests.
const half = 5

// hurt says which clients are denied, and how much.
func (p *htmlPage) hurt(r *Report) {
	p.Add("<h2>Who is hurt</h2>")
	for i := range r.Candidates {
		c := &r.Candidates[i]
		for j := range c.Rules {
			rule := &c.Rules[j]
			if rule.Clients == 0 {
				continue
			}
			name := c.Name
			if len(c.Rules) > 1 {
				name += ", rule " + rule.Rule
			}
			p.Add("<h3>%s</h3>", name)
			if rule.ClientsDenied == 0 {
				p.Add("<p>Nobody: none of %s is ever denied.</p>", counted(rule.Clients, "client"))
				continue
			}
			var much int64
			for _, n := range rule.Shares[half:] {
				much += n
			}
			are, many := "are", Group(much)
			if rule.ClientsDenied == 1 {
				are = "is"
			}
			if much == 0 {
				many = "none"
			}
			p.Add(
				"<p>%s of %s (%s) %s denied at least once, %s of them more than half of what they ask for. "+
					"The longest that one was shut out is %s.</p>",
				Group(rule.ClientsDenied), counted(rule.Clients, "client"), percent(rule.ClientsDenied, rule.Clients),
				are, many, round(rule.LongestShut),
			)
			p.Raw("<div class=\"beside\">\n<figure><figcaption>Clients by the share of their requests that is " +
				"denied</figcaption>\n")
			p.shares(rule)
			p.Raw("</figure>\n<div>\n")
			var rows [][]string
			for _, client := range rule.MostDenied {
				asked := client.Admitted + client.Denied
				rows = append(rows, []string{
					client.Key, Group(asked), Group(client.Denied), percent(client.Denied, asked), round(client.Shut),
				})
			}
			p.Table([]string{"most denied"}, []string{"requests", "denied", "of them", "longest shut out"}, rows)
			p.Raw("</div>\n</div>\n")
		}
	}
}

// counted is a number of things.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Group(n) + " " + what + "s"
}

// shares draws how many clients were denied which share of their requests.
func (p *htmlPage) shares(rule *RuleReport) {
	const row = 16
	most := float64(max(slices.Max(rule.Shares), 1))
	p.Add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, smallWidth, row*len(shareNames),
		fmt.Sprintf("%s of %s are denied nothing", Group(rule.Shares[0]), counted(rule.Clients, "client")))
	for i, n := range rule.Shares {
		class, y := "d", i*row
		if i == 0 {
			class = "a"
		}
		width := float64(smallWidth-2*smallLeft-24) * float64(n) / most
		if n > 0 {
			width = max(width, 1)
		}
		p.Add(`<text x="%d" y="%d" text-anchor="end">%s</text>`, smallLeft+14, y+12, shareNames[i])
		p.Add(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class, smallLeft+20, y+3, width, row-5)
		p.Add(`<text x="%.1f" y="%d">%s</text>`, smallLeft+24+width, y+12, Group(n))
	}
	p.Raw("</svg>\n")
}
