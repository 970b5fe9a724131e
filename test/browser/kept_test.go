package browser

import "testing"

const lostNotice = "are lost when it ends"

// Whoever edits rules that are lost with the process is told so, and nobody else.
func TestRulesThatAreLost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := open(t, s, 1280)
	p.signIn(writer)
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
