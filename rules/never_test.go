package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/rules"
)

// A cost above a limit is never admitted.
func TestNeverAdmitted(t *testing.T) {
	window := func(limit int64) stint.Limit { return stint.FixedWindow(limit, bounds.MaxPeriod) }
	classes := func(keep map[string]rules.Percent) rules.Classes {
		return rules.Classes{By: rules.ClassBy{Attribute: "class"}, Keep: keep, Default: "batch"}
	}
	for _, test := range []struct {
		name            string
		spoil           func(*rules.Rule)
		fault, warnings string // of the fault, and else of the warning; both "": there is neither
	}{
		{"cost of the limit", func(r *rules.Rule) { r.Cost.Permits = 10 }, "", ""},
		{
			"cost", func(r *rules.Rule) { r.Cost.Permits = 11 },
			`rule "r": cost is 11; allowed: at most 10, all that limits[0] has: requests are never admitted`, "",
		},
		{"in shadow", func(r *rules.Rule) { r.Cost.Permits, r.OnExceed = 11, rules.Shadow }, "cost is 11", ""},
		{"one of several limits", func(r *rules.Rule) {
			r.Cost.Permits, r.Limits = 5, []stint.Limit{window(100), window(4).Named("b")}
		}, "cost is 5; allowed: at most 4, all that limits[1] has", ""},
		{"a limit's cost", func(r *rules.Rule) { r.Costs = []rules.Cost{{Permits: 11}} }, "limits[0].cost is 11; allowed: at most 10", ""},
		{"another limit's cost", func(r *rules.Rule) {
			r.Cost.Permits, r.Limits, r.Costs = 11, []stint.Limit{ten, window(20).Named("b")}, []rules.Cost{{Permits: 1}, {}}
		}, "", ""},
		{
			"default", func(r *rules.Rule) { r.Cost = rules.Cost{Header: "X-Cost", Permits: 11} }, "",
			"cost.default is 11; allowed: at most 10, all that limits[0] has: requests that name no cost are never admitted",
		},
		{
			"a limit's default", func(r *rules.Rule) { r.Costs = []rules.Cost{{Attribute: "tokens", Permits: 500}} }, "",
			"limits[0].cost.default is 500; allowed: at most 10",
		},
		{
			"concurrency", func(r *rules.Rule) { r.Cost.Permits, r.Limits = 3, []stint.Limit{stint.Concurrency(2)} },
			"cost is 3; allowed: at most 2", "",
		},
		{"otherwise", func(r *rules.Rule) { r.Cost.Permits, r.Otherwise = 11, "paid" }, "", "cost is 11"},
		{"override", func(r *rules.Rule) {
			r.Cost.Permits, r.Overrides = 5, []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{window(4)}}}
		}, "overrides[0].limits[0] is a limit of 4; allowed: at least 5, the cost, or banned: requests of its client", ""},
		{"override's cost", func(r *rules.Rule) {
			r.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{window(4)}, Costs: []rules.Cost{{Permits: 5}}}}
		}, "overrides[0].limits[0].cost is 5; allowed: at most 4, all that overrides[0].limits[0] has", ""},
		{"override for a default", func(r *rules.Rule) {
			r.Cost = rules.Cost{Header: "X-Cost", Permits: 5}
			r.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{window(4)}}}
		}, "", "overrides[0].limits[0] is a limit of 4"},
		{"classes with room", func(r *rules.Rule) { r.Classes = classes(map[string]rules.Percent{"critical": 0, "batch": 95}) }, "", ""},
		{"a class", func(r *rules.Rule) {
			r.Cost.Permits, r.Classes = 3, classes(map[string]rules.Percent{"critical": 0, "batch": 80})
		}, "", "classes.keep.batch is 80%; allowed: a part of the 10 of limits[0] that leaves 3, the cost: requests of the class"},
		{"loan", func(r *rules.Rule) {
			r.Limits, r.Cost.Permits, r.Within = nil, 3, "outer"
			r.Borrow.Rate = stint.PerSecond(2)
		}, "borrow is 2/s; allowed: at least 3 permits a period, the cost: nothing is ever borrowed", ""},
		{"loan beside a floor", func(r *rules.Rule) {
			r.Limits, r.Cost.Permits, r.Within, r.Borrow.Rate = nil, 3, "outer", stint.PerSecond(2)
			r.Guaranteed = map[string]rules.Floor{"192.0.2.1": {Capacity: 3, Refill: stint.Per(1, time.Minute)}}
		}, "", "borrow is 2/s"},
		{"all classes", func(r *rules.Rule) {
			r.Cost.Permits, r.Classes = 3, classes(map[string]rules.Percent{"normal": 90, "batch": 80})
		}, "classes.keep.batch is 80%", ""},
	} {
		r := rule("r")
		test.spoil(&r)
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
		if !strings.Contains(faults, test.fault) || test.fault == "" && faults != "" {
			t.Errorf("%s: fault %q, want %q", test.name, faults, test.fault)
		}
		want := strings.TrimPrefix(test.fault, `rule "r": `) + test.warnings
		if !strings.Contains(warnings, want) || want == "" && warnings != "" {
			t.Errorf("%s: warnings %q, want %q", test.name, warnings, want)
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
