package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/testtable"
)

// read11 reads a text as [document.ParseYAML11] does, up to a mebibyte.
func read11(text string) (v document.Value, more document.Position, faults document.Faults) {
	v, more = document.ParseYAML11("y.yaml", []byte(text), 1<<20, &faults)
	return v, more, faults
}

// The booleans of YAML 1.1 are those, in its spellings and without quotes, with the text that was written.
func TestYAML11Booleans(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/yaml11_scalars.txt") {
		check11(t, "a: "+test.Text+"\n", "{a: "+test.Want+"}", "")
	}
}

// check11 compares what is read, and where more begins; "" is nowhere.
func check11(t *testing.T, text, want, behind string) {
	t.Helper()
	v, more, faults := read11(text)
	places := (more == document.Position{}) == (behind == "") && (behind == "" || more.String() == behind)
	if !places || shown(v) != want || len(faults) > 0 {
		t.Errorf("%q is %q, more at %v, %v; want %q, more at %s", text, shown(v), more, faults, want, behind)
	}
}

// Aliases are the values of their anchors, and merge keys the fields that they merge, in the order in which they are read.
// Of several documents the first is read; where the second begins is told.
func TestYAML11(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want, More string }](t, "testdata/yaml11.txt") {
		check11(t, test.Text, test.Want, test.More)
	}
	v, _, _ := read11("a: &x [b]\nc: *x")
	if at := v.Place("c"); at.String() != "y.yaml:2:4" {
		t.Errorf("the alias is at %v", at)
	}
	if at := v.Place("c[0]"); at.String() != "y.yaml:1:8" {
		t.Errorf("what it stands for is at %v", at)
	}
}

func TestYAML11Faults(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/yaml11_faults.txt") {
		_, _, faults := read11(test.Text)
		if got := strings.ReplaceAll(faults.Error(), "y.yaml:", ""); strings.ReplaceAll(got, "stint: ", "") != test.Want {
			t.Errorf("%q: got\n%s\nwant\n%s", test.Text, got, test.Want)
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
