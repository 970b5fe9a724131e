package browser

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtraffic"
)

var rewrite = flag.Bool("rewrite", false, "write the pictures of the guides")

const guides = "../../docs/"

// ruleShown is the first document of rules of a guide.
func ruleShown(t *testing.T, guide string) string {
	t.Helper()
	found := regexp.MustCompile("(?s)```yaml\n(rules:.*?)```").FindStringSubmatch(guideText(t, guide))
	if found == nil {
		t.Fatal("there are no rules in", guide)
	}
	return found[1]
}

func guideText(t *testing.T, guide string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(guides, guide)))(t)
	return string(text)
}

// A report is that of a simulation, as JSON has it.
type report struct {
	Candidates []candidate
}

type candidate struct {
	Name  string
	Step  int64
	Parts []struct {
		Value string
		Steps []struct{ Admitted, Denied int64 }
	}
}

// group writes a number as the guides do.
func group(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// reported simulates in a folder, and returns the report, and the page with its plots as one SVG.
func reported(t *testing.T, folder string, args ...string) (r *report, page *page, picture string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(programs, "stint"), append([]string{"simulate", "--json", "--html", "report.html"}, args...)...)
	command.Dir = folder
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	must.Do(t, json.Unmarshal(text, &r))
	page = openTab(t, &service{admin: "file://" + folder}, newBrowser(t))
	page.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate("file://"+filepath.Join(folder, "report.html")))
	link := eval[string](page, `document.querySelector("a[download]").getAttribute("href")`)
	picture = must.Get(url.PathUnescape(strings.TrimPrefix(link, "data:image/svg+xml,")))(t)
	return r, page, picture
}

// sameAsGuide compares a picture with the one that guides show, or writes it there.
func sameAsGuide(t *testing.T, name, drawn string) {
	t.Helper()
	if *rewrite {
		must.Do(t, os.WriteFile(filepath.Join(guides, "simulate", name), []byte(drawn), 0o644)) //nolint:gosec // others may read it
	}
	if guideText(t, "simulate/"+name) != drawn {
		t.Errorf("docs/simulate/%s is another picture; make simulate-plots draws it", name)
	}
	if len(drawn) > 60_000 {
		t.Errorf("the picture %s has %d bytes", name, len(drawn))
	}
}

// TestPlotsOfPatterns draws the pictures of docs/simulate.md, as `make simulate-plots` does.
func TestPlotsOfPatterns(t *testing.T) {
	for pattern, args := range map[string][]string{
		"boundary-burst": {"--limit", "100/1m"},
		"retry-storm":    {"--limit", "100/1m"},
		"diurnal":        {"--limit", "500/1h", "--rate", "1"},
	} {
		_, _, drawn := reported(t, t.TempDir(), append([]string{"--pattern", pattern}, args...)...)
		sameAsGuide(t, pattern+".svg", drawn)
	}
}

// A plotted is a picture of a guide, and how it is made.
type plotted struct {
	length  time.Duration
	by      string
	callers []testtraffic.Caller
	decide  func(string, time.Duration) bool // what the log says
	rules   map[string]string                // texts by name
	args    []string
}

