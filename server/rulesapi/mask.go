package rulesapi

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// hashPrefix begins a client, or a part of one, of which the SHA-256 is shown.
const hashPrefix = `\sha256:`

// shownClient is a client of a rule as it may be shown to all: with the SHA-256 of an API key.
func shownClient(rule *rules.Rule, client string) string {
	if !slices.Contains(rule.Scope, rules.PerAPIKey) {
		return client
	}
	if shown, err := rule.ClientKey(client); err == nil {
		return shown
	}
	sum := sha256.Sum256([]byte(client)) // of a rule that can't be enforced
	return hashPrefix + hex.EncodeToString(sum[:])
}

// masked is a rule as the caller sees it. Its tag is that of the rule itself.
func (c *Call) masked(rule rules.Rule) rules.Rule {
	if c.caller.SeesKeys || len(rule.Overrides) == 0 || !slices.Contains(rule.Scope, rules.PerAPIKey) {
		return rule
	}
	rule.Overrides = slices.Clone(rule.Overrides)
	for i := range rule.Overrides {
		rule.Overrides[i].Key = shownClient(&rule, rule.Overrides[i].Key)
	}
	return rule
}

// maskedVersion is a version as the caller sees it.
func (c *Call) maskedVersion(v registry.Version) registry.Version {
	v.Changes = slices.Clone(v.Changes)
	for i := range v.Changes {
		for _, side := range []**rules.Rule{&v.Changes[i].Before, &v.Changes[i].After} {
			if *side != nil {
				shown := c.masked(**side)
				*side = &shown
			}
		}
	}
	return v
}

// place is where a client's override is in a rule, -1 if there is none. The client and the override
// may name an API key each by itself or by its hash.
func place(rule *rules.Rule, client string) int {
	at := slices.IndexFunc(rule.Overrides, func(o rules.Override) bool { return o.Key == client })
	if at < 0 && slices.Contains(rule.Scope, rules.PerAPIKey) {
		client = shownClient(rule, client)
		at = slices.IndexFunc(rule.Overrides, func(o rules.Override) bool { return shownClient(rule, o.Key) == client })
	}
	return at
}
