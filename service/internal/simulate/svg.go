package simulate

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// The measures of a plot, in pixels.
const (
	plotWidth, plotHeight   = 860, 240
	left, right, top, under = 64, 16, 34, 44
)

// style is for light and dark. What is denied is hatched, so that colours are not needed. It is in
// each picture, which is used where no style sheet reaches: in documentation and in mails.
const style = `<style>
.ground{fill:#fff}.title{fill:#0f172a;font-weight:600}text{fill:#475569}line{stroke:#e2e8f0}
.admitted{fill:#475569}.denied{fill:url(#hatch)}.shadow{fill:#7c3aed}.thin{fill:#fdd9c6}.thick{stroke:#d9480f}
@media(prefers-color-scheme:dark){.ground{fill:#0f172a}.title{fill:#e2e8f0}text{fill:#a3b1c6}line{stroke:#334155}
.admitted{fill:#94a3b8}.shadow{fill:#b79bff}.thin{fill:#4a2a1d}.thick{stroke:#fb8a5a}}
</style>
<defs><pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
	`<rect class="thin" width="4" height="4"/><line class="thick" y2="4" stroke-width="2"/></pattern></defs>`

// A svg is a picture under work.
type svg struct{ text strings.Builder }

func newSVG(label string, width, height int) *svg {
	p := &svg{}
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="%s">`,
		width, height, width, height, html.EscapeString(label))
	p.add("%s", style)
	p.add(`<rect class="ground" width="%d" height="%d"/>`, width, height)
	return p
}

func (p *svg) add(format string, args ...any) {
	p.text.WriteString(fmt.Sprintf(format, args...) + "\n")
}

func (p *svg) close() string {
	p.add(`</svg>`)
	return p.text.String()
}

// title writes the title of a plot.
func (p *svg) title(x, y int, text string) {
	p.add(`<text class="title" x="%d" y="%d" font-size="14">%s</text>`, x, y, html.EscapeString(text))
}

// legend writes outcomes with how they are drawn, right-aligned in a title's line.
func (p *svg) legend(end, y int, shadow bool) {
	entries := []string{"admitted", "denied"}
	if shadow {
		entries = append(entries, "shadow")
	}
	x := end
	for _, class := range slices.Backward(entries) {
		said := map[string]string{"shadow": "in shadow"}[class]
		if said == "" {
			said = class
		}
		x -= 8*len(said) + 18
		p.add(`<rect class="%s" x="%d" y="%d" width="10" height="10"/><text x="%d" y="%d">%s</text>`, class, x,
			y-9, x+14, y, said)
	}
}

// A frame is where steps are drawn, in pixels, and how many pixels one of what they count is.
type frame struct{ x, y, width, height, scale float64 }

// axis draws a scale of at most so many parts from 0 to at least most, with lines, and returns the
// frame with it. A line is at each multiple of 1, 2 or 5 times a power of ten: the smallest such
// step that needs no more parts than allowed.
func (p *svg) axis(f frame, most float64, parts float64) frame {
	step := math.Pow(10, math.Floor(math.Log10(max(most, 1))))
	for _, times := range []float64{0.2, 0.5, 1, 2, 5} {
		if most/(step*times) <= parts {
			step = max(1, step*times)
			break
		}
	}
	end := step * math.Ceil(max(most, 1)/step)
	f.scale = f.height / end
	for y := 0.0; y <= end+step/2; y += step {
		at := f.y + f.height - y*f.scale
		p.add(`<line x1="%s" y1="%s" x2="%s" y2="%s"/><text x="%s" y="%s" text-anchor="end">%s</text>`,
			px(f.x), px(at), px(f.x+f.width), px(at), px(f.x-6), px(at+4), Group(int64(y)))
	}
	return f
}

// px writes pixels, with a tenth.
func px(at float64) string { return strconv.FormatFloat(math.Round(at*10)/10, 'f', -1, 64) }

// steps draws what was admitted over time, in shadow or not, and what was denied on top: together
// what was offered.
func (p *svg) steps(f frame, steps []Step) {
	if slices.ContainsFunc(steps, func(s Step) bool { return s.Denied > 0 }) {
		p.area("denied", f, steps, func(s Step) int64 { return s.Admitted + s.Denied })
	}
	if hasShadow(steps) {
		p.area("shadow", f, steps, func(s Step) int64 { return s.Admitted })
	}
	p.area("admitted", f, steps, func(s Step) int64 { return s.Admitted - s.Shadow })
}

