package browser

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint/internal/must"
)

var screenshots = flag.String("screenshots", "", "folder that pictures of all pages are put into; none are made without it")

// A person signs in, sees numbers change, tries a change in shadow, compares, enforces it, and rolls it back.
func TestChangeOfARule(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := open(t, s, 1280)
	p.expectRefusals()
	p.signIn("a token that nobody has")
	p.shows("the token is not known")
	p.signIn(writer)
	p.provoke("the rule is not shown", shown("demo-login"), func() { s.check("/login", "192.0.2.1", "") })
	p.provoke("nothing changes", shown("192.0.2.2"), func() { s.guess("192.0.2.2") })

	for range 60 { // before the change is in shadow: no part of the comparison
		s.check("/api/x", "192.0.2.1", "bob")
	}
	p.visit("rules/demo-api")
	p.write(`(text) => text.replace("capacity: 40", "capacity: wrong")`)
	p.shows("capacity is")
	p.write(`(text) => text.replace("capacity: wrong", "capacity: 4").replace("refill: 5/s", "refill: 1/h")`)
	p.press("Try it in shadow")
	p.shows("Compared with the change in shadow")
	const denied = `/[1-9]/.test(document.querySelector("section[aria-label^=Compared] td.shadow.n").innerText)`
	p.provoke("the change in shadow denies nothing", denied, func() { s.check("/api/x", "192.0.2.1", "ann") })
	p.until("the rule in force has denials of before the change", `document.querySelector("section[aria-label^=Compared] td.denied.n").innerText === "0"`)
	p.shows("It has not seen a whole 4 h")
	p.until("whom the change would deny is not told", `[...document.querySelectorAll("section[aria-label*='demo-api.candidate would deny'] tbody tr")].some((r) => r.innerText.includes("ann") && r.innerText.includes("in shadow"))`)
	p.shows("It started with full buckets and empty windows")
	var edited time.Time
	p.provoke("the comparison goes on after the rule in force has changed",
		`document.querySelector("section[aria-label^=Compared] td.shadow.n")?.innerText === "0"`, func() {
			if time.Since(edited) < 5*time.Second {
				return // the page counts by whole seconds, so that a second edit may be needed
			}
			var rule map[string]any
			s.ask(http.MethodGet, "/api/v1/rules/demo-api", nil, &rule)
			edited = time.Now()
			rule["name"] = fmt.Sprint("edited at ", edited.Unix())
			if status := s.ask(http.MethodPut, "/api/v1/rules/demo-api", rule, nil); status != http.StatusOK {
				t.Fatalf("the edit: %d", status)
			}
		})
	p.visit("rules") // what somebody else has changed is not overwritten by a page that does not show it
	p.visit("rules/demo-api")
	p.shows("edited at")
	p.press("Enforce the change")
	p.until("the change is not in force", "document.querySelector('h1').innerText.includes('(4 at once)')")
	if rule := s.rule("demo-api"); rule.Limits[0]["capacity"] != 4.0 || rule.OnExceed != "" {
		t.Errorf("the rule is %+v", rule)
	}
	if status := s.ask(http.MethodGet, "/api/v1/rules/demo-api.candidate", nil, nil); status != http.StatusNotFound {
		t.Errorf("the candidate is there still: %d", status)
	}

	p.visit("revisions/1")
	p.press("Roll back to this revision")
	p.shows("roll back to")
	if rule := s.rule("demo-api"); rule.Limits[0]["capacity"] != 40.0 {
		t.Errorf("after the rollback the rule is %+v", rule)
	}
}

// A change is simulated on what the service decided lately, and the playground shows the burst that a fixed window lets through.
func TestSimulation(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	for range 10 {
		s.check("/api/x", "192.0.2.1", "ann")
	}
	p := signedIn(t, s, 1280)
	p.visit("simulate")
	p.until("the rules in force are not there", "document.querySelector('textarea').value.includes('capacity: 40')")
	p.write(`(text) => text.replace("capacity: 40", "capacity: 1").replace("refill: 5/s", "refill: 1/h")`)
	p.press("Simulate")
	p.until("the stricter candidate denies no more", `(() => {
		const rows = (by) => [...document.querySelectorAll("tr")].filter((r) => r.cells[1]?.innerText === by);
		const denied = (by) => rows(by).map((r) => parseInt(r.cells[2].innerText));
		return denied("candidate").includes(9) && !denied("in force").includes(9);
	})()`)
	p.visit("playground")
	p.shows("Of 200 requests at a window's edge, fixed window admits 200, token bucket 109, leaky bucket 109, sliding window counter 104, sliding window log 100.")
}

