package file_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/notation"
)

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

// What the parser needs too much time or memory for is refused before it is parsed, with its place.
func TestBounds(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"brackets":         {strings.Repeat("[", 65), "y.yaml:1:65: nested too deep"},
		"many brackets":    {strings.Repeat("[", 40_000), "y.yaml:1:65: nested too deep"},
		"braces":           {strings.Repeat("{a: ", 65) + strings.Repeat("}", 65), "y.yaml:1:257: nested too deep"},
		"items on a line":  {strings.Repeat("- ", 65) + "1", "y.yaml:1:129: nested too deep"},
		"values on a line": {strings.Repeat("a: ", 65) + "1", "y.yaml:1:194: nested too deep"},
		"indented":         {indented(65), "y.yaml:65:66: nested too deep"},
		"mixed":            {"a:\n  - " + strings.Repeat("[", 63), "y.yaml:2:67: nested too deep"},
		"names":            {lines(40_000, "k%d: 1\n"), "y.yaml:1001:6: too many names"},
		"names in braces":  {"- {" + lines(40_000, "k%d: 1, ") + "}", "y.yaml:1:"},
		"names of a rule":  {"- id: a\n  labels:\n" + lines(1001, "    k%d: 1\n"), "y.yaml:1003:10: too many names"},
		"documents":        {strings.Repeat("---\na\n", 20_000), "y.yaml:129:1: too many documents"},
		"names on a line":  {strings.Repeat("? ", 65) + "1", "y.yaml:1:33: too many anchors, aliases, tags and names after a ?; allowed: none"},
		"odd names":        {lines(1001, "? k%d\n"), "y.yaml:17:1: too many anchors, aliases, tags and names after a ?"},
		"names with tags":  {lines(600, "&%d k: 1\n!b%[1]d k: 1\n"), "y.yaml:17:1: too many anchors, aliases, tags and names after a ?"},
		"tags":             {strings.Repeat("- !a\n", 1000), "y.yaml:17:3: too many anchors, aliases, tags and names after a ?"},
		"left out":         {strings.Repeat("- a:\n", 1002), "y.yaml:1001:4: too many names without a value; allowed: 1000"},
		"in braces":        {"[" + strings.Repeat("{a},", 1001) + "]", "y.yaml:1:4004: too many names without a value"},
		"with colons":      {"[" + strings.Repeat("{a: , b:}, ", 501) + "]", "too many names without a value"},
		"in brackets":      {"[\n" + strings.Repeat(" a:\n,", 1001) + "]", "y.yaml:1003:1: too many names without a value"},
		"no item":          {"- 1\n-\n- 2\n", "y.yaml:2:1: an item without a value; allowed: a value"},
		"item of a list":   {"-\na:\n-\na:\n", "y.yaml:1:1: an item without a value"},
		"dashes":           {"[\n- 1\n]", "y.yaml:2:1: an item with - in brackets"},
		"colons":           {"[a:\n b:\n  c:\n   d]", "y.yaml:2:3: a second : before a comma"},
		"quoted colons":    {"{\"a\":\n \"b\":\n  \"c\": d}", "y.yaml:2:5: a second : before a comma"},
		"parts":            {"[" + strings.Repeat("1,", 1<<20) + "]", "y.yaml:1:1048577: too many names, values and signs; allowed: 1048576"},
		"parts in braces":  {"[" + strings.Repeat("{a:b},", 180_000) + "]", "y.yaml:1:1048577: too many names, values and signs; allowed: 1048576"},
		"empty lines":      {"- |\n  a\n" + strings.Repeat(" \n", 21) + "- b\n", "y.yaml:24:1: too many empty lines in a row; allowed: 20"},
		"tabs":             {"- 1\n- \"" + strings.Repeat("\t", 65) + "a\"", "y.yaml:2:68: too many tabs in a line; allowed: 64"},
		"less":             {"- " + strings.Repeat("<", 65), "y.yaml:1:67: too many signs < in a row; allowed: 64"},
		"long names":       {strings.Repeat("a", 10_000) + ":\n" + strings.Repeat("- 1\n", 20_000), "too much in mappings of long names"},
	} {
		var faults notation.Faults
		file.YAML("y.yaml", []byte(c.text), &faults)
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), c.says) {
			t.Errorf("%s: %v; want one fault: %s", name, faults, c.says)
		}
	}
}

// What is within the bounds is read, lists however long they are.
func TestWithinBounds(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want int // items or names
	}{
		"brackets":       {strings.Repeat("[", 64) + strings.Repeat("]", 64), 1},
		"items":          {strings.Repeat("- ", 64) + "1", 1},
		"indented":       {indented(64), 1},
		"names":          {lines(1000, "k%d: 1\n"), 1000},
		"names in lists": {lines(400, "- k%d: 1\n  a: {b: 1, c: 2, d: 3}\n  e:\n    f: 1\n    g:\n    - h: 1\n"), 400},
		"list":           {lines(100_000, "- id: rule-%d\n  scope: ip\n"), 100_000},
		"in brackets":    {"[" + lines(100_000, "{id: rule-%d, scope: ip},\n") + "]", 100_000},
		"left out":       {strings.Repeat("- a:\n", 1000), 1000},
		"lists":          {lines(300, "k%d:\n- 1\nl%[1]d:\n  - 1\nm%[1]d:\n  2\n"), 900},
		"one colon":      {"[a: 1, {b: 1, \"c\": [d: {e: f}], g: http://h:1}, \"i:j\"]", 3},
		"last":           {"[{a: 1,}, [1,],\n{\n\"b\":1\n,\n},\n]", 3},
		"one JSON line":  {"[" + strings.Repeat(`{"id":"a","labels":{"b":"c"},"limits":[{"capacity":5}]},`, 10_000) + "{}]", 10_001},
		"items below":    {strings.Repeat("-\n  a: 1\n- # none\n  - 1\n", 5000), 10_000},
		"of a mapping":   {"rules:\n" + lines(100_000, "- {id: rule-%d}\n"), 1},
	} {
		var faults notation.Faults
		v := file.YAML("y.yaml", []byte(c.text), &faults)
		if len(faults) > 0 || len(v.Items)+len(v.Fields) != c.want {
			t.Errorf("%s: %d items, %d names, %v; want %d", name, len(v.Items), len(v.Fields), faults, c.want)
		}
	}
}

// A text of a given size takes memory by its size, whatever is in it.
func TestMemory(t *testing.T) {
	const size = 64 << 10
	for name, unit := range map[string]string{
		"brackets": strings.Repeat("[", 63) + strings.Repeat("]", 63) + ",", "items": strings.Repeat("- ", 64) + "1\n",
		"open": "[", "braces": "{a: ", "documents": "---\na\n", "names": "a%d: 1\n", "questions": "? ",
	} {
		text := strings.Repeat(unit, size/len(unit))
		if name == "brackets" {
			text = "[" + text + "]"
		}
		if strings.Contains(unit, "%d") {
			text = lines(size/len(unit), unit)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _ = file.Parse("y.yaml", []byte(text))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 2000*size {
			t.Errorf("%s: %d bytes need %d MB", name, len(text), used>>20)
		} else {
			t.Logf("%s: %d bytes need %d MB", name, len(text), used>>20)
		}
	}
}
