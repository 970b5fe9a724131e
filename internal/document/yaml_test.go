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
	for text, want := range map[string]string{
		"on": "text on", "off": "text off", "yes": "text yes", "No": "text No", "y": "text y", "true": "boolean true", "False": "boolean False",
		"~": "null", "null": "null", "": "null", "''": "text", "\"~\"": "text ~",
		"5": "integer 5", "-5": "integer -5", "+5": "integer +5", "010": "integer 010", "0o10": "integer 0o10", "0x1F": "integer 0x1F", "1_000": "integer 1_000",
		"1.5": "float 1.5", "1e3": "float 1e3", ".inf": "float .inf", ".nan": "float .nan", "08": "float 08",
		"10/s": "text 10/s", "2/3s": "text 2/3s", "1m": "text 1m", "60s": "text 60s", "64MiB": "text 64MiB", "1:30": "text 1:30", "12:30:45": "text 12:30:45",
		"2026-01-01": "text 2026-01-01", "2026-01-01T00:00:00Z": "text 2026-01-01T00:00:00Z", "10.0.0.0/8": "text 10.0.0.0/8", "fd00::/8": "text fd00::/8",
		"::1": "text ::1", "v1.2": "text v1.2", "custom:tier": "text custom:tier", "/users/{id}": "text /users/{id}", "a # b": "text a", "a#b": "text a#b",
		"<<": "text <<", "\"5\"": "text 5", "'true'": "text true", "\"\\x00\\xff\\u00e9\"": "text \x00ÿé", "|\n  a\n  b": "text a\nb", ">\n  a\n  b": "text a b",
	} {
		var faults document.Faults
		v := document.Parse("y.yaml", []byte("a: "+text+"\n"), 1<<20, &faults)
		if got := shown(v); got != "{a: "+want+"}" || len(faults) > 0 {
			t.Errorf("%q is %q, %v; want %q", text, got, faults, want)
		}
	}
}

func TestYAML(t *testing.T) {
	for text, want := range map[string]string{
		"": "null", "# a\n": "null", "---\n": "null", "---\n...\n": "null", "---\n---\na\n---\n": "text a", "--- a\n...\n": "text a",
		"a: 1\nb: [2, {c: d}]\n":     "{a: integer 1, b: [integer 2, {c: text d}]}",
		"- a\n-\n- b: c\n  d:\n":     "[text a, null, {b: text c, d: null}]",
		"5: a\ntrue: b\n\"<<\": c":   "{5: text a, true: text b, <<: text c}",
		"? a\n: b\n? c\n":            "{a: text b, c: null}",
		"[a: b]":                     "[{a: text b}]",
		"{\"a\":\"\\ud83d\\ude00\"}": "{a: text 😀}",
		"{\n\t\"a\": 1}":             "{a: integer 1}",
	} {
		var faults document.Faults
		if got := shown(document.Parse("y.yaml", []byte(text), 1<<20, &faults)); got != want || len(faults) > 0 {
			t.Errorf("%q is %q, %v; want %q", text, got, faults, want)
		}
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
