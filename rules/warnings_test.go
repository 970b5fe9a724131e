package rules_test

import (
	"testing"

	"github.com/stint-go/stint"
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

// Floors are mixed if one of them is that of several clients of the rule that they are within.
func TestMixed(t *testing.T) {
	partitioned := func(r rules.Rule) rules.Rule {
		r.PartitionBy, r.Missing = "tenant", rules.MissingSkip
		return r
	}
	global, team := organisation()
	org, key, both, borrowers := global, global, team, team
	org.Scope, org.Missing = []string{rules.Custom("tenant")}, rules.MissingSkip
	key.Scope, key.Missing = []string{rules.PerAPIKey}, rules.MissingSkip
	both.Scope = []string{rules.Custom("team"), rules.Custom("tenant")}
	both.Guaranteed = map[string]rules.Floor{"search|acme": {Capacity: 1, Refill: stint.PerSecond(1)}}
	borrowers.Guaranteed = nil
	parameter := both
	parameter.Scope, parameter.Match.Paths = []string{rules.Custom("team"), rules.Custom("tenant")}, one("/{tenant}/**")
	for _, test := range []struct {
		name  string
		list  []rules.Rule
		mixed bool
	}{
		{"one organisation", []rules.Rule{global, team}, false},
		{"several organisations", []rules.Rule{org, team}, true},
		{"API keys", []rules.Rule{key, team}, true},
		{"with partition_by", []rules.Rule{partitioned(org), partitioned(team)}, false},
		{"another partition_by", []rules.Rule{partitioned(key), partitioned(team)}, true},
		{"in the scope", []rules.Rule{org, both}, false},
		{"no floors", []rules.Rule{org, borrowers}, false},
		{"three levels", []rules.Rule{global, team, users()}, false},
		{"a parameter of a path", []rules.Rule{org, parameter}, true},
	} {
		set, err := rules.Compile(test.list, rules.Options{})
		if err != nil {
			t.Fatal(test.name, err)
		}
		for _, rule := range test.list {
			if got, want := warned(set, rule.ID, "has floors that several clients share"), test.mixed && rule.ID == "team"; (got != "") != want {
				t.Errorf("%s: of rule %s it is said %q", test.name, rule.ID, got)
			}
		}
	}
	user := users()
	user.Guaranteed, user.Borrow = map[string]rules.Floor{"ann": {Capacity: 1, Refill: stint.PerSecond(1)}}, rules.Borrow{}
	if set := compile(t, org, both, user); warned(set, "user", "has floors that several clients share") == "" {
		t.Error("nothing is said of floors of users that organisations share")
	}
	if none := new(rules.Set).Warnings("team", true); none != nil {
		t.Errorf("a rule that is not there: %v", none)
	}
}
