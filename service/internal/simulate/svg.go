package simulate

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// The measures of a plot, in pixels.
const (
	plotWidth, plotHeight   = 860, 240
	left, right, top, under = 64, 16, 34, 44
)

// A svg is a picture under work.
type svg struct{ text strings.Builder }

func newSVG(title string, height int) *svg {
	p := &svg{}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="%s">`,
		plotWidth, height, plotWidth, height, html.EscapeString(title))
	p.add(`<rect width="%d" height="%d" fill="#ffffff"/>`, plotWidth, height)
	p.add(`<text x="%d" y="20" font-size="14" font-weight="600" fill="#0f172a">%s</text>`, left, html.EscapeString(title))
	return p
}

func (p *svg) add(format string, args ...any) {
	p.text.WriteString(fmt.Sprintf(format, args...) + "\n")
}

func (p *svg) close() string {
	p.add(`</svg>`)
	return p.text.String()
}

// legend writes names with their colours, right-aligned in the title's line.
func (p *svg) legend(entries ...[2]string) {
	x := plotWidth - right
	for _, e := range slices.Backward(entries) {
		x -= 8*len(e[0]) + 18
		p.add(
			`<rect x="%d" y="11" width="10" height="10" fill="%s"/><text x="%d" y="20" fill="#334155">%s</text>`, x, e[1],
			x+14, e[0],
		)
	}
}

// axis draws a scale from 0 to at least most, with lines, and returns how many pixels one is.
func (p *svg) axis(most float64, height int, unit string) float64 {
	step := math.Pow(10, math.Floor(math.Log10(max(most, 1))))
	for _, f := range []float64{0.2, 0.5, 1, 2} {
		if most/(step*f) <= 5 {
			step = max(1, step*f)
			break
		}
	}
	end := step * math.Ceil(max(most, 1)/step)
	scale := float64(height-top-under) / end
	for y := 0.0; y <= end+step/2; y += step {
		at := float64(height-under) - y*scale
		p.add(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e2e8f0"/><text x="%d" y="%.1f" text-anchor="end" fill="#475569">%s</text>`,
			left, at, plotWidth-right, at, left-6, at+4, Group(int64(y)))
	}
	p.add(`<text x="%d" y="%d" fill="#475569">%s</text>`, left, height-8, html.EscapeString(unit))
	return scale
}

// SVG draws what a candidate admitted over time, and what it denied on top: together what was offered.
func (c *CandidateReport) SVG() string {
	p := newSVG(c.Name, plotHeight)
	var most int64
	shadow := false
	for _, s := range c.Steps {
		most = max(most, s.Admitted+s.Denied)
		shadow = shadow || s.Shadow > 0
	}
	entries := [][2]string{{"admitted", colourAdmitted}, {"denied", colourDenied}}
	if shadow {
		entries = append(entries, [2]string{"in shadow", colourShadow})
	}
	p.legend(entries...)
	width := stint.Per(1, micros(c.Step)).String()[1:] // such as /s and /5m
	scale := p.axis(float64(most), plotHeight, fmt.Sprintf("requests per %s, in UTC", width[1:]))
	n := max(len(c.Steps), 1)
	step := float64(plotWidth-left-right) / float64(n)
	area := func(colour string, from, to func(Step) int64) {
		var d strings.Builder
		for i, s := range c.Steps {
			height := float64(to(s)-from(s)) * scale
			if height == 0 {
				continue
			}
			fmt.Fprintf(
				&d, "M%.2f %.2fh%.2fv%.2fh-%.2fz", float64(left)+float64(i)*step, float64(plotHeight-under)-float64(to(s))*scale,
				step, height, step,
			)
		}
		if d.Len() > 0 {
			p.add(`<path fill="%s" d="%s"/>`, colour, d.String())
		}
	}
	zero := func(Step) int64 { return 0 }
	clean := func(s Step) int64 { return s.Admitted - s.Shadow }
	admitted := func(s Step) int64 { return s.Admitted }
	area(colourAdmitted, zero, clean)
	area(colourShadow, clean, admitted)
	area(colourDenied, admitted, func(s Step) int64 { return s.Admitted + s.Denied })
	c.times(p, n, step)
	return p.close()
}

// SVG draws the plots of all candidates, one below the other.
func (r *Report) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n",
		plotWidth, plotHeight*len(r.Candidates), plotWidth, plotHeight*len(r.Candidates))
	for i := range r.Candidates {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n%s</g>\n", i*plotHeight, r.Candidates[i].SVG())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// ticks are how far apart times under a plot may be.
var ticks = [...]time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 168 * time.Hour, 672 * time.Hour, 2184 * time.Hour,
}

// times writes the times under a plot, at most nine.
func (c *CandidateReport) times(p *svg, n int, step float64) {
	length := int64(n) * c.Step
	tick := int64(52 * 168 * time.Hour / time.Microsecond)
	for _, t := range ticks {
		if length/t.Microseconds() <= 8 {
			tick = t.Microseconds()
			break
		}
	}
	layout := "15:04:05"
	switch {
	case tick < 1_000_000:
		layout = "15:04:05.0"
	case tick >= 24*3_600_000_000:
		layout = "2 Jan"
	case length > 24*3_600_000_000:
		layout = "2 Jan 15:04"
	case tick >= 60_000_000:
		layout = "15:04"
	}
	for at := (int64(c.StepFrom) + tick - 1) / tick * tick; at < int64(c.StepFrom)+length; at += tick {
		x := float64(left) + float64(at-int64(c.StepFrom))/float64(c.Step)*step
		p.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#94a3b8"/><text x="%.1f" y="%d" text-anchor="middle" fill="#475569">%s</text>`,
			x, plotHeight-under, x, plotHeight-under+5, x, plotHeight-under+18, stint.Instant(at).Time().Format(layout))
	}
}
