package browser

import (
	"fmt"
	"strings"
	"testing"
)

// A plot shows the values under the cursor, by the mouse and by the keyboard, and nothing of the time before the process started.
func TestValuesOfPlots(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := signedIn(t, s, 1280)
	const plot, values = `document.querySelector(".plot")`, `document.querySelector(".plot .values").innerText`
	p.provoke("no plot is shown", there(plot), func() { s.guess("192.0.2.1") })
	// A key is pressed until it has done what it is for: the plot may be drawn anew, or not be laid out yet.
	press := func(what, key, shown string) {
		p.t.Helper()
		p.provoke(what, shown, func() {
			p.act("there is no plot", plot, fmt.Sprintf(`(e) => { e.focus(); e.dispatchEvent(new KeyboardEvent("keydown", {key: %q, bubbles: true})); }`, key))
		})
	}
	press("what is not known is shown", "Home", fmt.Sprintf(`/^\d\d:\d\d:\d\d\s+not known: before the start$/.test(%s)`, values))
	press("no value is shown", "End", fmt.Sprintf(`/^\d\d:\d\d:\d\d\s+offered [0-9.]+\s+admitted [0-9.]+\s+denied [0-9.]+/.test(%s)`, values))
	press("the values stay", "Escape", values+` === ""`)
	p.provoke("the mouse shows no value", values+`.includes("offered")`, func() {
		p.act("there is no plot", `document.querySelector(".plot .u-over")`, `(e) => {
			const box = e.getBoundingClientRect();
			for (const kind of ["mouseenter", "mousemove"]) e.dispatchEvent(new MouseEvent(kind, {clientX: box.right - 2, clientY: box.top + 9, bubbles: true}));
		}`)
	})

	p.visit("playground")
	p.until("the algorithms are not shown", `document.querySelectorAll(".plot").length === 5`)
	press("not all plots show the values of the time", "Home",
		`new Set([...document.querySelectorAll(".plot .values strong")].map((e) => e.innerText)).size === 1 && document.querySelectorAll(".plot .values strong").length === 5`)
	press("the values stay", "Escape", `document.querySelectorAll(".plot .values strong").length === 0`)
}

// Times have 24 hours and are UTC, which a page says once.
func TestTimes(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	p := signedIn(t, s, 1280)
	p.provoke("no denial is shown", shown("Last denials"), func() { s.guess("192.0.2.1") })
	for _, place := range []string{"", "denials", "client/192.0.2.1", "rules", "revisions"} {
		p.visit(place)
		p.until("no time is shown", `[...document.querySelectorAll("main time")].some((e) => /^(\w+ \d+, )?\d\d:\d\d:\d\d$/.test(e.innerText))`)
		if n := strings.Count(p.text(), "UTC"); n != 1 {
			t.Errorf("%q says UTC %d times", place, n)
		}
		if text := p.text(); strings.Contains(text, " AM") || strings.Contains(text, " PM") {
			t.Errorf("%q has times of 12 hours:\n%s", place, text)
		}
	}
}
