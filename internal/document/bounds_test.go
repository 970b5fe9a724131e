package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
)

// shortText bounds the texts that are parsed under the race detector.
const shortText = 100_000

func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// indented is n mappings in each other, each in a line of its own.
func indented(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// What the parser would need too much time or memory for is refused with its place before the parser has taken it in.
func TestBounds(t *testing.T) {
	const more = 1<<17 + 1000 // since the parser reads ahead
	const signs, inBrackets = "too many names and values; allowed: 500000", "too many names and values in brackets or braces; allowed: 131072"
	for name, c := range map[string]struct{ text, says string }{
		"brackets":          {strings.Repeat("[", 65), "y.yaml:1:65: nested too deep"},
		"many brackets":     {strings.Repeat("[", 40_000), "y.yaml:1:65: nested too deep"},
		"braces":            {strings.Repeat("{a: ", 65) + strings.Repeat("}", 65), "y.yaml:1:257: nested too deep"},
		"items on a line":   {strings.Repeat("- ", 65) + "1", "y.yaml:1:129: nested too deep"},
		"names on a line":   {strings.Repeat("? ", 65) + "1", "y.yaml:1:129: nested too deep"},
		"indented":          {indented(65), "y.yaml:65:66: nested too deep"},
		"mixed":             {"a:\n  - " + strings.Repeat("[", 63) + strings.Repeat("]", 63), "y.yaml:2:67: nested too deep"},
		"colons":            {"[a:\n b:\n  c:\n   d]", "y.yaml:2:3: not YAML: did not find expected ',' or ']' while parsing a flow sequence that begins at 1:1"},
		"directive":         {"%TAG !a! b\n---\na", "y.yaml:1:1: a directive; allowed: none"},
		"later directive":   {"a\n...\n# b\n%YAML 1.2\n---\nb", "y.yaml:4:1: a directive; allowed: none"},
		"odd line":          {"a\n...\u0085%TAG !a! b\n---\na", "y.yaml:2:5: a directive"},
		"signs":             {strings.Repeat("- a\n", 500_001), "y.yaml:500001:1: " + signs},
		"names":             {strings.Repeat("k: 1\n", 500_001), "y.yaml:500001:2: " + signs},
		"left out":          {strings.Repeat("- a:\n", 250_001), "y.yaml:250001:1: " + signs},
		"tags":              {"- " + strings.Repeat("!a ", 500_000), "y.yaml:1:1500000: " + signs},
		"in brackets":       {"[" + strings.Repeat("a,", more) + "]", "y.yaml:1:262"},
		"in inner ones":     {"- [" + strings.Repeat("[],", more) + "]", inBrackets},
		"after a quote":     {"- ['[', \"]\", " + strings.Repeat("a,", more) + "]", inBrackets},
		"open":              {"[" + strings.Repeat("a,", more), inBrackets},
		"split by comments": {"[" + strings.Repeat("a #\n", more) + "]", inBrackets},
		"quotes":            {"[" + strings.Repeat("''", more) + "]", inBrackets},
		"document ends":     {"[" + strings.Repeat("\n...", more) + "]", inBrackets},
	} {
		if testing.Short() && len(c.text) > shortText {
			continue
		}
		var faults document.Faults
		document.Parse("y.yaml", []byte(c.text), 1<<23, &faults)
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), c.says) {
			t.Errorf("%s: %.300v; want one fault: %s", name, faults, c.says)
		}
	}
	var faults document.Faults
	document.Parse("y.yaml", []byte("12345"), 4, &faults)
	document.Parse("y.yaml", []byte(strings.Repeat(" ", 4<<20+1)), 1<<23, &faults)
	document.Parse("y.yaml", []byte(strings.Repeat(" ", 4<<20)), 1<<23, &faults)
	document.Parse("y.yaml", []byte("["+strings.Repeat(" ", 4<<20)+"]"), 1<<23, &faults)
	if got := faults.Error(); got != "stint: y.yaml: the document has 5 bytes; allowed: at most 4\n"+
		"y.yaml: the document has 4194305 bytes; allowed: at most 4194304 as YAML, 8388608 as JSON" {
		t.Error(got)
	}
}

