package rules

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// fallbackPrefix begins the keys of clients that are counted by address, as [MissingIP] says.
const fallbackPrefix = `\ip:`

// ClientKey is the key under which the state of a client is kept whom an [Override] would name so,
// as [Matches.At] has it. Behind \ip: it is an address of clients that are counted by address, as
// Missing says. It holds no API key, so it may be shown. The error wraps stint.ErrInvalid:
// the rule can have no such client. An IPv6 network may have any number of bits here; by which
// clients are counted a [Set] knows.
func (r *Rule) ClientKey(client string) (string, error) { return r.clientKey(client, 0, false) }

// OverrideKey is ClientKey for the key of an override, which may also name a network: a text that holds no API key.
func (r *Rule) OverrideKey(key string) (string, error) { return r.clientKey(key, 0, true) }

// clientKey is ClientKey where IPv6 clients are counted by so many bits; 0 stands for any number.
func (r *Rule) clientKey(client string, bits int, networks bool) (string, error) {
	if address, found := strings.CutPrefix(client, fallbackPrefix); found && r.Missing == MissingIP {
		return r.fallbackKey(address, bits)
	}
	values, err := r.partsOf("key", client, bits, networks)
	if err != nil {
		return "", err
	}
	scope, plain := scopeOf(r), true
	for i, value := range values {
		if value.hashed && len(scope) == 1 {
			return client, nil
		}
		plain = plain && scope[i].kind != apiKeyPart && isPrintable(value.text)
	}
	return keyOf(scope, []byte(client), plain, func(i int) (string, bool) { return values[i].text, values[i].hashed }), nil
}

