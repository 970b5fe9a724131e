package domains_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

var rewrite = flag.Bool("rewrite", false, "write what is said of documents into testdata/faults.txt")

// below indents a descriptor's fields, to be one of a document.
func below(text string) string {
	return "domain: d\ndescriptors:\n  - key: k\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}

// In testdata/faults.txt each document stands under what is told by it, four blanks in, and before what is said of it,
// which -rewrite puts in place: all its faults, each with its place and what is allowed, or what was read, and warnings of
// names that have no effect at their place. The faults are those of the reference service, and of what is added. Scalars,
// numbers, booleans, aliases and merge keys are read as that service's library decodes them, or refused.
func TestFaults(t *testing.T) {
	const path = "testdata/faults.txt"
	text := must.Get(os.ReadFile(path))(t)
	var out strings.Builder
	for section := range strings.SplitSeq(strings.TrimPrefix(string(text), "# "), "\n# ") {
		name, rest, _ := strings.Cut(section+"\n", "\n")
		var document, want string
		for line := range strings.Lines(rest) {
			if below, ok := strings.CutPrefix(line, "    "); ok {
				document += below
			} else {
				want += line
			}
		}
		domain, warnings, err := domains.Parse("f.yaml", []byte(document))
		var said string
		if err != nil {
			said = strings.TrimPrefix(err.Error(), "stint: ") + "\n"
		} else {
			said = fmt.Sprintf("domain %q from %s\n%s", domain.Name, domain.From, shown(t, "descriptors", domain.Descriptors))
		}
		for _, warning := range warnings {
			said += warning + "\n"
		}
		same := *rewrite || strings.Trim(said, "\n") == strings.Trim(want, "\n")
		if !same || (err == nil) != (domain != nil) || err != nil && warnings != nil {
			t.Errorf("%+v, %v, %v; want %s of\n%s", domain, warnings, err, want, section)
		}
		if document != "" {
			document = "    " + strings.ReplaceAll(strings.TrimSuffix(document, "\n"), "\n", "\n    ") + "\n"
		}
		fmt.Fprintf(&out, "# %s\n%s%s", name, document, said)
	}
	if *rewrite {
		must.Do(t, os.WriteFile(path, []byte(out.String()), 0o600))
	}
}

// shown are descriptors, each in a line with its place, and a line of its limit, without what is not set.
func shown(t *testing.T, place string, list []domains.Descriptor) (text string) {
	for i, d := range list {
		place := fmt.Sprintf("%s[%d]", place, i)
		text += place + ":" + set(t, d)
		if d.RateLimit != nil {
			text += place + ".rate_limit:" + set(t, *d.RateLimit)
		}
		text += shown(t, place+".descriptors", d.Descriptors)
	}
	return text
}

// set are the fields of a value that have one, in a line.
func set(t *testing.T, value any) (text string) {
	for field, v := range reflect.ValueOf(value).Fields() {
		switch x := v.Interface().(type) {
		case []domains.Descriptor, *domains.RateLimit:
		case map[string]any, string, []string:
			if !v.IsZero() {
				text += fmt.Sprintf(" %s %s", field.Name, must.Get(json.Marshal(x))(t))
			}
		default:
			if !v.IsZero() {
				text += fmt.Sprintf(" %s %v", field.Name, x)
			}
		}
	}
	return text + "\n"
}

// Whatever other documents there are, a domain is recognized by its own.
func TestRecognize(t *testing.T) {
	if !domains.Recognize([]byte("domain: &d a\ndescriptors: [{key: *d}]\n---\n[]\n")) {
		t.Error("a domain with an anchor and a second document is not recognized")
	}
}

// A document has bounds: of its depth and of its descriptors.
func TestBounds(t *testing.T) {
	nested := func(levels int) []byte {
		text := "domain: d\n"
		for i := range levels {
			indent := strings.Repeat("  ", i)
			text += indent + "descriptors:\n" + indent + "- key: k\n"
		}
		return []byte(text)
	}
	if _, _, err := domains.Parse("f.yaml", nested(30)); err != nil {
		t.Errorf("30 levels: %v", err)
	}
	if _, _, err := domains.Parse("f.yaml", nested(31)); err == nil || !strings.Contains(err.Error(), "30 levels at most") {
		t.Errorf("31 levels: %v", err)
	}
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range 200_001 {
		fmt.Fprintf(&text, "- key: %d\n", i)
	}
	if _, _, err := domains.Parse("f.yaml", []byte(text.String())); err == nil || !strings.Contains(err.Error(), "200000 in all") {
		t.Errorf("too many descriptors: %.200v", err)
	}
}

// Domains of one name are a fault unless they are merged, and then what they both have is.
func TestValidate(t *testing.T) {
	one := &domains.Domain{Name: "d", From: "1.yaml", Descriptors: []domains.Descriptor{{Key: "a", Value: "b"}, {Key: "c"}}}
	other := &domains.Domain{Name: "d", From: "2.yaml", Descriptors: []domains.Descriptor{{Key: "a_b"}, {Key: "e"}}}
	third := &domains.Domain{Name: "d", From: "3.yaml", Descriptors: []domains.Descriptor{{Key: "e"}}}
	none := &domains.Domain{From: "4.yaml"}
	for _, test := range []struct {
		list  []*domains.Domain
		merge bool
		want  []string
	}{
		{[]*domains.Domain{one}, false, nil},
		{[]*domains.Domain{one, other, none}, false, []string{`2.yaml: the domain "d" is given twice, first in 1.yaml`, "4.yaml: domain is empty; allowed: the name that requests have"}},
		{[]*domains.Domain{one, other}, true, []string{`2.yaml: the key and value "a_b" of the domain "d" are given twice, first in 1.yaml`}},
		{[]*domains.Domain{other, third}, true, []string{`3.yaml: the key and value "e" of the domain "d" are given twice, first in 2.yaml`}},
		{[]*domains.Domain{{Name: "d", From: "0.yaml"}, other, third}, true, []string{`3.yaml: the key and value "e" of the domain "d" are given twice, first in 2.yaml`}},
	} {
		if got := domains.Validate(test.list, test.merge); !reflect.DeepEqual(got, test.want) {
			t.Errorf("merge %t: %q, want %q", test.merge, got, test.want)
		}
		if got := domains.Sound(test.list, test.merge); len(got) != len(test.list)-len(test.want) || len(domains.Validate(got, test.merge)) > 0 {
			t.Errorf("merge %t: of %d with %d faults %d are sound", test.merge, len(test.list), len(test.want), len(got))
		}
	}
	// What is refused makes no other one a fault.
	if got := domains.Sound([]*domains.Domain{one, other, third}, true); !reflect.DeepEqual(got, []*domains.Domain{one, third}) {
		t.Errorf("%d are sound, want the first and the third", len(got))
	}
}

// Descriptors that were not written in a document have the same faults, each with its place.
func TestCheckAll(t *testing.T) {
	faults := domains.CheckAll("descriptors", []domains.Descriptor{
		{Key: "a", Descriptors: []domains.Descriptor{{Key: "b"}, {Key: "", Value: "v"}, {Key: "b"}}},
		{Key: "a"},
		{Key: "c", RateLimit: &domains.RateLimit{Unit: domains.Hour, Unlimited: true, Replaces: []string{""}, Accounting: "odd"}, ShareThreshold: true},
	})
	want := []string{
		"descriptors[0].descriptors[1].key is empty", `descriptors[0].descriptors[2]: the key and value "b" are given twice`,
		`descriptors[1]: the key and value "a" are given twice`, "descriptors[2].share_threshold is true", "descriptors[2].rate_limit.unit is",
		"descriptors[2].rate_limit.replaces has an empty name", "descriptors[2].rate_limit.accounting is",
	}
	if len(faults) != len(want) {
		t.Fatalf("%q, want %q", faults, want)
	}
	for i, fault := range faults {
		if !strings.HasPrefix(fault, want[i]) {
			t.Errorf("%q, want %q", fault, want[i])
		}
	}
}

// The names of units are those of the protocol.
func TestUnits(t *testing.T) {
	for unit, name := range map[domains.Unit]string{1: "second", 2: "minute", 3: "hour", 4: "day", 5: "month", 6: "year", 7: "week"} {
		got, err := domains.ParseUnit(strings.ToUpper(name))
		if err != nil || got != unit || unit.String() != name || !unit.Known() || unit.Length() <= 0 {
			t.Errorf("%s: %d %v, named %s, %v", name, got, err, unit, unit.Length())
		}
	}
	for _, unit := range []domains.Unit{0, 8, 255} {
		if unit.Known() || unit.String() != "unknown" || unit.Length() != 0 {
			t.Errorf("%d is %s", unit, unit)
		}
	}
}

// A text that aliases make long is refused.
func TestBillionLaughs(t *testing.T) {
	text := "domain: d\ndescriptors:\n- key: a0\n  metadata: &a0 {x: lol}\n"
	for i := 1; i <= 9; i++ {
		fields := ""
		for j := range 10 {
			fields += fmt.Sprintf("%c: *a%d, ", 'a'+j, i-1)
		}
		text += fmt.Sprintf("- key: a%d\n  metadata: &a%d {%s}\n", i, i, fields)
	}
	_, _, err := domains.Parse("f.yaml", []byte(text))
	if err == nil || !strings.Contains(err.Error(), "the aliases stand for too many values; allowed: 400000") || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("got %.500v", err)
	}
}
