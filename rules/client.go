package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
)

// An Outcome is what a rule that matches does with a request. The zero value is Limited.
type Outcome uint8

// The outcomes.
const (
	// Limited requests are decided by the rule's limits, or its override's.
	Limited Outcome = iota
	// Skipped requests lack what the rule's scope asks for, and it does not hold for them.
	Skipped
	// Unlimited requests are not limited by the rule.
	Unlimited
	// Banned requests are denied.
	Banned
	// Lacking requests are denied as they lack what the rule's scope asks for.
	Lacking
)

var outcomeNames = []string{"limited", "skipped", "unlimited", "banned", "lacking"}

// String is the outcome in a word.
func (s Outcome) String() string { return nameOf(outcomeNames, uint8(s)) }

// A Matched rule is one that matches, with what it makes of the request's client.
type Matched struct {
	// Rule must not be changed.
	Rule *Rule
	// Outcome says whether Claim is to be decided.
	Outcome Outcome
	// Claim is the client's key, the rule's policy for it, and the cost. It is empty unless
	// Outcome is Limited.
	Claim stint.Claim
	// And are further claims of the client where limits of the rule have other costs, each with a policy of its own
	// limits. Default: none.
	And []stint.Claim
	// Named is how many of the claims, Claim first, have costs that a request may name.
	Named int
}

// NeedsReserve reports whether only a Reserve can take of the rule's limits, as one of them is of concurrency.
func (h *Matched) NeedsReserve() bool {
	return h.Outcome == Limited && (h.Claim.Policy.NeedsReserve() ||
		slices.ContainsFunc(h.And, func(c stint.Claim) bool { return c.Policy.NeedsReserve() }))
}

// At tells what the i-th rule makes of the request. The error wraps stint.ErrInvalid: a cost
// that the request names and that is none.
//
// The claim's key is the client as an [Override] names it, with these exceptions, none of which can be the
// key of another client: an API key, and what is no printable text or longer than a key may be, appears as
// its SHA-256, behind \sha256: ; a client counted by address, as Missing says, appears behind \ip: .
func (m *Matches) At(i int) (Matched, error) { return m.match(i, false) }

// AtEnd is At for the end of what a client holds: one that an override bans by now has the rule's own limits.
func (m *Matches) AtEnd(i int) (Matched, error) { return m.match(i, true) }

func (m *Matches) match(i int, ending bool) (Matched, error) {
	c, address := &m.rules[i], m.request.Address
	h, t := Matched{Rule: &c.Rule}, &c.own
	lacks := m.appendClient(c) || c.PartitionBy != "" && m.partition(c) == ""
	switch {
	case !lacks:
		if o := c.overrideOf(m.key, m.address, address, &m.network); o != nil && (!ending || !o.bans()) {
			t = o
		}
	case c.Missing == MissingSkip:
		h.Outcome = Skipped
		return h, nil
	case c.Missing == MissingIP && address != "":
		m.key = appendPart(append(m.key[:0], fallbackPrefix...), PerIP, keyPart{text: address})
	default:
		h.Outcome = Lacking
		return h, nil
	}
	var key string
	switch string(m.key) { // without allocating what is there
	case address:
		key = address
	case "*":
		key = "*"
	default:
		key = string(bounded(m.key))
	}
	if value := m.partition(c); value != "" && !lacks {
		key = inPartition(partitionTag(value), key)
	}
	if err := h.decideBy(t, key, m.cost); err != nil {
		return Matched{Rule: h.Rule}, err
	}
	return h, nil
}

// decideBy makes the claims of a client, of which cost tells the permits, or says why there are none.
func (h *Matched) decideBy(t *terms, key string, cost func(*Cost) (int64, error)) error {
	switch {
	case t.unlimited:
		h.Outcome = Unlimited
	case t.bans():
		h.Outcome = Banned
	}
	for i := range t.groups {
		g := &t.groups[i]
		permits, err := cost(&g.cost)
		if err != nil {
			return err
		}
		claim := stint.Claim{Key: key, Policy: g.policy, Permits: permits}
		if i == 0 {
			h.Claim = claim
		} else {
			h.And = append(h.And, claim)
		}
		if g.named() {
			h.Named++
		}
	}
	return nil
}

