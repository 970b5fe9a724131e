package rules_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// warned is what is said of a rule on a cluster by warnings of a kind.
func warned(set *rules.Set, id, kind string) (text string) {
	for _, warning := range set.Warnings(id, true) {
		if warning.Kind == kind {
			text += warning.String()
		}
	}
	return text
}

// Rules are scattered if a request may be charged to one and to another one in another partition of a cluster. Floors are
// shared if one of them is that of several clients of the rule that they are within.
func TestWarningsOfRelatives(t *testing.T) {
	kinds := map[string]string{
		"scattered": "can't be decided on a cluster", "shared": "has floors that several clients share",
	}
	for _, test := range testtable.Rows[struct{ Kind, Of, Name, Patch, Want string }](t, "testdata/warnings.txt") {
		list, want := relatives(t, test.Of, test.Patch), map[string]string{}
		for text := range strings.FieldsSeq(test.Want) {
			id, other, _ := strings.Cut(text, ":")
			want[id] = "its clients and those of rule " + other
		}
		for _, rule := range list {
			got, start := warned(compile(t, list...), rule.ID, kinds[test.Kind]), want[rule.ID]
			if (got == "") != (start == "") || test.Kind == "scattered" && !strings.HasPrefix(got, start) {
				t.Errorf("%s, %s: of rule %s it is said %q, want %q", test.Kind, test.Name, rule.ID, got, start)
			}
		}
	}
	set := compile(t, relatives(t, "teams", "{}")...)
	if off, on := set.Warnings("team", false), set.Warnings("team", true); len(off) > 0 || len(on) != 1 || !on[0].Errors {
		t.Errorf("only on a cluster are requests errors: %v, %v", off, on)
	}
	if none := new(rules.Set).Warnings("team", true); none != nil {
		t.Errorf("a rule that is not there: %v", none)
	}
}
