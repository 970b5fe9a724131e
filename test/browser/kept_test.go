package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

const lostNotice = "are lost when it ends"

// Whoever edits rules that are lost with the process is told so, and nobody else.
func TestRulesThatAreLost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := signedIn(t, s, 1280)
	p.visit("rules")
	p.shows(lostNotice)
	p.visit("denials")
	p.until("the notice goes with the page", "!"+shown(lostNotice))
	other := open(t, s, 1280)
	other.signIn(reader)
	other.visit("rules")
	other.shows("There are no rules yet")
	if eval[bool](other, shown(lostNotice)) {
		t.Error("who may not edit is told that edits are lost")
	}
}

// Rules from files are shown, and copied as YAML, and nothing offers to edit them.
func TestRulesFromFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	const rules = "rules: [{id: login, match: {path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 3, window: 1h}]}]"
	must.Do(t, os.WriteFile(file, []byte(rules), 0o600))
	s := serve(t, "--rules-from", file)
	p := signedIn(t, s, 1280)
	buttons := func(page, shows, want string) {
		t.Helper()
		p.visit(page)
		p.shows(shows)
		p.shows("Rules come from the files of " + file + ".")
		all := `[...document.querySelectorAll("main button, main input[type=file]")].map((b) => b.textContent || b.type).join()`
		p.until("the buttons of "+page, fmt.Sprintf("%s === %q", all, want))
	}
	buttons("rules", "1 rule", "Copy as YAML")
	p.shows("last loaded")
	buttons("rules/login", "Reset all clients", "Copy as YAML,Reset all clients of this rule")
	p.shows("None is kept, as rules come from the files of")
	p.until("the rule can't be typed over",
		`document.querySelector("main fieldset").disabled && document.querySelector("main textarea[readonly]") !== null`)
	p.act("no copy", button("Copy as YAML"),
		`(b) => { Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => { window.copied = text; }}}); b.click(); }`)
	p.shows("copied")
	if got := eval[string](p, "window.copied"); got != "- id: login\n  match:\n    path: /login\n  scope: per_ip\n  limits:\n    - algorithm: fixed_window\n      limit: 3\n      window: 1h\n" {
		t.Errorf("the copy is\n%s", got)
	}
	buttons("revisions", "No revision yet", "")
	buttons("client/192.0.2.1", "What it has left", "Look up")
}
