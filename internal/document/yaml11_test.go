package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
)

// read11 reads a text as [document.ParseYAML11] does, up to a mebibyte.
func read11(text string) (v document.Value, more document.Position, faults document.Faults) {
	v, more = document.ParseYAML11("y.yaml", []byte(text), 1<<20, &faults)
	return v, more, faults
}

// The booleans of YAML 1.1 are those, in its spellings and without quotes, with the text that was written.
func TestYAML11Booleans(t *testing.T) {
	for text, want := range map[string]string{
		"y": "boolean y", "Y": "boolean Y", "yes": "boolean yes", "Yes": "boolean Yes", "YES": "boolean YES", "on": "boolean on", "ON": "boolean ON",
		"true": "boolean true", "True": "boolean True", "n": "boolean n", "No": "boolean No", "off": "boolean off", "Off": "boolean Off", "FALSE": "boolean FALSE",
		"yEs": "text yEs", "oN": "text oN", "tRUE": "text tRUE", "yes please": "text yes please", "'yes'": "text yes", `"on"`: "text on", "|\n  yes": "text yes",
		">-\n  on": "text on", "1": "integer 1", "~": "null",
	} {
		if v, _, faults := read11("a: " + text + "\n"); shown(v) != "{a: "+want+"}" || len(faults) > 0 {
			t.Errorf("%q is %q, %v; want %q", text, shown(v), faults, want)
		}
	}
}

// Aliases are the values of their anchors, and merge keys the fields that they merge, in the order in which they are read.
func TestYAML11Aliases(t *testing.T) {
	for text, want := range map[string]string{
		"a: &x [b, {c: d}]\ne: *x\nf: [*x]":                          "{a: [text b, {c: text d}], e: [text b, {c: text d}], f: [[text b, {c: text d}]]}",
		"a: &x 5\nb: *x\nc: &x 6\nd: *x":                             "{a: integer 5, b: integer 5, c: integer 6, d: integer 6}",
		"&k a: b\nc: *k\nd: {*k : e}":                                "{a: text b, c: text a, d: {a: text e}}",
		"a: &x yes\nb: *x":                                           "{a: boolean yes, b: boolean yes}",
		"a: &x {b: 1}\nc: {<<: *x, d: 2}":                            "{a: {b: integer 1}, c: {b: integer 1, d: integer 2}}",
		"a: &x {b: 1}\nc: {d: 2, <<: *x, b: 3}":                      "{a: {b: integer 1}, c: {d: integer 2, b: integer 1, b: integer 3}}",
		"a: [&x {b: 1}, &y {b: 2}]\nc: {<<: [*x, *y, {e: f}], d: 3}": "{a: [{b: integer 1}, {b: integer 2}], c: {e: text f, b: integer 2, b: integer 1, d: integer 3}}",
		"{<<: {<<: {a: 1}, b: 2}, c: 3, <<: {d: 4}}":                 "{a: integer 1, b: integer 2, c: integer 3, d: integer 4}",
		`{"<<": {a: 1}}`:                                             "{<<: {a: integer 1}}",
	} {
		if v, more, faults := read11(text); shown(v) != want || len(faults) > 0 || more != (document.Position{}) {
			t.Errorf("%q is %q, %v; want %q", text, shown(v), faults, want)
		}
	}
	v, _, _ := read11("a: &x [b]\nc: *x")
	if at := v.Place("c"); at.String() != "y.yaml:2:4" {
		t.Errorf("the alias is at %v", at)
	}
	if at := v.Place("c[0]"); at.String() != "y.yaml:1:8" {
		t.Errorf("what it stands for is at %v", at)
	}
}

// The first document is read, whatever comes behind it; where that begins is told.
func TestYAML11FirstDocument(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\n":                "{a: integer 1} ",
		"---\na: 1\n...\n":      "{a: integer 1} ",
		"a: 1\n---\nb: 2\n":     "{a: integer 1} y.yaml:3:1",
		"a: 1\n---\n---\n- b\n": "{a: integer 1} y.yaml:4:1",
		"a: 1\n---\nb: [\n":     "{a: integer 1} y.yaml:4:1",
		"---\n---\na: 1\n":      "{a: integer 1} ",
	} {
		v, more, faults := read11(text)
		if got := fmt.Sprint(shown(v), " ", more); got != want || len(faults) > 0 {
			t.Errorf("%q is %q, %v; want %q", text, got, faults, want)
		}
	}
}