// Of two people who edit one rule, the second is told, and keeps the draft.
func TestTwoAuthors(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := signedIn(t, s, 1280)
	p.visit("rules/demo-export")
	p.write(`(text) => text.replace("capacity: 20", "capacity: 21")`)
	p.shows("+     capacity: 21")
	s.patch("demo-export", `{"priority": 7}`)
	p.expectRefusals()
	p.press("Enforce at once")
	p.shows("Somebody else has changed this rule since you began")
	if draft := eval[string](p, "document.querySelector('textarea:not(form textarea)').value"); !strings.Contains(draft, "capacity: 21") {
		t.Errorf("the draft is %q", draft)
	}
}

// A client that is denied is found, with why, and is let in again.
func TestDeniedClient(t *testing.T) {
	t.Parallel()
	const client = "192.0.2.1"
	s := ruled(t)
	// So that nobody is let in meanwhile.
	s.patch("demo-login", `{"limits": [{"algorithm": "sliding_window_log", "limit": 5, "window": "1h"}]}`)
	p := signedIn(t, s, 1280)
	p.provoke("the client is not shown", shown(client), func() { s.guess(client) })
	p.visit("client/" + client)
	p.shows("over the limit")
	p.shows("0 of 5")
	p.press("Reset")
	p.shows("No state; all rules would admit.")
	s.guess(client)
	p.shows("0 of 5")
	if status := s.ask(http.MethodPost, "/api/v1/rules/demo-login/reset", map[string]any{"key": client}, nil); status != http.StatusOK {
		t.Error(status)
	}
	p.shows("No state; all rules would admit.")
}

// What a client is guaranteed within another rule's limit, and what it may borrow, is shown by name.
func TestSharesOfAClient(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.put("org", `{"match": {"path": "/shared"}, "scope": "global",
		"limits": [{"algorithm": "token_bucket", "capacity": 100, "refill": "100/1h"}]}`)
	s.put("team", `{"match": {"path": "/shared"}, "scope": "per_ip", "missing": "deny", "within": "org", "borrow": "7/1h",
		"guaranteed": {"192.0.2.1": {"capacity": 30, "refill": "1/1h"}}}`)
	p := signedIn(t, s, 1280)
	p.visit("client/192.0.2.1")
	p.shows("guaranteed")
	p.shows("30 of 30")
	p.shows("may borrow")
	p.shows("7 of 7")
}

// What is held of a client is shown, and a hold whose holder is stuck is ended.
func TestStuckHold(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.put("jobs", `{"match": {"path": "/jobs"}, "scope": "per_ip",
		"limits": [{"algorithm": "concurrency", "capacity": 1, "name": "jobs"}]}`)
	p := signedIn(t, s, 1280)
	p.visit("client/192.0.2.7")
	p.provoke("the hold is not shown", shown("job-17"), func() { s.reserve("job-17", "/jobs", "192.0.2.7") })
	p.press("End")
	p.until("the hold is still shown", `!document.body.innerText.includes("job-17")`)
	if !s.reserve("job-18", "/jobs", "192.0.2.7") {
		t.Error("its place is not free")
	}
}

// What strangers send is shown as text, never as markup.
func TestStrangersMarkup(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	const markup = `<img src=x onerror="document.title='broken'">`
	s.patch("demo-api", `{"limits": [{"algorithm": "token_bucket", "capacity": 1, "refill": "1/h"}]}`)
	p := signedIn(t, s, 1280)
	p.provoke("nothing of it is shown", shown("onerror"), func() { s.check("/api/x", "192.0.2.9", markup) })
	p.visit("denials")
	p.shows(markup)
	if eval[int](p, "document.querySelectorAll('img').length") != 0 || strings.Contains(eval[string](p, "document.title"), "broken") {
		t.Error("markup became part of the page")
	}
}

