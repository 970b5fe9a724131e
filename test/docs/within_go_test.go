package docs_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// The Go of docs/organisations.md makes the rules of its first document.
func TestOrganisationsInGo(t *testing.T) {
	set := must.Get(rules.Compile([]rules.Rule{
		{
			ID: "organisation", Scope: []string{rules.Custom("organisation")}, Missing: rules.MissingDeny, PartitionBy: "organisation",
			Limits: []stint.Limit{stint.TokenBucket(1000, stint.PerSecond(1000))},
		},
		{
			ID: "team", Within: "organisation", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip, PartitionBy: "organisation",
			Guaranteed: map[string]rules.Floor{
				"search": {Capacity: 200, Refill: stint.PerSecond(400)},
				"ads":    {Capacity: 150, Refill: stint.PerSecond(300)},
				"mail":   {Capacity: 150, Refill: stint.PerSecond(300)},
			},
			Borrow: rules.Borrow{Any: true},
		},
	}, rules.Options{}))(t)
	if got, want := set.Rules(), shownRules(t, organisationsPage, 0).Rules(); !reflect.DeepEqual(got, want) {
		t.Errorf("in Go the rules are\n%+v\nand on the page\n%+v", got, want)
	}
}

// The Go of docs/priorities.md makes the rules of its second document, of which there is nothing to warn.
func TestPrioritiesInGo(t *testing.T) {
	set := must.Get(rules.Compile([]rules.Rule{
		{ID: "organisation", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(1000, stint.PerSecond(1000))}},
		{
			ID: "team", Within: "organisation", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip,
			Guaranteed: map[string]rules.Floor{
				"search": {Capacity: 300, Refill: stint.PerSecond(400)}, "ads": {Capacity: 200, Refill: stint.PerSecond(300)},
			},
			Borrow: rules.Borrow{Any: true},
			Classes: rules.Classes{
				By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"critical": 0, "batch": 40}, Default: "batch",
			},
		},
	}, rules.Options{}))(t)
	if got, want := set.Rules(), shownRules(t, prioritiesPage, 1).Rules(); !reflect.DeepEqual(got, want) {
		t.Errorf("in Go the rules are\n%+v\nand on the page\n%+v", got, want)
	}
	if said := warned(set); said != "" {
		t.Errorf("there is a warning: %s", said)
	}
	list := set.Rules()
	for i := range list {
		if list[i].ID == "team" {
			list[i].Guaranteed["ads"] = rules.Floor{Capacity: 650, Refill: stint.PerSecond(300)}
		}
	}
	set = must.Get(rules.Compile(list, rules.Options{}))(t)
	if said := warned(set); !strings.Contains(said, "team: ") || !strings.Contains(said, "borrow") {
		t.Errorf("of floors that leave 50 of 1,000 it is said %q", said)
	}
}

// warned are the warnings about a set's rules, as the page prints them.
func warned(set *rules.Set) string {
	var log strings.Builder
	for _, rule := range set.Rules() {
		for _, warning := range set.Warnings(rule.ID, false) { // true on Redis Cluster
			fmt.Fprintf(&log, "%s: %v\n", rule.ID, warning)
		}
	}
	return log.String()
}
