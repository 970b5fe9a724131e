package simulate

import (
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// The measures of the plots of parts, in pixels.
const (
	columnWidth           = 430
	rowHead, rowTall      = 24, 72
	rowsFrom, rowsUnder   = 62, 40
	columnLeft, columnEnd = 52, 14
)

// partsSVG draws a row of plots for all requests and for each part, with a column for each candidate.
// The plots of a row have one scale.
func (r *Report) partsSVG() string {
	columns := len(r.Candidates)
	rows := 1 + len(r.Candidates[0].Parts)
	width, height := max(columns, 2)*columnWidth, rowsFrom+rows*(rowHead+rowTall)+rowsUnder
	column := float64(width) / float64(columns)
	var said strings.Builder
	shadow := false
	for i := range r.Candidates {
		c := &r.Candidates[i]
		shadow = shadow || hasShadow(c.Steps)
		fmt.Fprintf(&said, ". %s admits", c.Name)
		for j := range c.Parts {
			fmt.Fprintf(&said, "%s %s %s", map[bool]string{true: ","}[j > 0], c.Parts[j].Name(), c.Parts[j].said())
		}
	}
	unit, per := r.unit()
	title := fmt.Sprintf("Requests per %s, by %s", unit, r.By)
	p := newSVG(title+said.String(), width, height)
	p.title(columnLeft, 20, title)
	p.legend(width-columnEnd, 20, shadow)
	for i := range r.Candidates {
		p.title(int(float64(i)*column)+columnLeft, rowsFrom-12, r.Candidates[i].Name)
	}
	for row := range rows {
		var most int64
		for i := range r.Candidates {
			_, steps := r.Candidates[i].row(row)
			most = max(most, busiest(steps))
		}
		for i := range r.Candidates {
			c := &r.Candidates[i]
			name, steps := c.row(row)
			f := frame{
				x: float64(i)*column + columnLeft, y: float64(rowsFrom + row*(rowHead+rowTall) + rowHead),
				width: column - columnLeft - columnEnd, height: rowTall,
			}
			p.add(`<text x="%s" y="%s">%s</text>`, px(f.x), px(f.y-7), html.EscapeString(name))
			f = p.axis(f, float64(most)*per, 3)
			f.scale *= per
			p.steps(f, steps)
			if row == rows-1 {
				p.times(c, f, 6)
			}
		}
	}
	p.add(`<text x="%d" y="%d">time in UTC; each row has a scale of its own</text>`, columnLeft, height-6)
	return p.close()
}

// row are the steps of all requests, or of a part, and what to say of them.
func (c *CandidateReport) row(n int) (said string, steps []Step) {
	all := PartReport{Value: "all", Admitted: c.Total.Admitted, Denied: c.Total.Denied, Steps: c.Steps}
	if n > 0 {
		all = c.Parts[n-1]
	}
	return all.Name() + ": " + all.said() + " admitted", all.Steps
}

// unit is the time over which requests are told, such that there are ten or more at the busiest time,
// and how many of it a step is.
func (r *Report) unit() (name string, per float64) {
	var most int64
	for i := range r.Candidates {
		most = max(most, busiest(r.Candidates[i].Steps))
	}
	step := r.Candidates[0].Step
	for _, length := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if per = float64(length.Microseconds()) / float64(step); float64(most)*per >= 10 {
			return map[time.Duration]string{
				time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day",
			}[length], per
		}
	}
	return stint.FormatDuration(micros(step)), 1
}