// simulate returns the report and the picture.
func (p *plotted) simulate(t *testing.T) (r *report, drawn string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range p.rules {
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	log := must.Get(os.Create(filepath.Join(folder, "access.csv")))(t)
	must.Do(t, testtraffic.WriteLog(log, 1, p.by, p.length, p.callers, p.decide))
	must.Do(t, log.Close())
	r, _, drawn = reported(t, folder, append([]string{"--by", p.by, "access.csv"}, p.args...)...)
	return r, drawn
}

// between is what was admitted and denied of a part between two times in seconds.
func between(c *candidate, value string, from, until int64) (admitted, denied int64) {
	for _, part := range c.Parts {
		for i, s := range part.Steps {
			if at := int64(i) * c.Step; part.Value == value && at >= from*1_000_000 && at < until*1_000_000 {
				admitted, denied = admitted+s.Admitted, denied+s.Denied
			}
		}
	}
	return admitted, denied
}

// The picture of floors: a team alone has the whole rate, a newcomer its floor from its first request on, and two that want
// more share what the third does not use. A rule that makes ceilings of floors denies more.
func TestPlotOfFloors(t *testing.T) {
	p := plotted{
		length: 3 * time.Minute, by: "team",
		callers: []testtraffic.Caller{
			{Name: "search", PerSecond: 1500},
			{Name: "ads", PerSecond: 280, From: 90 * time.Second, Until: 2 * time.Minute},
			{Name: "ads", PerSecond: 1500, From: 2 * time.Minute},
		},
		decide: testtraffic.Ceilings(60_000, 0.8, map[string]float64{"search": 0.4, "ads": 0.3, "mail": 0.3}),
		rules:  map[string]string{"floors.yaml": ruleShown(t, "organisations.md")},
		args:   []string{"--candidate", "floors.yaml", "--logged=LiteLLM's rule"},
	}
	page := guideText(t, "organisations.md")
	r, drawn := p.simulate(t)
	sameAsGuide(t, "floors.svg", drawn)
	floors, ceilings := &r.Candidates[0], &r.Candidates[1]
	for _, test := range []struct {
		candidate   *candidate
		team        string
		from, until int64
		floor       int64
		says        func(admitted, denied, perSecond int64) string
	}{
		{floors, "search", 1, 90, 400, func(_, _, perSecond int64) string {
			return fmt.Sprintf("search has %s a second", group(perSecond))
		}},
		{floors, "ads", 90, 120, 0, func(admitted, denied, _ int64) string {
			return fmt.Sprintf("%s of %s is denied", map[bool]string{true: "none"}[denied == 0], group(admitted+denied))
		}},
		{floors, "search", 121, 180, 400, func(_, _, perSecond int64) string { return fmt.Sprintf("search has %d a second, ", perSecond) }},
		{floors, "ads", 121, 180, 300, func(_, _, perSecond int64) string { return fmt.Sprintf("a second, ads %d", perSecond) }},
		{ceilings, "search", 0, 60, 400, func(admitted, _, _ int64) string {
			return fmt.Sprintf("%s of %s in the first minute", group(admitted), group(60_000))
		}},
		{ceilings, "search", 33, 60, 0, func(admitted, _, _ int64) string {
			return fmt.Sprintf("and %s from the 33rd second on", map[bool]string{true: "nothing"}[admitted == 0])
		}},
	} {
		admitted, denied := between(test.candidate, test.team, test.from, test.until)
		seconds := test.until - test.from
		if admitted < test.floor*seconds {
			t.Errorf("%s: %s is admitted %d from %d s to %d s, less than its floor", test.candidate.Name, test.team, admitted, test.from, test.until)
		}
		if says := test.says(admitted, denied, (admitted+seconds/2)/seconds); !strings.Contains(page, says) {
			t.Errorf("the page does not say: %s", says)
		}
	}
}

// The picture of classes: critical requests in bursts are admitted at three times the capacity, and others give way.
func TestPlotOfClasses(t *testing.T) {
	rules := ruleShown(t, "priorities.md")
	plain, _, _ := strings.Cut(rules, "    classes:\n")
	p := plotted{
		length: 90 * time.Second, by: "class",
		decide: func(string, time.Duration) bool { return true },
		rules:  map[string]string{"classes.yaml": rules, "without-classes.yaml": plain},
		args:   []string{"--candidate", "classes.yaml", "--candidate", "without-classes.yaml"},
	}
	for i, rates := range [][3]float64{{300, 300, 300}, {600, 700, 700}, {950, 1025, 1025}} {
		from := time.Duration(i) * 30 * time.Second
		for j, class := range []string{"critical", "normal", "batch"} {
			c := testtraffic.Caller{Name: class, PerSecond: rates[j], From: from, Until: from + 30*time.Second}
			if class == "critical" {
				c.Every = 100 * time.Millisecond
			}
			p.callers = append(p.callers, c)
		}
	}
	page := guideText(t, "priorities.md")
	r, drawn := p.simulate(t)
	sameAsGuide(t, "classes.svg", drawn)
	for i := range r.Candidates {
		c := &r.Candidates[i]
		said := "| `" + c.Name + "` |"
		for _, class := range []string{"critical", "normal", "batch"} {
			admitted, denied := between(c, class, 60, 90)
			share := 100 * float64(admitted) / float64(admitted+denied)
			said += fmt.Sprintf(" %s of %s (%.1f %%) |", group(admitted), group(admitted+denied), share)
			if i == 0 && class == "critical" && share < 99 {
				t.Errorf("of critical requests %.2f %% is admitted", share)
			}
		}
		if !strings.Contains(page, said+"\n") {
			t.Errorf("the page lacks\n%s", said)
		}
	}
	for i := range p.callers {
		p.callers[i].Every = 0
	}
	r, _ = p.simulate(t)
	admitted, denied := between(&r.Candidates[1], "critical", 60, 90)
	if says := fmt.Sprintf("%.1f %% are admitted", 100*float64(admitted)/float64(admitted+denied)); !strings.Contains(page, says) {
		t.Errorf("the page does not say: critical requests without classes, at random times, %s", says)
	}
}
