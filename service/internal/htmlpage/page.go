// Package htmlpage makes one page of HTML that loads nothing, so that it can be kept, mailed and opened from a disk.
// It is for light and dark, and for wide and narrow screens.
//
// `stint bench` writes its report by a [Page], a text that grows: [Page.Add] escapes what it is given, [Page.Raw] does
// not, and nothing is checked beyond that. The report of `stint simulate` is drawn by a script, see [Drawn].
package htmlpage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/prefix"
)

// The policy forbids everything but styles within the page and one script of it, whatever a text that was not escaped
// might contain.
const head = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'%s">
`

//go:embed report.css
var style string

// A Page is one under work.
type Page struct{ text strings.Builder }

// New begins a page without a script.
func New(title string) *Page {
	p := &Page{}
	p.begin(title, "")
	return p
}

// begin writes the head, with what the policy allows besides styles.
func (p *Page) begin(title, allowed string) {
	p.Raw(fmt.Sprintf(head, allowed))
	p.Add("<title>%s</title>", title)
	p.Raw("<style>" + style + "</style>\n</head>\n<body>\n")
}

// Drawn is a page that a script draws, of data that it finds as JSON in the element with the ID report. Neither the
// script nor its style has an end tag in it.
func Drawn(title, script, style string, data any) (string, error) {
	text, err := json.Marshal(data) // which escapes what is a tag
	if err != nil {
		return "", prefix.Join(err)
	}
	sum := sha256.Sum256([]byte(script))
	p := &Page{}
	p.begin(title, "; script-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	p.Raw("<style>" + style + "</style>\n<noscript>This page is drawn by a script that is in it.</noscript>\n" +
		"<script type=\"application/json\" id=\"report\">")
	p.Raw(string(text) + "</script>\n<script>" + script + "</script>\n")
	return p.End(), nil
}

// End ends the page and returns it.
func (p *Page) End() string {
	p.Raw("</body>\n</html>\n")
	return p.text.String()
}

// Raw writes what is HTML already.
func (p *Page) Raw(text string) { p.text.WriteString(text) }

// Add writes a line. Arguments that are texts are escaped.
func (p *Page) Add(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = html.EscapeString(text)
		}
	}
	p.Raw(fmt.Sprintf(format+"\n", args...))
}

// Table writes a table whose columns are texts, and behind them numbers, on the right. Each cell
// names its column, which narrow screens show beside it, as the rows are stacked there.
func (p *Page) Table(texts, numbers []string, rows [][]string) {
	columns := slices.Concat(texts, numbers)
	class := func(column int) string {
		if column < len(texts) {
			return ""
		}
		return ` class="n"`
	}
	p.Raw("<table><thead><tr>")
	for i, name := range columns {
		p.Raw("<th" + class(i) + ">" + html.EscapeString(name) + "</th>")
	}
	p.Raw("</tr></thead><tbody>\n")
	for _, row := range rows {
		p.Raw("<tr>")
		for i, name := range columns {
			p.Raw(`<td` + class(i) + ` data-of="` + html.EscapeString(name) + `">` + html.EscapeString(row[i]) + "</td>")
		}
		p.Raw("</tr>\n")
	}
	p.Add("</tbody></table>")
}

// The measures of a plot, in pixels of its own.
const (
	plotWidth, plotHeight = 320, 130
	plotLeft, plotUnder   = 44, 20
)

// Bars are a plot of what was admitted, admitted in shadow and denied, each on top of the one
// before.
type Bars struct {
	Label    string     // for those who don't see it
	Most     int64      // the height of the plot
	Top, Per string     // Most as text, and the time of a step
	From, To string     // the first and the last step's time
	Steps    [][3]int64 // from left to right
}

// Bars draws a plot. A series is one path of rectangles, so that thousands of steps stay small.
func (p *Page) Bars(b *Bars) {
	const width, height = plotWidth - plotLeft - 4, plotHeight - plotUnder - 8
	p.Add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, b.Label)
	scale := float64(height) / float64(max(b.Most, 1))
	step, floor := float64(width)/float64(max(len(b.Steps), 1)), float64(plotHeight-plotUnder)
	p.Add(`<line x1="%d" y1="8" x2="%d" y2="8"/>`, plotLeft, plotWidth)
	p.Add(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, plotLeft, floor, plotWidth, floor)
	p.Add(`<text x="%d" y="12" text-anchor="end">%s</text>`, plotLeft-5, b.Top)
	p.Add(`<text x="%d" y="26" text-anchor="end">%s</text>`, plotLeft-5, b.Per)
	for part, class := range []string{"a", "s", "d"} {
		var d strings.Builder
		for i, s := range b.Steps {
			if tall := float64(s[part]) * scale; tall > 0 {
				x, y := plotLeft+float64(i)*step, floor-float64(s[0]+s[1]*min(int64(part), 1)+s[2]*int64(part/2))*scale
				fmt.Fprintf(&d, "M%.1f %.1fh%.2fv%.1fh-%.2fz", x, y, step, tall, step)
			}
		}
		if d.Len() > 0 {
			p.Add(`<path class="%s" d="%s"/>`, class, d.String())
		}
	}
	p.Add(`<text x="%d" y="%d">%s</text><text x="%d" y="%d" text-anchor="end">%s</text></svg>`,
		plotLeft, plotHeight-4, b.From, plotWidth, plotHeight-4, b.To)
}