// A reader is shown nothing to change, and may change nothing whatever the page does; neither may a page of another
// origin. Signed out, a session is over.
func TestReaders(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := open(t, s, 1280)
	p.expectRefusals()
	p.signIn(reader)
	p.visit("rules")
	p.shows("demo-api")
	p.shows("(read only)")
	if buttons := eval[string](p, "[...document.querySelectorAll('main button')].map((b) => b.textContent).join()"); buttons != "" {
		t.Errorf("a reader has the buttons %s", buttons)
	}
	for _, test := range []string{
		`fetch("/api/v1/rules/demo-api", {method: "DELETE"})`,
		`fetch("/api/v1/rules", {method: "PUT", body: "[]", headers: {"Content-Type": "application/json"}})`,
		`fetch("/api/v1/rules/demo-api", {method: "PATCH", body: "{}", headers: {"Content-Type": "application/json"}})`,
		`fetch("/api/v1/reset", {method: "POST", body: '{"all":true}', headers: {"Content-Type": "application/json"}})`,
		`fetch("/api/v1/rules/demo-api/reset", {method: "POST", body: '{"all":true}', headers: {"Content-Type": "application/json"}})`,
		`fetch("/api/v1/rule-revisions/1/rollback", {method: "POST"})`,
		`fetch("/debug/pprof/heap")`,
	} {
		if status := eval[int](p, test+".then((r) => r.status)"); status != http.StatusForbidden {
			t.Errorf("%s: %d", test, status)
		}
	}
	p.press("Sign out")
	p.until("the page is not loaded anew", `performance.getEntriesByType("navigation")[0].type === "reload"`)
	p.until("nobody can sign in", there("document.querySelector('[name=token]')"))
	if status := eval[int](p, `fetch("/api/v1/rules").then((r) => r.status)`); status != http.StatusUnauthorized {
		t.Errorf("after signing out: %d", status)
	}
}

// Nobody is signed in by a page of another origin. The cookie is not the token, and what the page may load is its own.
// That a session changes nothing from elsewhere, and no frame shows the dashboard, the server's own tests hold.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	s := serve(t)
	signIn := func(origin, site string) *http.Response {
		body := strings.NewReader(`{"token":"` + writer + `"}`)
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.admin+"/session", body))(t)
		r.Header = http.Header{"Content-Type": {"application/json"}, "Origin": {origin}, "Sec-Fetch-Site": {site}}
		response := must.Get(http.DefaultClient.Do(r))(t)
		_ = response.Body.Close()
		return response
	}
	here := signIn(s.admin, "same-origin")
	if c := here.Cookies(); here.StatusCode != http.StatusOK || len(c) != 1 || strings.Contains(c[0].Value, writer) {
		t.Fatalf("signing in: %d %v", here.StatusCode, c)
	}
	if got := signIn("http://evil.example", "cross-site"); got.StatusCode != http.StatusForbidden || len(got.Cookies()) != 0 {
		t.Errorf("signing in from elsewhere: %d", got.StatusCode)
	}
	page := must.Get(http.Get(s.admin + "/"))(t) //nolint:noctx // a test
	_ = page.Body.Close()
	if policy := page.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "script-src 'self';") {
		t.Errorf("the policy is %q", policy)
	}
}

// On a phone the pages stand in a menu, which closes when one is chosen.
func TestMenu(t *testing.T) {
	t.Parallel()
	p := signedIn(t, serve(t), 390)
	const link = `[...document.querySelectorAll("nav a")].find((a) => a.textContent === "Denials")`
	p.until("the menu is open", link+`?.checkVisibility() === false`)
	p.press("Menu")
	p.until("the menu is closed", link+`.checkVisibility() && document.querySelector("[aria-controls=menu]").ariaExpanded === "true"`)
	p.click("the page is not there", link)
	p.shows("Last denials")
	p.until("the menu is still open", link+`.checkVisibility() === false`)
}

// A view is a page in one state.
type view struct{ place, name, shows string }

// views are the pages with the traffic of the demonstration.
var views = []view{
	{"", "overview", "demo-ban"},
	{"from=1&to=2", "overview-chosen", "and knows nothing of before."},
	{"client/198.51.100.251", "client", "last denied at"},
	{"rules", "rules", "demo-stricter"},
	{"rules/demo-api", "rule", "Everything that the YAML says is shown here."},
	{"rules/new", "rule-new", "Make the rule"},
	{"denials", "denials", "demo-ban"},
	{"explain/path=/api/x&user=demo-user-0", "explain", "rule demo-api decides"},
	{"revisions", "revisions", "made up by --demo"},
	{"revisions/1", "revision", "+ id: demo-stricter"},
	{"simulate/run=1", "simulate", "shut out"},
	{"simulate/run=1&source=pattern&rate=9&clients=3", "simulate-pattern", "5,420 requests in 10.0 min"},
	{"playground", "playground", "at most 200 of one client"},
	{"nowhere", "nowhere", "There is no such page."},
}

// emptyViews are the pages of a service that has no rules, no traffic and no state.
var emptyViews = []view{
	{"", "overview-empty", "curl -i 'http://127.0.0.1:PORT/api/v1/rate-limit/check?key=user:123'"},
	{"client", "client-none", "Look up a client"},
	{"client/nobody", "client-empty", "No state; all rules would admit."},
	{"rules", "rules-empty", "Start from a template"},
	{"denials", "denials-empty", "None among the last 0 clients of rules since"},
	{"explain", "explain-empty", "It takes nothing."},
	{"revisions", "revisions-empty", "No revision yet."},
	{"domains", "domains-empty", "There are no domains."},
	{"simulate/run=1", "simulate-empty", "There is no request to simulate."},
}

