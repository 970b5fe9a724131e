package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// formField is the field of the form with a label.
func formField(label string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("form.rule label")].find((l) => l.firstChild.textContent === %q)?.querySelector("input, textarea, select")`, label)
}

// fillForm changes a field of the form as a person who types.
func (p *page) fillForm(label, text string) {
	p.t.Helper()
	p.act("there is no field "+label, formField(label), setValue(fmt.Sprintf("() => %q", text)))
}

func (p *page) draft() string {
	return eval[string](p, "document.querySelector('textarea:not(form textarea)').value")
}

// The form and the YAML are two views of one draft: each shows what the other changes, and its faults. What the form can't show stays.
func TestRuleForm(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.put("orders", `{"match": {"path": "/orders", "headers": {"X-Plan": "free"}}, "scope": "per_user", "missing": "deny", "cost": 2,
		"limits": [{"algorithm": "sliding_window_log", "limit": 5, "window": "1m", "min_interval": "10ms"}],
		"overrides": [{"key": "ann", "unlimited": true}]}`)
	p := signedIn(t, s, 1280)
	p.visit("rules/orders")
	p.shows("Not shown here, and left as it is in the YAML: cost, overrides, limits[0].min_interval.")
	p.write(`(text) => "# kept for the auditors\n" + text`)
	p.fillForm("At most", "50")
	p.fillForm("Except, one a line", "/orders/health\n/orders/{id}")
	p.fillForm("Methods", "GET, POST")
	p.until("the form did not change the YAML", `document.querySelector("textarea:not(form textarea)").value.includes("[GET, POST]")`)
	for _, want := range []string{"# kept for the auditors\n", "limit: 50\n", `except: [/orders/health, "/orders/{id}"]`, "min_interval: 10ms\n", "key: ann\n", "cost: 2\n"} {
		if !strings.Contains(p.draft(), want) {
			t.Errorf("the draft lacks %q:\n%s", want, p.draft())
		}
	}
	p.fillForm("At most", "many")
	p.until("the form shows no fault", formField("At most")+`.parentNode.querySelector(".fault")?.textContent.includes("limits[0].limit is \"many\"")`)
	p.shows("line 1")
	p.write(`(text) => text.replace("limit: many", "limit: 60").replace("path: /orders\n", "paths: [/orders, /baskets]\n")`)
	p.until("the YAML did not change the form", formField("At most")+`.value === "60" && `+formField("Paths, one a line; none: all")+`.value === "/orders\n/baskets"`)
	p.until("a fault is left", `document.querySelector("main .fault") === null`)
	p.fillForm("Algorithm", "token_bucket")
	p.shows("min_interval does not belong to")
	p.write(`(text) => text.replace(/ +min_interval.*\n/, "")`)
	p.until("a fault is left", `document.querySelector("main .fault") === null`)
	p.write(`(text) => text.replace("scope: per_user", "scope: [per_user")`)
	p.shows("The form can't show this YAML")
	p.write(`(text) => text.replace("scope: [per_user", "scope: per_user")`)
	p.press("Enforce at once")
	p.shows("60 per minute (60 at once) per user")
	if saved := s.rule("orders"); len(saved.Match.Except) != 2 || len(saved.Match.Paths) != 2 || saved.Match.Headers["X-Plan"] != "free" ||
		saved.Limits[0]["capacity"] != 60.0 || saved.Limits[0]["algorithm"] != "token_bucket" || saved.Cost != 2 || len(saved.Overrides) != 1 {
		t.Errorf("the rule is %+v", saved)
	}
}

// A rule within another one is checked, and enforced, as a part of the rules in force. It can't be tried in shadow alone.
func TestRuleWithin(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.put("org", `{"scope": "custom:org", "missing": "skip", "limits": [{"algorithm": "token_bucket", "capacity": 100, "refill": "100/s"}]}`)
	s.put("team", `{"scope": "custom:team", "missing": "skip", "within": "org", "borrow": true,
		"guaranteed": {"search": {"capacity": 10, "refill": "10/s"}}}`)
	p := signedIn(t, s, 1280)
	p.visit("rules/team")
	p.write(`(text) => text.replace("capacity: 10", "capacity: 101")`)
	p.shows("allowed: at most 100, what rule org has")
	p.write(`(text) => text.replace("capacity: 101", "capacity: 95")`)
	p.shows("all clients of rule org have its floors in common")
	p.until("a fault is left", `document.querySelector("main .fault") === null`)
	if strings.Contains(p.text(), "Try it in shadow") {
		t.Error("the page offers to try it in shadow")
	}
	p.press("Enforce at once")
	p.until("the rule is not saved", "!("+there(button("Undo"))+")")
	if saved := s.rule("team"); saved.Guaranteed["search"].Capacity != 95 {
		t.Errorf("the rule is %+v", saved)
	}
}

// A limit that is suggested is shown with its evidence, and saved in shadow beside the rule that it would change; so is what a candidate changes.
func TestSuggestion(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	for user := range 10 {
		for range 3 {
			s.check("/api/search", "192.0.2.1", fmt.Sprint("user-", user))
		}
	}
	p := signedIn(t, s, 1280)
	p.visit("simulate")
	p.until("the rules in force are not there", "document.querySelector('textarea').value.includes('capacity: 40')")
	p.write(`(text) => text.replace("limit: 300", "limit: 200")`)
	const shares = `[...document.querySelectorAll("select")].find((s) => s.options[0].value === "" && s.options.length === 6)`
	p.act("there is no share to choose", shares, setValue(`() => "0.9"`))
	p.press("Simulate")
	p.shows("are never denied")
	row := func(panel, rule string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("section[aria-label='%s'] tr")].find((r) => r.cells[0].textContent === %q)`, panel, rule)
	}
	p.picture("simulate-suggestions", "light", 1280)
	for panel, rule := range map[string]string{"Suggested limits": "demo-api", "What the candidate changes": "demo-search"} {
		p.click("nothing to save of "+rule, row(panel, rule)+`?.querySelector("button")`)
		p.until(rule+" is not saved", row(panel, rule)+`?.textContent.includes("saved; compare")`)
		candidate := s.rule(rule + ".candidate")
		if candidate.OnExceed != "shadow" || rule == "demo-search" && candidate.Limits[0]["limit"] != 200.0 {
			t.Errorf("the candidate of %s is %+v", rule, candidate)
		}
	}
	p.visit("rules/demo-search")
	p.shows("Compared with the change in shadow")
}

