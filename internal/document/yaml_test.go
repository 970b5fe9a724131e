package document_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/testtable"
)

// shown writes a value as kinds and texts.
func shown(v document.Value) string {
	names := map[document.Kind]string{
		document.KindNull: "null", document.KindText: "text", document.KindInteger: "integer", document.KindFloat: "float", document.KindBoolean: "boolean",
	}
	switch v.Kind {
	case document.KindList:
		var items []string
		for _, item := range v.Items {
			items = append(items, shown(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case document.KindMapping:
		var fields []string
		for _, f := range v.Fields {
			fields = append(fields, f.Name+": "+shown(f.Value))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	default:
		return strings.TrimSpace(names[v.Kind] + " " + v.Text)
	}
}

// What users write without quotes is of the kind that they mean, by YAML 1.2; nothing that looks like a text becomes something else.
func TestYAMLScalars(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/yaml_scalars.txt") {
		checkYAML(t, "a: "+test.Text+"\n", "{a: "+test.Want+"}")
	}
}

func checkYAML(t *testing.T, text, want string) {
	t.Helper()
	var faults document.Faults
	if got := shown(document.Parse("y.yaml", []byte(text), 1<<20, &faults)); got != want || len(faults) > 0 {
		t.Errorf("%q is %q, %v; want %q", text, got, faults, want)
	}
}

func TestYAML(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/yaml.txt") {
		checkYAML(t, test.Text, test.Want)
	}
}

func TestYAMLFaults(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/yaml_faults.txt") {
		var faults document.Faults
		document.Parse("y.yaml", []byte(test.Text), 1<<20, &faults)
		if got := strings.ReplaceAll(faults.Error(), "y.yaml:", ""); got != "stint: "+test.Want {
			t.Errorf("%q: got\n%s\nwant\n%s", test.Text, got, test.Want)
		}
	}
}

func TestYAMLPlaces(t *testing.T) {
	at := func(line, column int) document.Position {
		return document.Position{Source: "y.yaml", Line: line, Column: column}
	}
	var faults document.Faults
	got := document.Parse("y.yaml", []byte("\ufeff# b\n\"ä\": ü\nb:\n  - c\n  -\n    {e: ,}\n"), 1<<20, &faults)
	want := document.Value{At: at(2, 1), Kind: document.KindMapping, Fields: []document.Field{
		{At: at(2, 1), Name: "ä", Value: document.Value{At: at(2, 6), Kind: document.KindText, Text: "ü"}},
		{At: at(3, 1), Name: "b", Value: document.Value{At: at(4, 3), Kind: document.KindList, Items: []document.Value{
			{At: at(4, 5), Kind: document.KindText, Text: "c"},
			{At: at(6, 5), Kind: document.KindMapping, Fields: []document.Field{{At: at(6, 6), Name: "e", Value: document.Value{At: at(6, 6)}}}},
		}}},
	}}
	if !reflect.DeepEqual(got, want) || len(faults) > 0 {
		t.Errorf("got %+v, %v; want %+v", got, faults, want)
	}
}

// FuzzParse looks for texts that the reading trips over.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "[]", "a: b", "- {id: a, b: [1, 2e5]}", "{\"a\": [1, 2e5, \"\\ud800\"]}", "? [a]\n: b", "a: &x [*x]", "<<: {a: b}", "---\n---\na: 1", "%YAML 1.2\n---\nx:",
		"\xff", "- - - -", "a: !!binary x", "? ? ? ?", "[[{a: [", "]]]}", "- a:\n  - b: {c, d: e}\n   f: 1\n- \"k\" : 1\n", "&a k: 1\n!b k: 2", "{? a : b, : c}", "a: |-2\n  b", "\u2028%a",
	} {
		f.Add([]byte(seed), "f.yaml")
		f.Add([]byte(seed), "f.json")
	}
	f.Fuzz(func(t *testing.T, data []byte, source string) {
		if len(data) > 1<<14 {
			return // so that many texts are tried
		}
		var faults document.Faults
		document.Parse(source, data, 1<<14, &faults)
		for _, fault := range faults {
			if fault.Position.Source != source || fault.Position.Line < 1 || fault.Position.Column < 1 || fault.Message == "" {
				t.Fatalf("a fault without place or words: %#v", fault)
			}
		}
	})
}