// partsOf takes a client of the rule apart, or reports why the rule can have no such client.
func (r *Rule) partsOf(param, client string, bits int, networks bool) ([]keyPart, error) {
	shown := r.shownKey(client)
	values, err := splitKey(param, client, shown)
	switch {
	case err != nil:
		return nil, err
	case r.counts(Global) && client != "*":
		return nil, stint.Invalid(param, shown, "* with the scope global")
	case len(values) != len(r.Scope):
		return nil, stint.Invalid(param, shown, fmt.Sprintf("%d parts joined by |, as the scope has", len(r.Scope)))
	}
	for i, p := range values {
		if p.hashed && r.Scope[i] != PerAPIKey {
			return nil, stint.Invalid(param, shown, `\sha256: in the place of an API key only`)
		}
	}
	return values, r.addressFault(param, shown, values, bits, networks)
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
func (s *Set) ClientClaims(id, client string) (claims []stint.Claim, err error) {
	c, key, o, err := s.client(id, client)
	if err != nil {
		return nil, err
	}
	for _, g := range slices.Concat(c.groups, o.groups) {
		claims = append(claims, stint.Claim{Key: key, Policy: g.policy})
	}
	return claims, nil
}

// ClientMatch is what a rule makes of a client, as [Matches.At] has it; its claims have a cost of 1. Errors are those of ClientClaims.
func (s *Set) ClientMatch(id, client string) (Matched, error) {
	c, key, o, err := s.client(id, client)
	if err != nil {
		return Matched{}, err
	}
	groups, unlimited := c.groups, c.Unlimited
	if o != &none {
		groups, unlimited = o.groups, o.unlimited
	}
	h := Matched{Rule: &c.Rule}
	switch {
	case unlimited:
		h.Outcome = Unlimited
	case len(groups) == 0:
		h.Outcome = Banned
	}
	return h, h.claim(key, groups, func(*Cost) (int64, error) { return 1, nil })
}

// none is the override of a client without one.
var none override

// client finds the rule, the key and the override of a client.
func (s *Set) client(id, client string) (c *compiled, key string, o *override, err error) {
	if c = s.byID[id]; c == nil {
		return nil, "", nil, stint.Invalid("rule", id, "the ID of a rule in force")
	}
	if key, err = c.clientKey(client, s.bits, false); err != nil {
		return nil, "", nil, err
	}
	if o = c.overrideOfNamed(client); o == nil {
		o = &none
	}
	return c, key, o, nil
}

// overrideOfNamed is the override of a client, whether it or the client names the API key by its hash; nil if there is none.
func (c *compiled) overrideOfNamed(client string) *override {
	parts, _ := splitKey("key", client, "")
	if c.counts(PerAPIKey) && !c.hashed {
		byHash := make(map[string]*override, len(c.overrides))
		for name, o := range c.overrides {
			byHash[c.hashedClient(name)] = o
		}
		c = &compiled{Rule: c.Rule, overrides: byHash, hashed: true, networks: c.networks}
	}
	start, address := 0, ""
	for i, p := range parts {
		if i < len(c.Scope) && c.Scope[i] == PerIP {
			address = p.text
			break
		}
		start += len(p.name()) + 1
	}
	var buffer []byte
	return c.overrideOf([]byte(client), start, address, &buffer)
}

// overrideOf is the override of a client: its own, else that of the longest network that has its address; nil if there is none. The
// address is a part of the client's text, from start on.
func (c *compiled) overrideOf(client []byte, start int, address string, buffer *[]byte) *override {
	o := c.override(client)
	if o != nil || len(c.networks[0])+len(c.networks[1]) == 0 || address == noAddress {
		return o
	}
	host, _, _ := strings.Cut(address, "/")
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	for _, length := range c.networks[ip.BitLen()/128] {
		network, _ := ip.Prefix(length) // as long as the address at most
		*buffer = append(network.AppendTo(append((*buffer)[:0], client[:start]...)), client[start+len(address):]...)
		if o := c.override(*buffer); o != nil {
			return o
		}
	}
	return nil
}

// override is the override of a text.
func (c *compiled) override(client []byte) *override {
	if c.hashed {
		return c.overrides[c.hashedClient(string(client))]
	}
	return c.overrides[string(client)]
}

// networksOf are the lengths of the networks that overrides have in the place of an address, the longest first: of IPv4, and of IPv6.
func networksOf(rule *Rule) (lengths [2][]int) {
	at := slices.Index(rule.Scope, PerIP)
	if at < 0 {
		return lengths
	}
	for i := range rule.Overrides {
		parts, err := splitKey("key", rule.Overrides[i].Key, "")
		if err != nil {
			continue
		}
		if network, err := netip.ParsePrefix(parts[at].text); err == nil {
			of := &lengths[network.Addr().BitLen()/128]
			if place, known := slices.BinarySearchFunc(*of, network.Bits(), func(a, b int) int { return b - a }); !known {
				*of = slices.Insert(*of, place, network.Bits())
			}
		}
	}
	return lengths
}

// hashPrefix begins what stands for a text that is not shown: its SHA-256 in lower hexadecimal
// digits follows. As a part of a client it can't be taken for a text, which has \\ for its \.
const hashPrefix = `\sha256:`

// hashBytes is how long such a part is.
const hashBytes = len(hashPrefix) + 64

// cutHash takes a part that stands for an API key off a client; "" if there is none at its beginning.
func cutHash(client string) (hash, after string) {
	digits, found := strings.CutPrefix(client, hashPrefix)
	if !found || len(client) < hashBytes || len(client) > hashBytes && client[hashBytes] != '|' {
		return "", ""
	}
	digits = digits[:hashBytes-len(hashPrefix)]
	if _, err := hex.DecodeString(digits); err != nil || strings.ToLower(digits) != digits {
		return "", ""
	}
	return client[:hashBytes], client[hashBytes:]
}

// HashedClient is what stands for a client, or a part of one, of which nothing may be shown: \sha256:
// and its SHA-256. It is the text itself if that is one already.
func HashedClient(client string) string {
	if hash, after := cutHash(client); hash != "" && after == "" {
		return client
	}
	return hashed(client)
}

// hashedClient is a client, as an [Override] names it, with the hash of its API key: the same for all
// names of a client. It is the name itself where the scope has no API key.
func (r *Rule) hashedClient(client string) string {
	if !r.counts(PerAPIKey) {
		return client
	}
	parts, err := splitKey("key", client, "")
	if err != nil || len(parts) != len(r.Scope) {
		return client
	}
	return joinHashed(r.Scope, func(i int) string { return parts[i].name() })
}

// name is the part as an override writes it.
func (p keyPart) name() string {
	if p.hashed {
		return p.text
	}
	return JoinKey(p.text)
}

// joinHashed joins the parts of a client, as overrides write them, with the hash of API keys.
func joinHashed(scope []string, part func(int) string) string {
	var client []byte
	for i := range scope {
		if i > 0 {
			client = append(client, '|')
		}
		name := part(i)
		if scope[i] == PerAPIKey && !strings.HasPrefix(name, hashPrefix) {
			name = hashed(name)
		}
		client = append(client, name...)
	}
	return string(client)
}

// namesHashes reports whether an override of the rule names an API key by its hash.
func (r *Rule) namesHashes() bool {
	return r.counts(PerAPIKey) && slices.ContainsFunc(r.Overrides, func(o Override) bool { return strings.Contains(o.Key, hashPrefix) })
}
