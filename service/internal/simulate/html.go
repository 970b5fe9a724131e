package simulate

import (
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// The measures of a small plot, in pixels of its own.
const (
	smallWidth, smallHeight = 320, 130
	smallLeft, smallUnder   = 44, 20
)

const pageHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>stint simulate</title>
`

// pageStyle is for light and dark, and for wide and narrow screens.
//
//go:embed report.css
var pageStyle string

// An htmlPage is a page under work.
type htmlPage struct{ text strings.Builder }

// raw writes what is HTML already.
func (p *htmlPage) raw(text string) { p.text.WriteString(text) }

// add writes a line. Arguments that are texts are escaped.
func (p *htmlPage) add(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = html.EscapeString(text)
		}
	}
	p.raw(fmt.Sprintf(format+"\n", args...))
}

// A column of a table has a name, and numbers on the right.
type column struct {
	name   string
	number bool
}

// table writes a table.
func (p *htmlPage) table(columns []column, rows [][]string) {
	class := func(c column) string {
		if c.number {
			return ` class="n"`
		}
		return ""
	}
	p.raw("<table><thead><tr>")
	for _, c := range columns {
		p.raw("<th" + class(c) + ">" + html.EscapeString(c.name) + "</th>")
	}
	p.raw("</tr></thead><tbody>\n")
	for _, row := range rows {
		p.raw("<tr>")
		for i, c := range columns {
			p.raw(`<td` + class(c) + ` data-of="` + html.EscapeString(c.name) + `">` + html.EscapeString(row[i]) + "</td>")
		}
		p.raw("</tr>\n")
	}
	p.add("</tbody></table>")
}

// HTML is the report as one page that needs nothing else, and no script: it works under any content security policy
// that admits style attributes. Candidates are drawn on one scale.
func (r *Report) HTML() string {
	p := &htmlPage{}
	p.raw(pageHead + "<style>" + pageStyle + "</style>\n</head>\n<body>\n")
	p.add("<h1>What the limits would have done</h1>")
	p.add(
		`<p class="faint">%s requests in %s, from %s to %s UTC.</p>`, Group(r.Events), round(int64(r.Last-r.First)),
		r.First.Time().Format(time.DateTime), r.Last.Time().Format(time.DateTime),
	)
	p.overview(r)
	p.figures(r)
	p.hurt(r)
	if notes := r.Notes(); len(notes) > 0 {
		p.add("<h2>What to know</h2>\n<ul>")
		for _, note := range notes {
			p.add("<li>%s</li>", note)
		}
		p.add("</ul>")
	}
	p.raw("</body>\n</html>\n")
	return p.text.String()
}

// overview draws the candidates beside each other, on one scale, with what each of them denies.
func (p *htmlPage) overview(r *Report) {
	var most int64
	shadow := false
	for i := range r.Candidates {
		for _, s := range r.Candidates[i].Steps {
			most, shadow = max(most, s.Admitted+s.Denied), shadow || s.Shadow > 0
		}
	}
	p.raw(`<h2>Requests over time</h2>
<p>Each plot has all requests, by the same scales: <span class="admitted">■ admitted</span>,
<span class="denied">■ denied</span>`)
	if shadow {
		p.raw(`, <span class="shadow">■ admitted, and denied if rules in shadow were enforced</span>`)
	}
	p.raw(".</p>\n<div class=\"grid\">\n")
	for i := range r.Candidates {
		c := &r.Candidates[i]
		p.add(
			"<figure><figcaption><b>%s</b> denies %s of %s requests (%s)</figcaption>", c.Name,
			Group(c.Total.Denied), Group(c.Total.Requests), percent(c.Total.Denied, c.Total.Requests),
		)
		p.small(c, most)
		p.raw("</figure>\n")
	}
	p.raw("</div>\n")
}

// small draws a candidate's requests over time.
func (p *htmlPage) small(c *CandidateReport, most int64) {
	const width, height = smallWidth - smallLeft - 4, smallHeight - smallUnder - 8
	per := stint.Per(1, micros(c.Step)).String()[1:] // such as /s and /5m
	denied := percent(c.Total.Denied, c.Total.Requests)
	p.add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, smallWidth, smallHeight,
		fmt.Sprintf("%s: requests per %s, up to %s; %s denied", c.Name, per[1:], Group(most), denied))
	scale, n := float64(height)/float64(max(most, 1)), max(len(c.Steps), 1)
	step, floor := float64(width)/float64(n), float64(smallHeight-smallUnder)
	p.add(`<line x1="%d" y1="8" x2="%d" y2="8"/>`, smallLeft, smallWidth)
	p.add(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, smallLeft, floor, smallWidth, floor)
	p.add(`<text x="%d" y="12" text-anchor="end">%s</text>`, smallLeft-5, Group(most))
	p.add(`<text x="%d" y="26" text-anchor="end">%s</text>`, smallLeft-5, per)
	for _, part := range []struct {
		class    string
		from, to func(Step) int64
	}{
		{"a", func(Step) int64 { return 0 }, func(s Step) int64 { return s.Admitted - s.Shadow }},
		{"s", func(s Step) int64 { return s.Admitted - s.Shadow }, func(s Step) int64 { return s.Admitted }},
		{"d", func(s Step) int64 { return s.Admitted }, func(s Step) int64 { return s.Admitted + s.Denied }},
	} {
		var d strings.Builder
		for i, s := range c.Steps {
			if tall := float64(part.to(s)-part.from(s)) * scale; tall > 0 {
				x, y := smallLeft+float64(i)*step, floor-float64(part.to(s))*scale
				fmt.Fprintf(&d, "M%.1f %.1fh%.2fv%.1fh-%.2fz", x, y, step, tall, step)
			}
		}
		if d.Len() > 0 {
			p.add(`<path class="%s" d="%s"/>`, part.class, d.String())
		}
	}
	layout := "15:04:05"
	if int64(n)*c.Step > 24*3_600_000_000 {
		layout = "2 Jan 15:04"
	}
	from, to := c.StepFrom.Time(), (c.StepFrom + stint.Instant(int64(n)*c.Step)).Time()
	p.add(`<text x="%d" y="%d">%s</text><text x="%d" y="%d" text-anchor="end">%s UTC</text></svg>`,
		smallLeft, smallHeight-4, from.Format(layout), smallWidth, smallHeight-4, to.Format(layout))
}

// figures is the table of all rules.
func (p *htmlPage) figures(r *Report) {
	p.add("<h2>In figures</h2>")
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
				c.Name, rule.Rule, Group(rule.Requests), Group(rule.Admitted), Group(rule.Denied), percent(rule.Denied, rule.Requests),
				clients, once, shut, peak, round(max(rule.LongestWait, rule.LongestDelay)),
			})
		}
	}
	p.table([]column{
		{"limits", false},
		{"rule", false},
		{"requests", true},
		{"admitted", true},
		{"denied", true},
		{"of them", true},
		{"clients", true},
		{"denied once or more", true},
		{"longest shut out", true},
		{"most of one client", true},
		{"longest wait", true},
	}, rows)
}

// shareNames name the places of Shares.
var shareNames = [...]string{"none", "≤ 1 %", "≤ 10 %", "≤ 25 %", "≤ 50 %", "≤ 75 %", "< 100 %", "all"}

// half is the first place of Shares above half of a client's requests.
const half = 5

// hurt says which clients are denied, and how much.
func (p *htmlPage) hurt(r *Report) {
	p.add("<h2>Who is hurt</h2>")
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
			p.add("<h3>%s</h3>", name)
			if rule.ClientsDenied == 0 {
				p.add("<p>Nobody: none of %s is ever denied.</p>", counted(rule.Clients, "client"))
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
			p.add(
				"<p>%s of %s (%s) %s denied at least once, %s of them more than half of what they ask for. "+
					"The longest that one was shut out is %s.</p>",
				Group(rule.ClientsDenied), counted(rule.Clients, "client"), percent(rule.ClientsDenied, rule.Clients),
				are, many, round(rule.LongestShut),
			)
			p.raw("<div class=\"beside\">\n<figure><figcaption>Clients by the share of their requests that is denied</figcaption>\n")
			p.shares(rule)
			p.raw("</figure>\n<div>\n")
			var rows [][]string
			for _, client := range rule.MostDenied {
				asked := client.Admitted + client.Denied
				rows = append(rows, []string{
					client.Key, Group(asked), Group(client.Denied), percent(client.Denied, asked), round(client.Shut),
				})
			}
			p.table([]column{
				{"most denied", false}, {"requests", true}, {"denied", true}, {"of them", true}, {"longest shut out", true},
			}, rows)
			p.raw("</div>\n</div>\n")
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
	p.add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, smallWidth, row*len(shareNames),
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
		p.add(`<text x="%d" y="%d" text-anchor="end">%s</text>`, smallLeft+14, y+12, shareNames[i])
		p.add(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class, smallLeft+20, y+3, width, row-5)
		p.add(`<text x="%.1f" y="%d">%s</text>`, smallLeft+24+width, y+12, Group(n))
	}
	p.raw("</svg>\n")
}
