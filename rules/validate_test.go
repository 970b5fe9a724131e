package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

func TestValidate(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Name, Patch, Param, Says string }](t, "testdata/faults.txt") {
		t.Run(test.Name, func(t *testing.T) {
			r := rule("id")
			patch(t, &r, test.Patch)
			err := r.Validate()
			if test.Param == "" {
				must.Do(t, err)
				return
			}
			all := faultsOf(t, err)
			if len(all) != 1 || all[0].Param != test.Param || !strings.Contains(all[0].Error(), test.Says) {
				t.Errorf("got %v at %s, want one fault at %s that says %q", err, all[0].Param, test.Param, test.Says)
			}
			if _, err := rules.Compile([]rules.Rule{r}, rules.Options{}); err == nil {
				t.Error("Compile accepts it")
			}
		})
	}
}

func TestEveryFaultAtOnce(t *testing.T) {
	bad := rule("no good") // and its limits are looked at all the same
	bad.Limits = []stint.Limit{{}}
	bad.Match.Paths, bad.Match.Hosts, bad.OnStoreFailure = one("x"), one("*"), "ajar"
	_, err := rules.Compile([]rules.Rule{rule("a"), bad, rule("a")}, rules.Options{})
	all := faultsOf(t, err)
	params := make([]string, len(all))
	for i, fault := range all {
		params[i] = fmt.Sprintf("%d:%s", fault.Index, fault.Param)
	}
	want := "1:id 1:match.path 1:match.host 1:limits 1:on_store_failure 2:id"
	if !equalIDs(params, want) {
		t.Errorf("faults are %v, want %s", params, want)
	}
	if got := all[5].Error(); got != `stint: rule "a": id is "a"; allowed: an ID that no other rule has; rule 0 has it` {
		t.Error(got)
	}
	if _, err := rules.Compile(make([]rules.Rule, bounds.MaxRules+1), rules.Options{}); !errors.Is(err, stint.ErrInvalid) || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("too many rules: %v", err)
	}
}

func TestFaultsShowNoAPIKey(t *testing.T) {
	r := rule("id")
	r.Scope, r.Missing = []string{rules.PerAPIKey}, rules.MissingSkip
	r.Overrides = []rules.Override{
		{Key: "s3cret", Banned: true},
		{Key: "s3cret", Banned: true},
		{Key: "s3cret|", Banned: true},
		{Key: `s3cret\`, Banned: true},
		{Key: "s3cret|s3cret", Banned: true},
	}
	if err := r.Validate(); err == nil || strings.Contains(err.Error(), "s3cret") || len(faultsOf(t, err)) != 4 {
		t.Errorf("got %v, want 4 faults without the key", err)
	}
}

func TestMissingNames(t *testing.T) {
	for _, m := range []rules.Missing{rules.MissingSkip, rules.MissingDeny, rules.MissingIP} {
		var got rules.Missing
		if err := got.UnmarshalText([]byte(m.String())); err != nil || got != m {
			t.Errorf("%v is read as %v, %v", m, got, err)
		}
	}
	unknown := rule("a")
	unknown.Missing = 9
	if err := unknown.Validate(); len(faultsOf(t, err)) != 1 || !strings.Contains(err.Error(), "missing is 9; allowed") {
		t.Errorf("unknown: %v", err)
	}
	for _, bad := range []string{"", "Skip", "none"} {
		if err := new(rules.Missing).UnmarshalText([]byte(bad)); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("missing %q: %v", bad, err)
		}
	}
}
