package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// review compiles a rule as it is written: its fault, and the warnings of the set that it makes without a review. A rule
// with a fault is in force without one, and is warned of.
func review(t *testing.T, r rules.Rule) (fault, warning string) {
	t.Helper()
	for _, w := range compile(t, r).Warnings(r.ID, false) {
		if strings.Contains(w.Kind, "written as for another router") || strings.HasPrefix(w.Kind, "has a method") {
			warning += w.String() + "\n"
		}
	}
	if _, err := rules.Compile([]rules.Rule{r}, rules.Options{Review: true}); err != nil {
		if !errors.Is(err, stint.ErrInvalid) {
			t.Fatalf("%v is no ErrInvalid", err)
		}
		fault = err.Error()
	}
	if fault != "" && warning == "" {
		t.Errorf("%q is a fault, and nothing is said of it when it comes into force", fault)
	}
	return fault, warning
}

// A path that is written for another router matches none of the requests that are meant.
func TestDialects(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Path, Allowed string }](t, "testdata/dialects.txt") {
		r := onPath("r", test.Path)
		fault, warning := review(t, r)
		if test.Allowed == "" {
			if fault+warning != "" {
				t.Errorf("%s: %s%s", test.Path, fault, warning)
			}
			continue
		}
		if want := "allowed: " + test.Allowed; !strings.Contains(fault, want) || !strings.Contains(fault, `rule "r": match.path is "`) {
			t.Errorf("%s: fault %q, want %s", test.Path, fault, want)
		} else if !strings.Contains(warning, want) {
			t.Errorf("%s: warning %q, want %s", test.Path, warning, want)
		}
		instead, _, _ := strings.Cut(test.Allowed, ", or")
		if fault, warning = review(t, onPath("r", instead)); fault+warning != "" {
			t.Errorf("%s is to be written %s: %s%s", test.Path, instead, fault, warning)
		}
		except := rule("r")
		except.Match.Except = []string{"/x", test.Path}
		if fault, _ = review(t, except); !strings.Contains(fault, "match.except[1] is") {
			t.Errorf("excepting %s: %q", test.Path, fault)
		}
	}
	fault, warning := review(t, onPath("r", "/$metadata"))
	if fault != "" || !strings.Contains(warning, "/{metadata}, or /%24metadata for $metadata itself") {
		t.Errorf("/$metadata: fault %q, warning %q", fault, warning)
	}
}

func TestMethodsOfNoRequest(t *testing.T) {
	for _, method := range []string{"*", "GET|POST"} {
		r := rule("r")
		r.Match.Methods = []string{method}
		if fault, _ := review(t, r); !strings.Contains(fault, "allowed: each method by itself, such as GET, or no methods, which is any") {
			t.Errorf("%s: %q", method, fault)
		}
	}
}

// A rule that is in force may keep its mistakes when it is changed, and makes no new ones.
func TestMistakesInForce(t *testing.T) {
	old := onPath("r", "/users/:id")
	set := compile(t, old)
	changed := old.Clone()
	changed.Disabled = true
	if _, err := rules.Compile([]rules.Rule{changed, rule("other")}, rules.Options{Previous: set, Review: true}); err != nil {
		t.Errorf("disabling it: %v", err)
	}
	changed.Match.Paths = []string{"/users/:id/x"}
	if _, err := rules.Compile([]rules.Rule{changed}, rules.Options{Previous: set, Review: true}); err == nil {
		t.Error("another path of another router is accepted")
	}
	changed = old.Clone()
	changed.ID = "new"
	if _, err := rules.Compile([]rules.Rule{old, changed}, rules.Options{Previous: set, Review: true}); err == nil {
		t.Error("a new rule with the path of one in force is accepted")
	}
}