func TestYAML11Faults(t *testing.T) {
	for text, want := range map[string]string{
		"a: !!binary x":                "1:4: tags are not allowed",
		"a: &x !t b\nc: *x":            "1:4: tags are not allowed",
		"a: &x [*x]":                   `1:8: the value of the anchor "x" contains itself`,
		"a: &x {b: {c: *x}}":           `1:15: the value of the anchor "x" contains itself`,
		"a: &x {<<: *x}":               `1:12: the value of the anchor "x" contains itself`,
		"a: *x":                        "1:4: not YAML: unknown anchor 'x' referenced",
		"<<: 5":                        "1:5: << is 5; allowed: a mapping, or a list of mappings",
		"<<: [{a: 1}, b]":              "1:5: << is \"b\"; allowed: a mapping, or a list of mappings",
		"? [a]\n: b":                   "1:3: a name must be a plain text",
		"a: &x [b]\nc: {*x : d}":       "2:5: a name must be a plain text",
		"a: 1\na: 2":                   `2:1: "a" is given twice, first in line 1`,
		"a: 1\n<<: {a: 2}\nb: 3\na: 4": `4:1: "a" is given twice, first in line 1`,
		"%YAML 1.1\n---\na: 1":         "1:1: a directive; allowed: none",
	} {
		_, _, faults := read11(text)
		if got := strings.ReplaceAll(faults.Error(), "y.yaml:", ""); strings.ReplaceAll(got, "stint: ", "") != want {
			t.Errorf("%q: got\n%s\nwant\n%s", text, got, want)
		}
	}
}

// Aliases stand for 400,000 values at most, however they are in each other, and for no more depth than a text may have.
func TestYAML11Bounds(t *testing.T) {
	laughs := "a0: &a0 [lol]\n"
	merges := "a0: &a0 {k: v}\n"
	deep := "a0: &a0 [x]\n"
	for i := 1; i <= 12; i++ {
		before := fmt.Sprintf("*a%d", i-1)
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(before+", ", 10), ", "))
		merges += fmt.Sprintf("a%d: &a%d {<<: [%s]}\n", i, i, strings.TrimSuffix(strings.Repeat(before+", ", 10), ", "))
	}
	for i := 1; i <= 70; i++ {
		deep += fmt.Sprintf("a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	wide := func(n int) string { // n aliases of 1,000 values, and the list that they are in
		return "a: &a [" + strings.Repeat("b,", 999) + "]\nc: [" + strings.Repeat("*a,", n) + "]"
	}
	for name, c := range map[string]struct{ text, says string }{
		"a billion laughs": {laughs, "y.yaml:7:10: the aliases stand for too many values; allowed: 400000"},
		"a billion merges": {merges, "the aliases stand for too many values; allowed: 400000"},
		"a long list":      {wide(401), "the aliases stand for too many values; allowed: 400000"},
		"depth":            {deep, "y.yaml:64:12: nested too deep; allowed: 64 lists and mappings in each other"},
	} {
		_, _, faults := read11(c.text)
		if len(faults) == 0 || !strings.Contains(faults.Error(), c.says) || len(faults) > 1 && name != "depth" {
			t.Errorf("%s: %.300v; want %s", name, faults.Err(), c.says)
		}
	}
	if v, _, faults := read11(wide(400)); len(faults) > 0 || len(v.Fields[1].Value.Items) != 400 {
		t.Errorf("400 aliases of 1,000 values: %.300v", faults.Err())
	}
}

// FuzzParseYAML11 looks for texts that the reading trips over, or that become too long.
func FuzzParseYAML11(f *testing.F) {
	for _, seed := range []string{
		"a: &x [*x]", "<<: {a: b}", "a: &x {b: &y [c]}\nd: {<<: [*x, *x], e: *y}", "a: 1\n---\nb: [", "&k a: b\n*k : c", "a: &a !t b\nc: *a", "? &x [a]\n: *x",
		"a: &a [l]\nb: &b [*a, *a]\nc: &c [*b, *b]", "yes: on", "<<: &x [{a: b}]\nc: {<<: *x}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return // so that many texts are tried
		}
		var faults document.Faults
		v, _ := document.ParseYAML11("f.yaml", data, 1<<14, &faults)
		for _, fault := range faults {
			if fault.Position.Source != "f.yaml" || fault.Position.Line < 1 || fault.Position.Column < 1 || fault.Message == "" {
				t.Fatalf("a fault without place or words: %#v", fault)
			}
		}
		if n := count(v); n > 400_000+1<<14 {
			t.Fatalf("%d values", n)
		}
	})
}

// count is how many values there are.
func count(v document.Value) int {
	n := 1
	for _, item := range v.Items {
		n += count(item)
	}
	for _, f := range v.Fields {
		n += count(f.Value)
	}
	return n
}
