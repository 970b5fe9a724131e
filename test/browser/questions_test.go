package browser

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testredis"
)

// follow clicks the first link with a text in a panel.
func (p *page) follow(panel, text string) {
	p.t.Helper()
	link := fmt.Sprintf(`[...document.querySelectorAll("section[aria-label='%s'] a")].find((a) => a.textContent === %q)`, panel, text)
	p.click(fmt.Sprintf("%s has no link %q", panel, text), link)
}

// Each question of an operator at night is answered from the overview: which clients are denied, why, and what to do about it; which limit is
// too low; what changed at a time. An address that was shared shows the same.
func TestQuestions(t *testing.T) {
	t.Parallel()
	const guesser = "192.0.2.1"
	s := ruled(t)
	for user := range 10 {
		s.check("/api/x", "192.0.2.2", fmt.Sprint("user-", user)) // for whom limits are suggested
	}
	p := signedIn(t, s, 1280)

	guess := func() { s.guess(guesser) }
	p.provoke("the overview does not say why a client is denied", fmt.Sprintf(`[...document.querySelectorAll("section[aria-label=Clients] tr")]
		.some((r) => r.innerText.includes(%q) && r.innerText.includes("over the limit"))`, guesser), guess)
	p.follow("Clients", guesser)
	p.shows("In force, as for every client: 5 per minute per address.")
	p.press("Twice the limit")
	p.press("Put in force")
	p.shows("In force for this client: the override below.")
	p.press("For 2 hours")
	p.press("Put in force")
	p.shows("In force for this client until 2")
	if rule := s.rule("demo-login"); len(rule.Overrides) != 1 || rule.Overrides[0].Key != guesser || rule.Overrides[0].Limits[0].Limit != 10 || rule.Overrides[0].Until.IsZero() {
		t.Errorf("the rule has the overrides %+v", rule.Overrides)
	}

	p.visit("")
	p.act("no time can be chosen", `[...document.querySelectorAll("form.around input")][0]`, setValue(`() => new Date().toISOString().slice(11, 16)`))
	p.press("Show")
	p.until("the address does not have the time", `location.hash.includes("from=")`)
	for range 2 {
		has := func(panel, text string) string {
			return fmt.Sprintf(`document.querySelector("section[aria-label='%s']").innerText.includes(%q)`, panel, text)
		}
		p.until("the change of that time is not shown", has("What changed then", "changed demo-login"))
		p.provoke("the denials of that time are not shown", has("Denials then", guesser), guess)
		p.do(chromedp.Reload())
	}
	p.follow("What changed then", "revision 2")
	p.shows(`+   - key: "` + guesser + `"`)

	p.visit("")
	p.follow("Rules by denials", "suggest limits")
	p.shows("are never denied")

	p.visit("denials")
	const ruleField = "form label:nth-of-type(2) input"
	p.fill(ruleField, `() => "demo-ban"`)
	p.press("Search")
	p.until("the search is not in the address", `location.hash.includes("rule=demo-ban")`)
	p.do(chromedp.Reload())
	p.until("the search is lost", fmt.Sprintf("document.querySelector(%q).value === 'demo-ban'", ruleField))
	p.until("others are found", `document.querySelector("main").innerText.includes("None among the last") || [...document.querySelectorAll("[aria-label=Denials] tbody tr")].every((r) => r.innerText.includes("demo-ban"))`)
	p.visit("denials/client=" + guesser)
	p.until("the client's denials are not shown with their request", `[...document.querySelectorAll("[aria-label=Denials] tbody tr")].some((r) => r.innerText.includes("POST /login"))`)
}

