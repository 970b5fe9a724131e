package rules_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// A cost above a limit is never admitted.
func TestNeverAdmitted(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Name, Patch, Fault, Warning string }](t, "testdata/never.txt") {
		r := rule("r")
		patch(t, &r, test.Patch)
		list := []rules.Rule{r}
		if other := r.Otherwise + r.Within; other != "" {
			list = append(list, rule(other))
		}
		var faults, warnings string
		if _, err := rules.Compile(list, rules.Options{Review: true}); err != nil {
			faults = err.Error()
		}
		for _, w := range compile(t, list...).Warnings("r", false) {
			if w.Kind == "never admits some requests" {
				warnings += w.String() + "\n"
			}
		}
		if !strings.Contains(faults, test.Fault) || test.Fault == "" && faults != "" {
			t.Errorf("%s: fault %q, want %q", test.Name, faults, test.Fault)
		}
		want := strings.TrimPrefix(test.Fault, `rule "r": `) + test.Warning
		if !strings.Contains(warnings, want) || want == "" && warnings != "" {
			t.Errorf("%s: warnings %q, want %q", test.Name, warnings, want)
		}
	}
}

// A mistake is told beside the faults of the rule, and not as a second fault of what has one.
func TestMistakesBesideFaults(t *testing.T) {
	r := onPath("r", "/users/:id")
	r.Cost.Permits, r.MaxWaiters = 11, 5
	_, err := rules.Compile([]rules.Rule{r}, rules.Options{Review: true})
	var params []string
	for _, fault := range faultsOf(t, err) {
		params = append(params, fault.Param)
	}
	if got := strings.Join(params, " "); got != "max_waiters match.path cost" {
		t.Errorf("faults of %s", got)
	}
	r = rule("r")
	r.Cost.Permits, r.Limits = 3, []stint.Limit{{Algorithm: stint.AlgorithmTokenBucket, Capacity: 2}}
	r.Match.Paths = one("/:id/{x}y")
	if _, err = rules.Compile([]rules.Rule{r}, rules.Options{Review: true}); len(faultsOf(t, err)) != 2 {
		t.Errorf("%v is not the faults of the path and of the limit", err)
	}
}
