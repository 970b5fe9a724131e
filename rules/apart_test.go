package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// A cluster can't decide a request by two rules with clients in different partitions where both have logs or leaky
// buckets, or one has what is decided in one step.
func TestApart(t *testing.T) {
	texts := map[string]string{
		"logs":     "leaky buckets and sliding window logs can't give back what was taken, so requests are errors",
		"steps":    "in one step with all others, so requests are errors",
		"reserves": "so reserves are errors",
	}
	for _, test := range testtable.Rows[struct{ Name, Want, Patch string }](t, "testdata/apart.txt") {
		list, want := []rules.Rule{onPath("each", "/x"), onPath("all", "/x")}, texts[test.Want]
		list[0].Limits[0], list[1].Limits[0] = words["log"].(stint.Limit), words["log"].(stint.Limit)
		list[1].Scope = []string{rules.Global}
		patchAll(t, list, test.Patch)
		compiled := compile(t, list...)
		if all := warned(compiled, "all", "can't be decided on a cluster"); all != "" {
			t.Errorf("%s: of the first rule it is said %q", test.Name, all)
		}
		got := warned(compiled, "each", "can't be decided on a cluster")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", test.Name, got, want)
		} else if got != "" && !strings.HasPrefix(got, "requests may meet it and rule all, whose clients are in different partitions") {
			t.Errorf("%s: %q names no rule", test.Name, got)
		}
		if off := compiled.Warnings("each", false); strings.Contains(fmt.Sprint(off), "cluster") {
			t.Errorf("%s: without a cluster it is said %v", test.Name, off)
		}
	}

	org, team := organisation()
	if got := warned(compile(t, org, team, rule("user")), "user", "can't be decided on a cluster"); !strings.Contains(got, "rule team") ||
		!strings.Contains(got, texts["steps"]) {
		t.Errorf("beside a rule that borrows it is said %q", got)
	}
}

// Many rules are looked at in time.
func TestApartOfManyRules(t *testing.T) {
	list := make([]rules.Rule, 6000)
	for i := range list {
		list[i] = onPath(fmt.Sprint("r", i), fmt.Sprint("/", i))
		list[i].Limits = []stint.Limit{stint.SlidingWindowLog(10, time.Minute)}
		list[i].Scope = [][]string{{rules.PerIP}, {rules.Global}}[i%2]
	}
	list[1].Match.Paths = one("/0")
	set := compile(t, list...)
	said := 0
	for _, r := range list {
		said += len(set.Warnings(r.ID, true))
	}
	if said != 1 {
		t.Errorf("%d warnings of two rules of one path", said)
	}
}