// What is within the bounds is read, lists however long they are.
func TestWithinBounds(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int // items or names
	}{
		"brackets":        {strings.Repeat("[", 64) + strings.Repeat("]", 64), 1},
		"items":           {strings.Repeat("- ", 64) + "1", 1},
		"indented":        {indented(64), 1},
		"names":           {lines(100_000, "k%d: 1\n"), 100_000},
		"names in lists":  {lines(400, "- k%d: 1\n  a: {b: 1, c: 2, d: 3}\n  e:\n    f: 1\n    g:\n    - h: 1\n"), 400},
		"list":            {lines(100_000, "- id: rule-%d\n  scope: ip\n"), 100_000},
		"in brackets":     {"[" + lines(20_000, "{id: rule-%d, scope: ip},\n") + "]", 20_000},
		"items in braces": {lines(80_000, "- {id: rule-%d, scope: ip}\n"), 80_000},
		"left out":        {strings.Repeat("- a:\n", 1000), 1000},
		"no items":        {"- 1\n-\n- 2\n", 3},
		"lists":           {lines(300, "k%d:\n- 1\nl%[1]d:\n  - 1\nm%[1]d:\n  2\n"), 900},
		"one colon":       {"[a: 1, {b: 1, \"c\": [d: {e: f}], g: http://h:1}, \"i:j\"]", 3},
		"last":            {"[{a: 1,}, [1,],\n{\n\"b\":1\n,\n},\n]", 3},
		"one JSON line":   {"[" + strings.Repeat(`{"id":"a","labels":{"b":"c"},"limits":[{"capacity":5}]},`, 10_000) + "{}]", 10_001},
		"items below":     {strings.Repeat("-\n  a: 1\n- # none\n  - 1\n", 5000), 10_000},
		"of a mapping":    {"rules:\n" + lines(100_000, "- {id: rule-%d}\n"), 1},
		"no directive":    {"a: 100%\nb: |\n  %TAG\n", 2},
		"lists in turn":   {strings.Repeat("- [1]\n- 1\n- a: 1\n", 60_000), 180_000},
	} {
		if testing.Short() && len(c.text) > shortText {
			continue
		}
		var faults document.Faults
		v := document.Parse("y.yaml", []byte(c.text), 1<<23, &faults)
		if len(faults) > 0 || len(v.Items)+len(v.Fields) != c.want {
			t.Errorf("%s: %d items, %d names, %.300v; want %d", name, len(v.Items), len(v.Fields), faults, c.want)
		}
	}
}

// Whatever is in 4 MB, reading it takes less than 400 MB in all, most of which is freed on the way.
func TestMemory(t *testing.T) {
	size := 4_000_000
	if testing.Short() {
		size = shortText
	}
	for _, c := range [][3]string{
		{"", "k%d: 1\n"},
		{"", "%d:\n"},
		{"", "- - -\n"},
		{"- ", "!a "},
		{"[", "a,", "]"},
		{"[", "a,       ", "]"},
		{"[", "{a:},", "]"},
		{"[", "a #b\n"},
		{"[", "...\n"},
		{"[", "&a%d a,"},
		{"", "%%TAG !%d! a\n"},
		{"[", "0,\n", "0]"},
		{"[", "[],", "0]"},
		{"{", "\"k%d\":0,", "\"\":0}"},
	} {
		text := c[0] + strings.Repeat(c[1], size/len(c[1])) + c[2]
		if strings.Contains(c[1], "%") {
			text = c[0] + lines(size/(len(c[1])+4), c[1]) + c[2]
		}
		used, _, _ := allocated("y.yaml", text)
		if used > 400<<20 {
			t.Errorf("%q: %d bytes need %d MB", c, len(text), used>>20)
		}
		t.Logf("%q: %d bytes need %d MB", c, len(text), used>>20)
	}
}

// JSON takes memory by its bytes: at most 50 for each.
func TestMemoryOfJSON(t *testing.T) {
	size := 4_000_000
	if testing.Short() {
		size = shortText
	}
	for _, c := range [][3]string{
		{"[", "0,      ", "0]"},
		{"[", "[],             ", "0]"},
		{"[", "{\"\":0},         ", "0]"},
		{"{", "\"%d\":0,", "\"\":0}"},
		{"[\"", "\\n", "\"]"},
		{"[\"", "\\ud83d\\ude00", "\"]"},
	} {
		text := c[0] + strings.Repeat(c[1], size/len(c[1])) + c[2]
		if strings.Contains(c[1], "%") {
			text = c[0] + lines(size/(len(c[1])+4), c[1]) + c[2]
		}
		used, _, err := allocated("r.json", text)
		if used > 50*uint64(len(text)) || err != nil {
			t.Errorf("%q: %d bytes need %d MB: %.100v", c, len(text), used>>20, err)
		}
		t.Logf("%q: %d bytes need %d MB", c, len(text), used>>20)
	}
}