// cost is what the request takes of limits.
func (m *Matches) cost(c *Cost) (int64, error) {
	text, named := "", ""
	switch {
	case c.Header != "":
		lines := m.request.Header[c.Header]
		if len(lines) > 1 {
			return 0, stint.Invalid(c.Header, strconv.Itoa(len(lines))+" lines", "one")
		}
		if len(lines) == 1 {
			text = lines[0]
		}
		named = c.Header
	case c.Attribute != "":
		text, named = m.request.Attributes[c.Attribute], c.Attribute
	}
	if text == "" {
		return c.Permits, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > stint.MaxPermits {
		const most = 64
		return 0, stint.Invalid(named, text[:min(len(text), most)], fmt.Sprintf("a cost, 1 to %d", stint.MaxPermits))
	}
	return n, nil
}

// appendClient writes the client's key into m.key, as long as it may be. It reports whether the request lacks a part.
func (m *Matches) appendClient(c *match) (lacks bool) {
	m.key = m.key[:0]
	for i, scope := range c.Scope {
		value := m.value(c, i)
		if value == "" {
			return true
		}
		if i > 0 {
			m.key = append(m.key, '|')
		}
		if scope == PerIP {
			m.address = len(m.key)
		}
		m.key = appendPart(m.key, scope, keyPart{text: value})
	}
	return false
}

// value is what the request has for a part of the rule's scope, "" if it lacks it.
func (m *Matches) value(c *match, i int) string {
	switch scope := c.Scope[i]; scope {
	case Global:
		return "*"
	case PerIP:
		return m.request.Address
	case PerUser:
		return m.request.User
	case PerAPIKey:
		return m.request.APIKey
	default:
		name := scope[len(CustomPrefix):]
		if c.parameters[i] {
			return m.parameter(c, name)
		}
		return m.request.Attributes[name]
	}
}

// partition is what the request has for the rule's PartitionBy.
func (m *Matches) partition(c *match) string { return m.request.Attributes[c.PartitionBy] }

// Lacks are the scopes of the i-th rule that the request has nothing for, in the rule's order, and the attribute of its
// PartitionBy as a scope: nil if it lacks nothing. PerIP is the last of them also where the request would be counted by its address as Missing
// says, and has none.
func (m *Matches) Lacks(i int) []string {
	c := &m.rules[i]
	var lacks []string
	for j, scope := range c.Scope {
		if m.value(c, j) == "" {
			lacks = append(lacks, scope)
		}
	}
	if attribute := Custom(c.PartitionBy); c.PartitionBy != "" && m.partition(c) == "" && !slices.Contains(lacks, attribute) {
		lacks = append(lacks, attribute)
	}
	if len(lacks) > 0 && c.Missing == MissingIP && m.request.Address == "" && !slices.Contains(lacks, PerIP) {
		lacks = append(lacks, PerIP)
	}
	return lacks
}

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
	tag := ""
	if !networks { // an override is one of all partitions
		var err error
		if tag, client, err = r.cutPartition(client); err != nil {
			return "", err
		}
	}
	if address, found := strings.CutPrefix(client, fallbackPrefix); found && r.Missing == MissingIP && tag == "" {
		if allowed := addressFault(address, bits, false); allowed != "" {
			return "", stint.Invalid("key", r.shownKey(client), "behind "+fallbackPrefix+" "+allowed)
		}
		return client, nil
	}
	parts, err := r.partsOf("key", client, bits, networks)
	if err != nil {
		return "", err
	}
	key, _ := r.keyOf(parts)
	return inPartition(tag, string(bounded(key))), nil
}

// ClientClaims are the key and the policies under which a rule may have counted a client: its own
// and that of the client's override. They carry no cost. The error wraps stint.ErrInvalid:
// there is no such rule, or it can have no such client.
func (s *Set) ClientClaims(id, client string) (claims []stint.Claim, err error) {
	c, key, o, err := s.client(id, client)
	if err != nil {
		return nil, err
	}
	groups := c.own.groups
	if o != nil {
		groups = slices.Concat(groups, o.groups)
	}
	for _, g := range groups {
		claims = append(claims, stint.Claim{Key: key, Policy: g.policy})
	}
	return claims, nil
}

// ClientMatch is what a rule makes of a client, as [Matches.At] has it; its claims have a cost of 1. Errors are those
// of ClientClaims.
func (s *Set) ClientMatch(id, client string) (Matched, error) {
	c, key, o, err := s.client(id, client)
	if err != nil {
		return Matched{}, err
	}
	if o == nil {
		o = &c.own
	}
	h := Matched{Rule: &c.Rule}
	return h, h.decideBy(o, key, func(*Cost) (int64, error) { return 1, nil })
}

// client finds the rule, the key and the override of a client, which is nil if it has none.
func (s *Set) client(id, client string) (c *compiled, key string, o *terms, err error) {
	if c = s.byID[id]; c == nil {
		return nil, "", nil, stint.Invalid("rule", id, "the ID of a rule in force")
	}
	if key, err = c.clientKey(client, s.bits, false); err != nil {
		return nil, "", nil, err
	}
	_, client, _ = c.cutPartition(client)
	if parts, err := splitKey("key", client, ""); err == nil { // not one that is counted by address
		text, start := c.keyOf(parts)
		address, buffer := "", []byte(nil)
		if at := slices.Index(c.Scope, PerIP); at >= 0 {
			address = parts[at].text
		}
		o = c.overrideOf(text, start, address, &buffer)
	}
	return c, key, o, nil
}