// A rule's label leads to the rules that have it, at an address of its own.
func TestLabels(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.patch("demo-export", `{"labels": {"team": "mail"}}`)
	p := signedIn(t, s, 1280)
	p.visit("rules")
	const label = `[...document.querySelectorAll("main td a")].find((a) => a.textContent === "team:mail")`
	p.click("the label is not shown", label)
	p.until("other rules are shown", `document.querySelectorAll("main tbody tr").length === 1`)
	if at := eval[string](p, "location.hash"); !strings.Contains(at, "team") {
		t.Errorf("the address is %s", at)
	}
	p.do(chromedp.Reload())
	p.until("the address does not show the same", `document.querySelectorAll("main tbody tr").length === 1`)
	p.shows("demo-export")
}

// The overview says which rules are near their limit and how the store does, and leads from a change to what it changed.
func TestOverview(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := signedIn(t, s, 1280)
	const (
		near   = `/[1-9] rules? near (its|their) limit/.test(document.querySelector("main h1").innerText)`
		memory = `/memory, this process\s+[0-9.]+ ([KM]i)?B of/.test(document.querySelector("section[aria-label=Store]").innerText)`
	)
	p.provoke("no rule is near its limit", near, func() { s.guess("192.0.2.1") })
	p.until("the store's memory is not told", memory)
	s.patch("demo-export", `{"priority": 7}`)
	changed := `[...document.querySelectorAll("section[aria-label='What changed'] a")].find((a) => a.textContent === "revision 2")`
	p.click("the change is not told", changed)
	p.shows("+ priority: 7")
}

