package rules_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// A client named as overrides name it has the key that its requests are counted under.
func TestNamedClientsHaveTheirKeys(t *testing.T) {
	scopes := []string{rules.PerIP, rules.PerUser, rules.PerAPIKey, rules.Custom("plan")}
	value := rapid.OneOf(rapid.SampledFrom([]string{`a|b\`, `\ip:192.0.2.1`, "a\x00b", strings.Repeat("x", 300), "*", "\xff"}), rapid.StringMatching(`[a-z|\\]{1,4}`))
	address := rapid.SampledFrom([]string{"192.0.2.1", "2001:db8:1:2::/64", "::/64", "unknown"})
	rapid.Check(t, func(t *rapid.T) {
		rule := onPath("a", "")
		rule.Missing = rules.MissingIP
		var named []string
		request := rules.Request{Path: "/", Attributes: map[string]string{}}
		rule.Scope = rapid.Permutation(scopes).Draw(t, "scope")[:rapid.IntRange(1, len(scopes)).Draw(t, "parts")]
		if slices.Equal(rule.Scope, []string{rules.PerIP}) {
			rule.Missing = rules.MissingSkip
		}
		for _, scope := range rule.Scope {
			values := value
			if scope == rules.PerIP {
				values = address
			}
			text := values.Draw(t, scope)
			named = append(named, text)
			switch scope {
			case rules.PerIP:
				request.Address = text
			case rules.PerUser:
				request.User = text
			case rules.PerAPIKey:
				request.APIKey = text
			default:
				request.Attributes["plan"] = text
			}
		}
		set := must.Get(rules.Compile([]rules.Rule{rule}, rules.Options{}))(t)
		var m rules.Matches
		must.Do(t, set.Match(&request, &m))
		matched := must.Get(m.AtTake(0))(t)
		if got, err := rule.ClientKey(rules.JoinKey(named...)); err != nil || got != matched.Claim.Key {
			t.Errorf("%q of %v: %q, %v; the requests are counted under %q", named, rule.Scope, got, err, matched.Claim.Key)
		}
	})
}

func TestClientKey(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Rule, Client, Key, Fault string }](t, "testdata/keys.txt") {
		rule := rule("a")
		patch(t, &rule, test.Rule)
		got, err := rule.ClientKey(test.Client)
		fault := strings.TrimPrefix(text(err), "stint: ")
		if got != test.Key || fault != test.Fault || err != nil && !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s of %s: %q, %s; want %q, %s", test.Client, test.Rule, got, fault, test.Key, test.Fault)
		}
	}
}

func TestClientClaims(t *testing.T) {
	own, special := stint.FixedWindow(3, 1e9), stint.FixedWindow(9, 1e9)
	limited := rule("limited")
	limited.Limits = []stint.Limit{own}
	limited.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{special}}, {Key: "192.0.2.2", Banned: true}}
	banned := rule("banned")
	banned.Limits, banned.Banned = nil, true
	set := compile(t, limited, banned)
	for _, test := range []struct {
		id, client string
		want       []stint.Limit
	}{
		{"limited", "192.0.2.1", []stint.Limit{own, special}},
		{"limited", "192.0.2.2", []stint.Limit{own}},
		{"limited", "192.0.2.3", []stint.Limit{own}},
		{"banned", "192.0.2.1", nil},
	} {
		claims, err := set.ClientClaims(test.id, test.client)
		var got []stint.Limit
		for _, claim := range claims {
			if claim.Key != test.client || claim.Policy.Name() != rules.PolicyPrefix+test.id {
				t.Errorf("%s: a claim of %q under %s", test.id, claim.Key, claim.Policy.Name())
			}
			got = append(got, claim.Policy.Limits()...)
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s of %s: %v, %v; want %v", test.client, test.id, got, err, test.want)
		}
	}
	for _, wrong := range [][2]string{{"none", "192.0.2.1"}, {"limited", "a|b"}, {"limited", "2001:db8::/56"}, {"limited", "2001:db8::1"}} {
		if _, err := set.ClientClaims(wrong[0], wrong[1]); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
