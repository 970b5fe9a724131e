package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// All claims of a request whose rules have partition_by have one hash tag, whatever the rules count by; a client is another
// one under another value, and named with it where clients are named.
func TestPartitionBy(t *testing.T) {
	limits := []stint.Limit{stint.FixedWindow(5, time.Minute)}
	set := compile(t,
		rules.Rule{ID: "tenant", Scope: []string{rules.Custom("tenant")}, Missing: rules.MissingSkip, Limits: limits, PartitionBy: "tenant"},
		rules.Rule{
			ID: "user", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip, Limits: limits, PartitionBy: "tenant",
			Overrides: []rules.Override{{Key: "bob", Banned: true}},
		},
	)
	for tenant, tag := range map[string]string{
		"acme": "{acme}", "": "", "a{b}c": "{0c81d082effbfc200f529870c4baa760}", strings.Repeat("x", 65): "{",
	} {
		var m rules.Matches
		r := rules.Request{Path: "/", User: "alice", Attributes: map[string]string{"tenant": tenant}}
		if err := set.Match(&r, &m); err != nil {
			t.Fatal(err)
		}
		for i := range m.Len() {
			matched, err := m.At(i)
			if err != nil {
				t.Fatal(err)
			}
			if key := matched.Claim.Key; matched.Outcome == rules.Limited && !strings.HasPrefix(key, tag) || matched.Rule.ID == "user" && !strings.HasSuffix(key, "alice") {
				t.Errorf("%s of %q: %q, want it behind %s", matched.Rule.ID, tenant, key, tag)
			}
		}
	}
	for client, want := range map[string]string{"{acme}alice": "{acme}alice", "alice": "alice"} {
		if claims, err := set.ClientClaims("user", client); err != nil || len(claims) != 1 || claims[0].Key != want {
			t.Errorf("%s: %+v %v", client, claims, err)
		}
	}
	if matched, err := set.ClientMatch("user", "{acme}bob"); err != nil || matched.Outcome != rules.Banned {
		t.Errorf("an override: %+v %v", matched, err)
	}
	long := rules.Request{Path: "/", User: strings.Repeat("u", 250), Attributes: map[string]string{"tenant": "acme"}}
	var m rules.Matches
	if err := set.Match(&long, &m); err != nil {
		t.Fatal(err)
	}
	for i := range m.Len() {
		if matched, err := m.At(i); err != nil || len(matched.Claim.Key) > stint.MaxKeyBytes || !strings.HasPrefix(matched.Claim.Key, "{acme}") {
			t.Errorf("%d: %+v %v", i, matched.Claim, err)
		}
	}
}