// Ten tabs of a browser stay live at once, though it makes no more than six connections to one service: they share a stream of events. They
// go on when the tab that came first is closed.
func TestTenTabs(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := signedIn(t, s, 1280)
	tabs := []*page{p}
	for len(tabs) < 10 {
		tab := openTab(t, s, p.ctx)
		tab.do(chromedp.Navigate(s.admin + "/"))
		tabs = append(tabs, tab)
	}
	for i, tab := range tabs {
		tab.provoke(fmt.Sprintf("tab %d shows nothing", i+1), shown("Last denials"), func() { s.guess("192.0.2.1") })
	}
	live := func(tabs []*page, client string) {
		s.guess(client)
		for i, tab := range tabs {
			tab.until(fmt.Sprintf("tab %d of %d is not live", i+1, len(tabs)), shown(client))
		}
	}
	live(tabs, "192.0.2.2")
	p.do(chromedp.Navigate("about:blank"))
	live(tabs[1:], "192.0.2.3")
}

// A connection that breaks is said, and mends itself when the service is there again; the session goes on.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	admin := []string{"--admin-listen", testport.Address(t)}
	s := ruled(t, admin...)
	p := open(t, s, 1280)
	p.expectRefusals()
	p.signIn(writer)
	guess := func(s *service, client string) {
		p.provoke("a denial is not shown", shown(client), func() { s.guess(client) })
	}
	guess(s, "192.0.2.1")
	s.end()
	p.shows("The connection to the service is broken.")
	again := ruled(t, admin...)
	p.until("the break is still told", "!"+shown("connection to the service is broken"))
	guess(again, "192.0.2.2")
}

// What all processes decided stands together in one labelled time, and in the plot; a time that is chosen is of this process. A
// process that does not answer about denials is named.
func TestAllProcesses(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	began := time.Now()
	s := ruled(t, "--store", redis.URL(), "--store-timeout", "1m")
	other := serve(t, "--store", redis.URL(), "--store-timeout", "1m")
	for other.ask(http.MethodGet, "/api/v1/rules/demo-login", nil, nil) != http.StatusOK { // it learns them from Redis
		if time.Since(began) > patience {
			t.Fatal("the other process has no rules")
		}
		<-time.After(10 * time.Millisecond)
	}
	s.guess("192.0.2.1")
	other.guess("192.0.2.2")
	other.guess("192.0.2.3")
	p := signedIn(t, s, 1440)
	const row = `[...document.querySelectorAll("section[aria-label='Rules by denials'] tbody tr")].find((r) => r.cells[0].innerText === "demo-login")`
	p.until("the time is not labelled", `/^All 2 processes, last \d/.test(document.querySelector("h2.group").innerText) && document.querySelector("h1").innerText.includes("(all 2 processes, last ")`)
	p.until("not all are counted", row+`.cells[1].innerText === "3" && `+row+`.cells[3].innerText === "18" && `+row+`.cells[4].innerText === "3"`)
	p.until("the plot is not of all", `document.querySelector("main").innerText.includes("requests per second, all 2 processes")`)
	p.until("processes on one machine are not told apart", `new Set([...document.querySelectorAll("section[aria-label=Processes] tbody tr")].map((r) => r.cells[0].innerText.replace(" (this)", ""))).size === 2`)
	p.until("a client of the other process is not shown", `document.querySelector("section[aria-label=Clients]").innerText.includes("192.0.2.3")`)
	p.visit(fmt.Sprintf("from=%d&to=%d", began.Add(-time.Minute).Unix(), time.Now().Add(time.Minute).Unix()))
	p.until("the chosen time is not of this process", `document.querySelector("h2.group").innerText.startsWith("This process, ") && document.querySelector("main").innerText.includes("requests per second, this process") && `+row+`.cells[1].innerText === "1"`)

	p.visit("denials")
	p.until("the other process is not asked", denied("192.0.2.3", "demo-login"))
	must.Do(t, syscall.Kill(other.process, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(other.process, syscall.SIGCONT) })
	p.press("Search")
	p.shows("A process did not answer: ")
	p.until("the denials of the one that answers are lost", denied("192.0.2.1", "demo-login"))
}