// axe-core finds no serious fault on any page, with traffic and empty, dark and light, wide and narrow.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	t.Run("traffic", func(t *testing.T) {
		t.Parallel()
		s := serve(t, "--demo")
		p := open(t, s, 1280)
		p.loadAxe() // once for all pages, which are one document
		p.inspect(func() {}, view{name: "sign-in", shows: "--demo without one makes a token and writes it into the program's log"})
		p.signIn(writer)
		p.inspect(func() { // which the made-up traffic may bring late
			s.check("/", "203.0.113.66", "")
			s.guess("198.51.100.251")
		}, views...)
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		p := signedIn(t, serve(t), 1280)
		p.loadAxe()
		p.inspect(func() {}, emptyViews...)
	})
}

// loadAxe loads axe-core into the document.
func (p *page) loadAxe() {
	p.t.Helper()
	axe, err := os.ReadFile("../../service/web/node_modules/axe-core/axe.min.js")
	if err != nil {
		p.t.Fatalf("%v; make web installs it", err)
	}
	eval[bool](p, string(axe)+"; true")
}

// expectNoFaults looks for serious faults by axe-core, with more options, and whether the page scrolls sideways.
func (p *page) expectNoFaults(what, options string) {
	p.t.Helper()
	for _, fault := range eval[[]string](p, `axe.run(document, {resultTypes: ["violations"]`+options+`}).then((r) => r.violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3).join(" | ")))`) {
		p.t.Errorf("%s: %s", what, fault)
	}
	if eval[int](p, "document.documentElement.scrollWidth - innerWidth") > 0 {
		p.t.Errorf("%s: the page scrolls sideways: %s", what, eval[string](p, `[...document.querySelectorAll("main *")]
			.filter((e) => e.getBoundingClientRect().right > innerWidth)
			.map((e) => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)).slice(0, 5).join(" | ")`))
	}
}

// inspect looks for faults in pages, in both widths and themes, and keeps pictures of them. The requests bring about
// what pages show.
func (p *page) inspect(requests func(), views ...view) {
	p.t.Helper()
	for _, v := range views {
		p.visit(v.place)
		p.provoke(fmt.Sprintf("%s does not show %q", v.name, v.shows), shown(v.shows), requests)
		p.until(v.name+" has no heading", there("document.querySelector('main h1')"))
		for _, width := range []int64{1440, 390} {
			p.do(chromedp.EmulateViewport(width, 900))
			// Plots are drawn as wide as the page.
			eval[bool](p, "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(true))))")
			if width < 640 {
				for _, small := range eval[[]string](p, smallTargets) {
					p.t.Errorf("%s, %d wide: too small to touch: %s", v.name, width, small)
				}
			}
			// A theme changes colours and nothing else, so that the second one is tested for those.
			for _, theme := range []string{"light", "dark"} {
				only := ""
				if theme == "dark" {
					only = `, runOnly: ["color-contrast", "link-in-text-block"]`
				}
				eval[string](p, fmt.Sprintf("document.documentElement.dataset.theme = %q", theme))
				p.expectNoFaults(fmt.Sprintf("%s, %s, %d wide", v.name, theme, width), only)
				p.picture(v.name, theme, width)
			}
		}
	}
}

// smallTargets are what can be touched on a page and has less than 44 px, but for links in the words of a sentence and
// what a larger label has.
const smallTargets = `[...document.querySelectorAll("a, button, input, select, textarea, summary")].filter((e) => e.checkVisibility() && !e.closest("p, h1, .notice"))
	.map((e) => [e, (e.type === "checkbox" ? e.closest("label") : e).getBoundingClientRect()])
	.filter(([, box]) => box.height < 43.5 || box.width < 43.5).map(([e, box]) => e.tagName + " " + (e.textContent || e.name || e.type).slice(0, 30) + " " + box.width + "x" + box.height)`

// picture keeps how the page looks, if it is asked for.
func (p *page) picture(name, theme string, width int64) {
	p.t.Helper()
	if *screenshots == "" {
		return
	}
	picture := must.Get(chromedp.Run(p.ctx, chromedp.FullScreenshot(100)))(p.t)
	name = fmt.Sprintf("%s-%s-%d.png", name, theme, width)
	must.Do(p.t, os.WriteFile(filepath.Join(*screenshots, name), picture, 0o600))
}