// Rules are counted by what they do, saved as a file and put in force from one, once the page has said what that changes.
// One rule is put back as it was, while the others stay.
func TestTransferOfRules(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.patch("demo-export", `{"enabled": false}`)
	p := signedIn(t, s, 1280)
	p.visit("rules")
	var counts struct {
		Total, Enabled, Disabled, Shadow int
	}
	s.ask(http.MethodGet, "/api/v1/rule-statistics", nil, &counts)
	if counts.Disabled != 1 || counts.Shadow != 1 {
		t.Fatalf("the statistics are %+v", counts)
	}
	card := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("main .cards li")].find((c) => c.innerText.replace(/\s+/g, " ") === %q)`, text)
	}
	p.until("all are not counted", there(card(fmt.Sprint(counts.Total, " in all"))))
	p.until("the last change is not told", `document.querySelector("main .cards").innerText.includes("last change")`)
	p.click("enabled rules are not counted", card(fmt.Sprint(counts.Enabled, " enabled"))+`?.querySelector("a")`)
	p.until("other rules are shown", fmt.Sprintf(`document.querySelectorAll("main tbody tr").length === %d`, counts.Enabled))
	p.click("shadow is not counted", card("1 in shadow")+`?.querySelector("a")`)
	p.until("other rules are shown", `document.querySelectorAll("main tbody tr").length === 1 && document.querySelector("main tbody").innerText.includes("demo-stricter")`)
	p.visit("rules")
	for _, disabled := range []int{0, 1} { // the rule is enabled, and disabled again
		p.click("the rule is not shown", `[...document.querySelectorAll("main tbody tr")].find((r) => r.innerText.includes("demo-export"))?.querySelector("button:enabled")`)
		p.until("the cards are not of now", there(card(fmt.Sprint(disabled, " disabled"))))
	}

	p.click("there is no export", `[...document.querySelectorAll("summary")].find((s) => s.textContent === "Export and import")`)
	p.save("Export all rules")
	p.until("nothing was saved", `window.saved?.includes("id: demo-export")`)
	choose := func(text string) {
		t.Helper()
		p.act("there is no import", `document.querySelector("input[type=file]")`, `(input) => {
			const files = new DataTransfer();
			files.items.add(new File([`+text+`], "new.yaml"));
			input.files = files.files;
			input.dispatchEvent(new Event("change", { bubbles: true }));
		}`)
	}
	choose(`window.saved`)
	p.shows("new.yaml changes nothing.")
	choose(`window.saved.replace("scope: per_ip", "scope: per_moon")`)
	p.shows("per_moon")
	choose(`"rules: [{id: only, scope: global, unlimited: true}, " + JSON.stringify({ ...{ id: "demo-export", scope: "global", unlimited: true } }) + "]"`)
	p.shows("adds 1 (only), changes 1 (demo-export), removes")
	p.press("Put them in force")
	p.shows("2 rules, revision")
	var now struct {
		Revision int64
		Rules    []map[string]any
	}
	s.ask(http.MethodGet, "/api/v1/rules", nil, &now)
	if len(now.Rules) != 2 {
		t.Fatalf("the rules are %+v", now.Rules)
	}

	p.visit(fmt.Sprint("revisions/", now.Revision))
	p.shows("imported from new.yaml")
	p.press("Undo this for demo-export alone")
	p.shows("It is as it was before.")
	s.ask(http.MethodGet, "/api/v1/rules", nil, &now)
	if len(now.Rules) != 2 || now.Rules[0]["id"] != "demo-export" || now.Rules[0]["limits"] == nil {
		t.Errorf("the rules are %+v", now.Rules)
	}
}

// The bits of networks that a rule counts are fields of the form, which writes them as a mapping, and per_ip without any.
func TestNetworksInTheForm(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := signedIn(t, s, 1280)
	p.visit("rules/demo-login")
	p.until("there are no bits", there(formField("Bits of IPv4")))
	p.fillForm("Bits of IPv4", "24")
	p.fillForm("Bits of IPv6", "48")
	text := `document.querySelector("textarea:not(form textarea)").value`
	p.until("the text has no network", text+`.includes("scope:\n  per_ip:\n    ipv4: 24\n    ipv6: 48\n")`)
	p.fillForm("Bits of IPv6", "")
	p.press("Enforce at once")
	p.until("the rule is not saved", "!("+there(button("Undo"))+")")
	if saved := s.rule("demo-login"); fmt.Sprint(saved.Scope) != "map[per_ip:map[ipv4:24]]" {
		t.Errorf("the rule is %+v", saved)
	}
	p.fillForm("Bits of IPv4", "")
	p.until("per_ip is not alone", text+`.includes("scope: per_ip\n")`)
	p.visit("rules")
	p.shows("per network (ipv4 /24)")
}

// Each fault of a rule stands beside its own field in the form, by the path that it names: in the group around it if it has no field, above the
// form if it has no group.
func TestFaultsBesideFields(t *testing.T) {
	t.Parallel()
	p := signedIn(t, ruled(t), 1280)
	p.visit("rules/new")
	p.until("there is no form", there(formField("ID")))
	p.write(`() => ` + fmt.Sprintf("%q", `id: "a b"
