package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// A cluster can't decide a request by two rules with clients in different partitions where both have logs or leaky
// buckets, or one has what is decided in one step.
func TestApart(t *testing.T) {
	log, leaky := stint.SlidingWindowLog(10, time.Minute), stint.LeakyBucket(10, stint.PerSecond(1))
	counts := log
	counts.CountDenied = true
	const logs, steps = "leaky buckets and sliding window logs can't give back what was taken, so requests are errors",
		"in one step with all others, so requests are errors"
	set := func(change func(all, each *rules.Rule)) []rules.Rule {
		all, each := onPath("all", "/x"), onPath("each", "/x")
		all.Scope, all.Limits, each.Limits = []string{rules.Global}, []stint.Limit{log}, []stint.Limit{log}
		change(&all, &each)
		return []rules.Rule{each, all}
	}
	match := func(all, each rules.Match) func(*rules.Rule, *rules.Rule) {
		return func(a, e *rules.Rule) { a.Match, e.Match = all, each }
	}
	paths := func(all, each string) func(*rules.Rule, *rules.Rule) {
		return match(rules.Match{Paths: one(all)}, rules.Match{Paths: one(each)})
	}
	for _, test := range []struct {
		name   string
		change func(all, each *rules.Rule)
		want   string
	}{
		{"logs", func(*rules.Rule, *rules.Rule) {}, logs},
		{"a leaky bucket", func(all, _ *rules.Rule) { all.Limits = []stint.Limit{leaky} }, logs},
		{"a log of an override", func(all, each *rules.Rule) {
			each.Limits, each.Overrides = []stint.Limit{ten}, []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{log}}}
		}, logs},
		{"one log", func(all, _ *rules.Rule) { all.Limits = []stint.Limit{ten} }, ""},
		{"denied ones counted", func(all, each *rules.Rule) { all.Limits, each.Limits = []stint.Limit{ten}, []stint.Limit{counts} }, steps},
		{"places", func(all, each *rules.Rule) {
			all.Limits, each.Limits = []stint.Limit{stint.Concurrency(3)}, []stint.Limit{ten}
		}, "so reserves are errors"},
		{"counted by answers", func(all, each *rules.Rule) {
			all.Limits, all.Count.Status, each.Limits = []stint.Limit{ten}, []int{401}, []stint.Limit{ten}
		}, "so reserves are errors"},
		{"for reserves", func(all, each *rules.Rule) {
			all.Limits, all.Reserve.TTL, each.Limits = []stint.Limit{ten}, time.Minute, []stint.Limit{ten}
		}, "so reserves are errors"},
		{"one scope", func(all, each *rules.Rule) { all.Scope = each.Scope }, ""},
		{"one partition_by", func(all, each *rules.Rule) {
			all.PartitionBy, all.Missing, each.PartitionBy, each.Missing = "tenant", rules.MissingSkip, "tenant", rules.MissingSkip
		}, ""},
		{"another partition_by", func(all, each *rules.Rule) {
			all.PartitionBy, all.Missing, each.PartitionBy, each.Missing = "tenant", rules.MissingSkip, "region", rules.MissingSkip
		}, logs},
		{"in shadow", func(all, _ *rules.Rule) { all.OnExceed = rules.Shadow }, ""},
		{"disabled", func(all, _ *rules.Rule) { all.Disabled = true }, ""},
		{"banned", func(all, _ *rules.Rule) { all.Limits, all.Banned = nil, true }, ""},
		{"a parameter", func(all, each *rules.Rule) {
			all.Scope, each.Scope = []string{"custom:id"}, []string{"custom:id"}
			all.Match.Paths, each.Match.Paths, each.Missing = one("/{id}"), one("/x"), rules.MissingSkip
		}, logs},

		{"other paths", paths("/x", "/y"), ""},
		{"below", paths("/x/**", "/x/y/z"), logs},
		{"above", paths("/x/y/z", "/x/**"), logs},
		{"beside", paths("/x/**", "/y/**"), ""},
		{"deeper", paths("/x/{id}", "/x/y/z"), ""},
		{"any segment", paths("/x/{id}", "/{all}/y"), logs},
		{"any path", paths("", "/y"), logs},
		{"excepted", match(rules.Match{Except: one("/x/**")}, rules.Match{Paths: one("/x/{id}/y")}), ""},
		{"excepted in a part", match(rules.Match{Except: one("/x/y")}, rules.Match{Paths: one("/x/**")}), logs},
		{"one excepted", match(rules.Match{Except: one("/x/{id}")}, rules.Match{Paths: []string{"/x/1", "/y"}}), logs},
		{"methods", match(rules.Match{Methods: []string{"PUT", "GET"}}, rules.Match{Methods: []string{"POST", "HEAD"}}), logs},
		{"other methods", match(rules.Match{Methods: []string{"PUT"}}, rules.Match{Methods: []string{"POST"}}), ""},
		{"hosts", match(rules.Match{Hosts: []string{"a.example", "*.b.example"}}, rules.Match{Hosts: []string{"c.b.example"}}), logs},
		{"hosts below", match(rules.Match{Hosts: one("*.c.b.example")}, rules.Match{Hosts: one("*.b.example")}), logs},
		{"other hosts", match(rules.Match{Hosts: one("*.example")}, rules.Match{Hosts: one("example")}), ""},
		{"a field", match(rules.Match{Headers: map[string]string{"X-V": "1"}}, rules.Match{Headers: map[string]string{"x-v": "*"}}), logs},
		{"other fields", match(rules.Match{Headers: map[string]string{"X-V": "1"}}, rules.Match{Headers: map[string]string{"x-v": "2"}}), ""},
		{"attributes", match(rules.Match{Attributes: map[string][]string{"plan": {"a", "b"}}},
			rules.Match{Attributes: map[string][]string{"plan": {"b"}}}), logs},
		{"other attributes", match(rules.Match{Attributes: map[string][]string{"plan": {"a", "b"}}},
			rules.Match{Attributes: map[string][]string{"plan": {"c"}}}), ""},
	} {
		compiled := compile(t, set(test.change)...)
		if all := warned(compiled, "all", "can't be decided on a cluster"); all != "" {
			t.Errorf("%s: of the first rule it is said %q", test.name, all)
		}
		got := warned(compiled, "each", "can't be decided on a cluster")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		} else if got != "" && !strings.HasPrefix(got, "requests may meet it and rule all, whose clients are in different partitions") {
			t.Errorf("%s: %q names no rule", test.name, got)
		}
		if off := compiled.Warnings("each", false); strings.Contains(fmt.Sprint(off), "cluster") {
			t.Errorf("%s: without a cluster it is said %v", test.name, off)
		}
	}

	org, team := organisation()
	if got := warned(compile(t, org, team, rule("user")), "user", "can't be decided on a cluster"); !strings.Contains(got, "rule team") ||
		!strings.Contains(got, steps) {
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
