package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// fallbackPrefix begins the keys of those who are counted by address as [MissingIP] says.
const fallbackPrefix = `\ip:`

// ClientKey is the key under which the state of a client is kept whom an [Override] would name so,
// as [Matches.Held] has it. Behind \ip: it is an address of those who are counted by address as
// Missing says. It holds no API key, so it may be shown. The error wraps stint.ErrInvalid:
// the rule can have no such client. An IPv6 network may have any number of bits here; by which
// clients are counted a [Set] knows.
func (r *Rule) ClientKey(client string) (string, error) { return r.clientKey(client, 0) }

// clientKey is ClientKey where IPv6 clients are counted by so many bits; 0 stands for any number.
func (r *Rule) clientKey(client string, bits int) (string, error) {
	if address, found := strings.CutPrefix(client, fallbackPrefix); found && r.Missing == MissingIP {
		return r.fallbackKey(address, bits)
	}
	shown := r.shownKey(client)
	values, err := splitKey(client, shown)
	switch {
	case err != nil:
		return "", err
	case r.counts(Global) && client != "*":
		return "", stint.Invalid("key", shown, "* with the scope global")
	case len(values) != len(r.Scope):
		return "", stint.Invalid("key", shown, fmt.Sprintf("%d parts joined by |, as the scope has", len(r.Scope)))
	case r.misplacesHash(values):
		return "", stint.Invalid("key", shown, `\sha256: in the place of an API key only`)
	}
	if err := r.addressFault("key", shown, values, bits); err != nil {
		return "", err
	}
	scope, plain := partsOf(r), true
	for i, value := range values {
		if value.hashed && len(scope) == 1 {
			return client, nil
		}
		plain = plain && scope[i].kind != apiKeyPart && isPrintable(value.text)
	}
	return keyOf(scope, []byte(client), plain, func(i int) (string, bool) { return values[i].text, values[i].hashed }), nil
}

// shownKey is a client as a fault names it, which more people read than an API key.
func (r *Rule) shownKey(client string) string {
	if r.counts(PerAPIKey) {
		return fmt.Sprintf("one of %d bytes", len(client))
	}
	return client
}

// counts reports whether the scope has a part.
func (r *Rule) counts(scope string) bool { return slices.Contains(r.Scope, scope) }

// ClientClaims are the key and the policies under which a rule may have counted a client: its own
// and that of the client's override. They carry no cost. The error wraps stint.ErrInvalid:
// there is no such rule, or it can have no such client.
func (s *Set) ClientClaims(id, client string) ([]stint.Claim, error) {
	c := s.byID[id]
	if c == nil {
		return nil, stint.Invalid("rule", id, "the ID of a rule in force")
	}
	key, err := c.clientKey(client, s.bits)
	if err != nil {
		return nil, err
	}
	var claims []stint.Claim
	if c.policy != nil {
		claims = append(claims, stint.Claim{Key: key, Policy: c.policy})
	}
	if o := c.overrideOf(client); o != nil && o.policy != nil {
		claims = append(claims, stint.Claim{Key: key, Policy: o.policy})
	}
	return claims, nil
}

// overrideOf is the override of a client, whether it or the client names the API key by its hash;
// nil if there is none.
func (c *compiled) overrideOf(client string) *override {
	if o := c.overrides[client]; o != nil || !c.counts(PerAPIKey) {
		return o
	}
	client = c.hashedClient(client)
	for name, o := range c.overrides {
		if c.hashedClient(name) == client {
			return o
		}
	}
	return nil
}