// area fills what is below a height in each step, over what was drawn before. Its outline is
// written in differences of tenths of pixels, as short as possible. Neighbouring steps of the same
// height become one line, which makes a picture of a constant rate as small as one of a single
// step.
func (p *svg) area(class string, f frame, steps []Step, height func(Step) int64) {
	tenths := func(at float64) int { return int(math.Round(at * 10)) }
	base := tenths(f.y + f.height)
	x, y := tenths(f.x), base
	var d strings.Builder
	fmt.Fprintf(&d, "M%s %s", px(f.x), px(f.y+f.height))
	to := func(command string, was *int, is int) {
		if is != *was {
			text := strconv.FormatFloat(float64(is-*was)/10, 'f', -1, 64)
			if number, minus := strings.CutPrefix(text, "-"); strings.HasPrefix(number, "0.") {
				text = map[bool]string{true: "-"}[minus] + number[1:]
			}
			d.WriteString(command + text)
			*was = is
		}
	}
	for i, s := range steps {
		if next := tenths(f.y + f.height - float64(height(s))*f.scale); next != y {
			to("h", &x, tenths(f.x+float64(i)*f.width/float64(len(steps))))
			to("v", &y, next)
		}
	}
	to("h", &x, tenths(f.x+f.width))
	to("v", &y, base)
	p.add(`<path class="%s" d="%sz"/>`, class, d.String())
}

// SVG draws what a candidate admitted over time, and what it denied on top.
func (c *CandidateReport) SVG() string {
	p := newSVG(c.Name, plotWidth, plotHeight)
	p.title(left, 20, c.Name)
	p.legend(plotWidth-right, 20, hasShadow(c.Steps))
	f := frame{x: left, y: top, width: plotWidth - left - right, height: plotHeight - top - under}
	f = p.axis(f, float64(busiest(c.Steps)), 5)
	width := stint.Per(1, micros(c.Step)).String()[1:] // such as /s and /5m
	p.add(`<text x="%d" y="%d">requests per %s, in UTC</text>`, left, plotHeight-8, width[1:])
	p.steps(f, c.Steps)
	p.times(c, f, 8)
	return p.close()
}

func hasShadow(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Shadow > 0 })
}

// busiest is the most that was offered in a step.
func busiest(steps []Step) (most int64) {
	for _, s := range steps {
		most = max(most, s.Admitted+s.Denied)
	}
	return most
}

// SVG draws the plots of all candidates, one below the other; by the parts of the requests beside
// each other.
func (r *Report) SVG() string {
	if r.By != "" {
		return r.partsSVG()
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n",
		plotWidth, plotHeight*len(r.Candidates), plotWidth, plotHeight*len(r.Candidates))
	for i := range r.Candidates {
		fmt.Fprintf(&b, "<g transform=\"translate(0 %d)\">\n%s</g>\n", i*plotHeight, r.Candidates[i].SVG())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// ticks are how far apart times under a plot may be. Each is a length that people count in, so that
// times under a plot are round.
var ticks = [...]time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 168 * time.Hour,
	672 * time.Hour, 2184 * time.Hour,
}

// times writes the times under a frame, at most one more than so many.
func (p *svg) times(c *CandidateReport, f frame, most int64) {
	length := int64(max(len(c.Steps), 1)) * c.Step
	tick := int64(52 * 168 * time.Hour / time.Microsecond)
	for _, t := range ticks {
		if length/t.Microseconds() <= most {
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
	y := f.y + f.height
	for at := (int64(c.StepFrom) + tick - 1) / tick * tick; at < int64(c.StepFrom)+length; at += tick {
		x := f.x + float64(at-int64(c.StepFrom))/float64(length)*f.width
		p.add(`<line x1="%s" y1="%s" x2="%s" y2="%s"/><text x="%s" y="%s" text-anchor="middle">%s</text>`,
			px(x), px(y), px(x), px(y+5), px(x), px(y+18), stint.Instant(at).Time().Format(layout))
	}
}
