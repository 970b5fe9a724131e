package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// All claims of a request whose rules have partition_by have one hash tag, whatever the rules count by; a client is another
// one under another value, and named with it where clients are named.
func TestPartitionBy(t *testing.T) {
	limits := []stint.Limit{stint.FixedWindow(5, time.Minute)}
	set := compile(t,
		rules.Rule{ID: "all", Scope: []string{rules.Global}, Missing: rules.MissingSkip, Limits: limits, PartitionBy: "tenant"},
		rules.Rule{ID: "tenant", Scope: []string{rules.Custom("tenant")}, Missing: rules.MissingSkip, Limits: limits, PartitionBy: "tenant"},
		rules.Rule{
			ID: "user", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip, Limits: limits, PartitionBy: "tenant",
			Overrides: []rules.Override{{Key: "bob", Banned: true}},
		},
	)
	keyOf := func(tenant string) string {
		var m rules.Matches
		must.Do(t, set.Match(&rules.Request{Path: "/", User: "alice", Attributes: map[string]string{"tenant": tenant}}, &m))
		return must.Get(m.AtTake(m.Len() - 1))(t).Claim.Key // of user, the last one
	}
	for tenant, tag := range map[string]string{
		"acme": "{acme}", "a{b}c": `{\0c81d082effbfc200f529870c4baa760}`, `a\b`: `{\`, strings.Repeat("x", 65): `{\`,
	} {
		var m rules.Matches
		r := rules.Request{Path: "/", User: "alice", Attributes: map[string]string{"tenant": tenant}}
		must.Do(t, set.Match(&r, &m))
		for i := range m.Len() {
			matched := must.Get(m.AtTake(i))(t)
			if key := matched.Claim.Key; matched.Outcome != rules.Limited || !strings.HasPrefix(key, tag) || matched.Rule.ID == "user" && !strings.HasSuffix(key, "alice") {
				t.Errorf("%s of %q: %q, want it behind %s", matched.Rule.ID, tenant, key, tag)
			}
		}
	}
	for client, want := range map[string]string{
		"{acme}alice": "{acme}alice", "{acme}{b}c": "{acme}{b}c", "{" + strings.Repeat("x", 64) + "}alice": "{" + strings.Repeat("x", 64) + "}alice",
		// what requests with such values have
		`{a\b}alice`: keyOf(`a\b`), "{" + strings.Repeat("x", 65) + "}alice": keyOf(strings.Repeat("x", 65)), keyOf(`a\b`): keyOf(`a\b`),
	} {
		if claims, err := set.ClientClaims("user", client); err != nil || len(claims) != 1 || claims[0].Key != want {
			t.Errorf("%s: %+v %v", client, claims, err)
		}
	}
	for _, client := range []string{"alice", "{}alice", "{acme}", `{acme}\ip:192.0.2.1`, `\ip:192.0.2.1`} {
		if claims, err := set.ClientClaims("user", client); err == nil {
			t.Errorf("%s is no client, and has %+v", client, claims)
		}
	}
	if matched, err := set.ClientMatch("user", "{acme}bob", nil); err != nil || matched.Outcome != rules.Banned {
		t.Errorf("an override: %+v %v", matched, err)
	}
	long := rules.Request{Path: "/", User: strings.Repeat("u", 250), Attributes: map[string]string{"tenant": "acme"}}
	var m rules.Matches
	must.Do(t, set.Match(&long, &m))
	for i := range m.Len() {
		if matched, err := m.AtTake(i); err != nil || len(matched.Claim.Key) > bounds.MaxKeyBytes || !strings.HasPrefix(matched.Claim.Key, "{acme}") {
			t.Errorf("%d: %+v %v", i, matched.Claim, err)
		}
	}
}

// A request without the attribute is treated as one that lacks a part of the scope, whatever its user is called: it shares
// no state with those that have it.
func TestPartitionMissing(t *testing.T) {
	for _, test := range []struct {
		missing rules.Missing
		scope   string
		outcome rules.Outcome
		key     string
	}{
		{rules.MissingSkip, rules.PerUser, rules.Skipped, ""},
		{rules.MissingDeny, rules.PerUser, rules.Lacking, ""},
		{rules.MissingIP, rules.PerUser, rules.Limited, `\ip:192.0.2.1`},
		{rules.MissingDeny, rules.Global, rules.Lacking, ""},
		{rules.MissingIP, rules.Global, rules.Limited, `\ip:192.0.2.1`},
		{rules.MissingDeny, rules.PerIP, rules.Lacking, ""},
		{rules.MissingIP, rules.PerIP, rules.Limited, `\ip:192.0.2.1`},
	} {
		r := rules.Rule{
			ID: "r", Scope: []string{test.scope}, Missing: test.missing, Limits: []stint.Limit{ten}, PartitionBy: "tenant",
		}
		set := compile(t, r)
		for _, attributes := range []map[string]string{nil, {"tenant": ""}} {
			var m rules.Matches
			must.Do(t, set.Match(&rules.Request{Path: "/", Address: "192.0.2.1", User: "{a}k", Attributes: attributes}, &m))
			matched, err := m.AtTake(0)
			if err != nil || matched.Outcome != test.outcome || matched.Claim.Key != test.key {
				t.Errorf("%v, %s: %v %q %v, want %v %q", test.missing, test.scope, matched.Outcome, matched.Claim.Key, err, test.outcome, test.key)
			}
			if lacks := m.Lacks(0); len(lacks) != 1 || lacks[0] != rules.Custom("tenant") {
				t.Errorf("%v, %s: it lacks %v", test.missing, test.scope, lacks)
			}
		}
		if test.key != "" {
			if claims, err := set.ClientClaims("r", test.key); err != nil || claims[0].Key != test.key {
				t.Errorf("%s: %+v %v", test.key, claims, err)
			}
		}
		r.Missing = rules.MissingUnset
		if _, err := rules.Compile([]rules.Rule{r}, rules.Options{}); err == nil {
			t.Errorf("%s: missing is not asked for", test.scope)
		}
	}
}

// TestNoPartition: of a rule without partition_by no attribute chooses the partition, not even one that has no name. Else a
// request would have another state for each value of it.
func TestNoPartition(t *testing.T) {
	set := compile(t, rules.Rule{ID: "all", Scope: []string{rules.Global}, Limits: []stint.Limit{ten}})
	var m rules.Matches
	must.Do(t, set.Match(&rules.Request{Path: "/", Attributes: map[string]string{"": "mine"}}, &m))
	if matched, err := m.AtTake(0); err != nil || matched.Claim.Key != "*" {
		t.Errorf("the client is %q, %v", matched.Claim.Key, err)
	}
}