name: 3
priority: high
labels: {team: 1}
enabled: perhaps
colour: red
match:
  methods: ["GE T"]
  path: api
  host: "ex ample"
  except: [x]
  headers: {"": y}
  attributes: {plan: []}
scope: per_moon
missing: no
on_exceed: what
max_wait: 5
limits:
  - {algorithm: tokn, capacity: 5, refill: 1/s}
  - {algorithm: token_bucket, capacity: -1, refill: x}
  - {algorithm: fixed_window, limit: 5, window: 1, name: w}
  - {algorithm: token_bucket, capacity: 5, refill: 1/s, window: 1m}
`))
	field := func(label, member string, nth int) string {
		return fmt.Sprintf(`[...document.querySelectorAll("form.rule label")].filter((l) => l.firstChild.textContent === %q)[%d]?.querySelector(".fault")?.textContent.startsWith(%q)`, label, nth, member+" is ")
	}
	for label, member := range map[string]string{
		"ID": "id", "Name": "name", "Priority": "priority", "Labels, name: value": "labels.team", "Methods": "match.methods", "Hosts": "match.host",
		"Paths, one a line; none: all": "match.path", "Except, one a line": "match.except[0]", "Headers, name: value": "match.headers",
		"A request without it": "missing", "A request over the limit": "on_exceed", "Algorithm": "limits[0].algorithm",
	} {
		p.until(label+" has not its fault", field(label, member, 0))
	}
	p.until("capacity has not its fault", field("At once", "limits[1].capacity", 0))
	p.until("refill has not its fault", field("Refills", "limits[1].refill", 0))
	p.until("window has not its fault", field("per", "limits[2].window", 1))
	for group, fault := range map[string]string{
		"Rule": "enabled is", "Requests that it holds for": "match.attributes.plan is", "Who is one client": "scope is", "What each client may do": "limits[3]: window does not belong",
	} {
		p.until(group+" has not its fault", fmt.Sprintf(`[...document.querySelectorAll("form.rule fieldset fieldset")].some((f) => f.firstChild.textContent === %q && f.innerText.includes(%q))`, group, fault))
	}
	for _, fault := range []string{`"colour" is not a name`, "max_wait is"} { // it has no field as nothing waits
		p.until("a fault is lost", fmt.Sprintf(`[...document.querySelectorAll("form.rule > fieldset > .fault")].some((f) => f.textContent.startsWith(%q))`, fault))
	}
}