// overrideOf is the override of a client: its own, else that of the longest network that has its address; nil if there
// is none. The address is a part of the client's key, from start on.
func (c *compiled) overrideOf(key []byte, start int, address string, buffer *[]byte) *terms {
	if len(c.overrides) == 0 {
		return nil
	}
	o := c.overrides[string(bounded(key))]
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
		*buffer = append(network.AppendTo(append((*buffer)[:0], key[:start]...)), key[start+len(address):]...)
		if o := c.overrides[string(bounded(*buffer))]; o != nil {
			return o
		}
	}
	return nil
}

// partsOf takes a client of the rule apart, or reports why the rule can have no such client. With networks a part may
// stand for the addresses of several clients.
func (r *Rule) partsOf(param, client string, bits int, networks bool) ([]keyPart, error) {
	shown := r.shownKey(client)
	parts, err := splitKey(param, client, shown)
	switch {
	case err != nil:
		return nil, err
	case r.counts(Global) && client != "*":
		return nil, stint.Invalid(param, shown, "* with the scope global")
	case len(parts) != len(r.Scope):
		return nil, stint.Invalid(param, shown, fmt.Sprintf("%d parts joined by |, as the scope has", len(r.Scope)))
	}
	for i, p := range parts {
		if p.hashed && r.Scope[i] != PerAPIKey {
			return nil, stint.Invalid(param, shown, `\sha256: in the place of an API key only`)
		}
		if r.Scope[i] != PerIP {
			continue
		}
		if allowed := addressFault(p.text, bits, networks); allowed != "" {
			if len(r.Scope) > 1 {
				allowed = "in the place of " + PerIP + ": " + allowed
			}
			return nil, stint.Invalid(param, shown, allowed)
		}
	}
	return parts, nil
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

const (
	// fallbackPrefix begins the keys of clients that are counted by address, as [MissingIP] says.
	fallbackPrefix = `\ip:`
	// hashPrefix begins what stands for a text that is not shown: its SHA-256 in lower hexadecimal
	// digits follows. As a part of a client it can't be taken for a text, which has \\ for its \.
	hashPrefix = `\sha256:`
	// hashBytes is how long such a part is.
	hashBytes = len(hashPrefix) + 64
)

// A keyPart is one part of a client as an override names it.
type keyPart struct {
	text   string
	hashed bool // text is what stands for an API key: hashPrefix and its SHA-256
}

// splitKey takes an override's key apart. A fault shows it as shown.
func splitKey(param, key, shown string) ([]keyPart, error) {
	var parts []keyPart
	for rest, more := key, true; more; {
		part, after, ok := cutPart(rest)
		if !ok {
			return nil, stint.Invalid(param, shown, `a \ only before | and \`)
		}
		parts = append(parts, part)
		rest, more = strings.CutPrefix(after, "|")
	}
	if slices.ContainsFunc(parts, func(p keyPart) bool { return p.text == "" }) {
		return nil, stint.Invalid(param, shown, "a client, of which no part is empty")
	}
	return parts, nil
}

// cutPart takes the first part off a key. The rest begins with | or is "".
func cutPart(key string) (part keyPart, after string, ok bool) {
	if hash, after := cutHash(key); hash != "" {
		return keyPart{hash, true}, after, true
	}
	var text []byte
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c == '|':
			return keyPart{text: string(text)}, key[i:], true
		case c == '\\' && i+1 < len(key) && (key[i+1] == '|' || key[i+1] == '\\'):
			i++
			text = append(text, key[i])
		case c == '\\':
			return keyPart{}, "", false
		default:
			text = append(text, c)
		}
	}
	return keyPart{text: string(text)}, "", true
}

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

// keyOf is the key of a client, as long as it may be, and where in it the client's address begins.
func (r *Rule) keyOf(parts []keyPart) (key []byte, address int) {
	for i, p := range parts {
		if i > 0 {
			key = append(key, '|')
		}
		if r.Scope[i] == PerIP {
			address = len(key)
		}
		key = appendPart(key, r.Scope[i], p)
	}
	return key, address
}

// appendPart appends a part of a client's key: as an override writes it, or its hash if it can't be shown.
func appendPart(key []byte, scope string, p keyPart) []byte {
	switch {
	case p.hashed:
		return append(key, p.text...)
	case scope == PerAPIKey || !isPrintable(p.text):
		return append(key, hashed(escape(nil, p.text))...)
	default:
		return escape(key, p.text)
	}
}

// bounded is the text as a key, or its hash if it is too long for one.
func bounded(text []byte) []byte {
	if len(text) <= stint.MaxKeyBytes {
		return text
	}
	return []byte(hashed(text))
}

func hashed(text []byte) string {
	sum := sha256.Sum256(text)
	return hashPrefix + hex.EncodeToString(sum[:])
}

// HashedClient is what stands for a client, or a part of one, of which nothing may be shown: \sha256:
// and its SHA-256. It is the text itself if that is one already.
func HashedClient(client string) string {
	if hash, after := cutHash(client); hash != "" && after == "" {
		return client
	}
	return hashed([]byte(client))
}

// JoinKey writes the parts of a client as an [Override] names it.
func JoinKey(parts ...string) string {
	var key []byte
	for i, part := range parts {
		if i > 0 {
			key = append(key, '|')
		}
		key = escape(key, part)
	}
	return string(key)
}

// escape appends a part of a client so that it does not end before its end.
func escape(key []byte, part string) []byte {
	for i := range len(part) {
		if part[i] == '|' || part[i] == '\\' {
			key = append(key, '\\')
		}
		key = append(key, part[i])
	}
	return key
}

const (
	// defaultIPv6Prefix is by how many bits of their address IPv6 clients are counted, as package clientip has it.
	defaultIPv6Prefix = 64
	// noAddress is the key of clients without an address, as on a Unix socket.
	noAddress = "unknown"
)

// addressFault says what would be right where a text is not the key of a client by its address, as
// clientip.Resolver.KeyOf writes it: an IPv4 address, an IPv6 network of so many bits, or unknown; with networks it may
// also be a network of several clients. bits 0 stands for any number. It is "" if nothing is wrong: no request has
// another key.
func addressFault(text string, bits int, networks bool) (allowed string) {
	if text == noAddress || isAddressKey(text, bits) {
		return ""
	}
	address, length, ok := readAddress(text)
	most := cmp.Or(bits, address.BitLen())
	if !networks {
		most = cmp.Or(bits, defaultIPv6Prefix)
	}
	shorter := ok && length < address.BitLen() && (address.Is4() || length < most)
	if networks && shorter {
		if canonical := netip.PrefixFrom(address, length).Masked().String(); canonical != text {
			return canonical + ", as the network is written"
		}
		return ""
	}
	if bits == 0 {
		bits = defaultIPv6Prefix
	}
	switch {
	case ok && networks && address.Is6() && length > bits && strings.Contains(text, "/"):
		return fmt.Sprintf(
			"a network of up to %d bits, by which IPv6 clients are counted (ipv6_prefix), such as %s", bits,
			addressKey(address, bits),
		)
	case ok && !shorter:
		return addressKey(address, bits) + ", by which the client is counted"
	case ok && address.Is4():
		return "a single address of IPv4, by which clients are counted"
	case ok:
		return networkForm(bits) + ", by which clients are counted"
	case networks:
		return fmt.Sprintf("an IPv4 address such as 192.0.2.1, %s, a network such as 10.0.0.0/8 or 2001:db8::/32, or %s", networkForm(bits), noAddress)
	default:
		return fmt.Sprintf("an IPv4 address such as 192.0.2.1, %s, or %s", networkForm(bits), noAddress)
	}
}

// isAddressKey reports whether the text is the key of an address, with any number of bits if that is 0.
func isAddressKey(text string, bits int) bool {
	address, length, ok := readAddress(text)
	if !ok || address.Is4() || bits != 0 {
		return ok && addressKey(address, bits) == text
	}
	return length > 0 && addressKey(address, length) == text
}

// addressKey is the key of an address.
func addressKey(address netip.Addr, bits int) string {
	if address.Is4() || bits == address.BitLen() {
		return address.String()
	}
	return netip.PrefixFrom(address, bits).Masked().String()
}

// networkForm is what the key of an IPv6 address is like.
func networkForm(bits int) string {
	example := addressKey(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 5: 1, 7: 2, 15: 1}), bits)
	if !strings.Contains(example, "/") {
		return "an IPv6 address such as " + example
	}
	return fmt.Sprintf("an IPv6 network of %d bits such as %s", bits, example)
}

// readAddress reads an address or a network as people write them, with how many bits of it count.
func readAddress(text string) (address netip.Addr, length int, ok bool) {
	text = strings.TrimSpace(text)
	if network, err := netip.ParsePrefix(text); err == nil && !network.Addr().Is4In6() {
		return network.Addr(), network.Bits(), true
	}
	if peer, err := netip.ParseAddrPort(text); err == nil {
		text = peer.Addr().String()
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	address = address.WithZone("").Unmap()
	return address, address.BitLen(), err == nil
}
