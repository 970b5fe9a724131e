package rulefile_test

import (
	"errors"
	"os"
	"reflect"
	"testing"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// FuzzParse looks for texts that the reading trips over, and for rules that are not read
// as they are written.
func FuzzParse(f *testing.F) {
	wrong := must.Get(os.ReadFile("testdata/wrong.json"))(f)
	for _, seed := range []string{
		sample, string(wrong), "", "[]", "rules:", "- id: a\n  cost: {header: X, default: 2}\n", "- {id: b, enabled: false, priority: -1, labels: {a: b}}",
		`[{"id": "c", "match": {"headers": {"A": "*"}}, "on_exceed": "wait", "max_wait": "1s", "timeout": "5ms"}]`,
		"- limits: [{algorithm: token_bucket, capacity: 9, refill: 1/s, lease: auto, max_debt: 0}]\n  overrides: [{key: \"a\\|b\", banned: true}]\n",
		"- labels: {a: \"\\xff\\ud800\"}", "- labels: {\"\\xff\": !!binary x}", "- &a {id: *a}", "? [a]\n: b", "\xff", "- - - -", "{\"a\": [1, 2e5]}",
		"a: b: c", "? ? ? ?", "[[{a: [", "]]]}", "- a:\n  - b: {c, d: e}\n   f: 1\n- \"k\" : 1\n", "---\n---\n...\n- a", "&a k: 1\n!b k: 2", "{? a : b, : c}",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		if len(data) > 1<<14 {
			return // so that many texts are tried
		}
		source := "f.yaml"
		if isJSON {
			source = "f.json"
		}
		list, positions, err := rulefile.Parse(source, data)
		checkFaults(t, source, err)
		if len(list) != len(positions) || err != nil && list != nil {
			t.Fatalf("%d rules at %d places, %v", len(list), len(positions), err)
		}
		for i, rule := range list {
			if positions[i].Line < 1 || positions[i].Column < 1 {
				t.Errorf("rule %d has no place: %v", i, positions[i])
			}
			checkRoundTrip(t, rule)
		}
	})
}

// checkFaults holds every fault to have a place and words.
func checkFaults(t *testing.T, source string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var faults document.Faults
	if !errors.As(err, &faults) || len(faults) == 0 {
		t.Fatalf("%T: %v", err, err)
	}
	for _, fault := range faults {
		if fault.Position.Source != source || fault.Position.Line < 1 || fault.Position.Column < 1 || fault.Message == "" {
			t.Fatalf("a fault without place or words: %#v", fault)
		}
	}
}

// checkRoundTrip holds what is written of a rule to be read as the same, by both front
// ends.
func checkRoundTrip(t *testing.T, rule rules.Rule) {
	t.Helper()
	text, err := rulefile.JSON(rule)
	if err != nil {
		t.Fatalf("%+v: %v", rule, err)
	}
	for _, source := range []string{"w.json", "w.yaml"} {
		again, _, err := rulefile.Parse(source, []byte("["+string(text)+"]"))
		if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], rule) {
			t.Fatalf("%s: %s is read as\n%+v, and was\n%+v: %v", source, text, again, rule, err)
		}
	}
}
