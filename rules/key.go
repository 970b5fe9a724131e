package rules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// partsOf takes a client of the rule apart, or reports why the rule can have no such client. With
// networks a part may stand for the addresses of several clients. A fault shows the client as
// shown. It is the same check for what an override names, what a caller asks about, and what is
// read back from a store: all of them are the text of a client.
func (r *Rule) partsOf(param, client, shown string, bits int, networks bool) ([]keyPart, error) {
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
		if !isPerIP(r.Scope[i]) {
			continue
		}
		if allowed := addressFault(p.text, r.masks(bits), networks); allowed != "" {
			if len(r.Scope) > 1 {
				allowed = "in the place of " + PerIP + ": " + allowed
			}
			return nil, stint.Invalid(param, shown, allowed)
		}
	}
	return parts, nil
}

// readKey is the key of a client as the rule's text writes it, with its parts, or why the rule can have
// no such client. bits are those by which IPv6 clients are counted; 0 stands for any number.
func (r *Rule) readKey(param, client string, bits int, networks bool) (key string, parts []keyPart, err error) {
	parts, err = r.partsOf(param, client, r.shownKey(client), bits, networks)
	if err != nil {
		return "", nil, err
	}
	text, _ := r.keyOf(parts)
	return string(bounded(text)), parts, nil
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

// A keyPart is one part of a client as an override names it. text is without its escapes.
type keyPart struct {
	text string
	// text is what stands for an API key: hashPrefix and its SHA-256
	hashed bool
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
//
//	and \ are escaped by \; any other \ is a fault, so that each client is written in one way only.
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

// cutHash takes a part that stands for an API key off a client; "" if there is none at its
// beginning.
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
		if isPerIP(r.Scope[i]) {
			address = len(key)
		}
		key = appendPart(key, r.Scope[i], p)
	}
	return key, address
}

// appendPart appends a part of a client's key: as an override writes it, or its hash if it can't be
// shown. The hash is of the escaped text, so that the part of a key hashes as HashedClient would
// hash it.
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

// bounded is the text as a key, or its hash if it is too long for one. A hash of the whole stands
// for a key that is too long: different clients still have different keys, for all practical
// purposes.
func bounded(text []byte) []byte {
	if len(text) <= bounds.MaxKeyBytes {
		return text
	}
	return []byte(hashed(text))
}

// hashed is what stands for a text that is not shown: hashPrefix and its SHA-256.
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
	if strings.IndexByte(part, '|') < 0 && strings.IndexByte(part, '\\') < 0 {
		return append(key, part...)
	}
	for i := range len(part) {
		if part[i] == '|' || part[i] == '\\' {
			key = append(key, '\\')
		}
		key = append(key, part[i])
	}
	return key
}

const (
	// defaultIPv6Prefix is by how many bits of their address IPv6 clients are counted, as package
	// clientip has it.
	defaultIPv6Prefix = 64
	// noAddress is the key of clients without an address, as on a Unix socket.
	noAddress = "unknown"
)

// addressFault says what would be right where a text is not the key of a client by its address, as
// clientip.Resolver.KeyOf writes it: an IPv4 address, an IPv6 network of so many bits, or unknown; of rules that count
// networks, an IPv4 network. With networks it may also be a network of several clients. It is ""
// if nothing is wrong: no request has another key. What it says is what the author would have to
// write: the network by which an address is counted, or the canonical form of a network.
func addressFault(text string, of masks, networks bool) (allowed string) {
	if text == noAddress || isAddressKey(text, of) {
		return ""
	}
	address, length, ok := readAddress(text)
	most := cmp.Or(of[ipVersion(address)], address.BitLen())
	of[1] = cmp.Or(of[1], defaultIPv6Prefix)
	bits := of[ipVersion(address)]
	if !networks {
		most = bits
	}
	shorter := ok && length < most
	if networks && shorter {
		if canonical := netip.PrefixFrom(address, length).Masked().String(); canonical != text {
			return canonical + ", as the network is written"
		}
		return ""
	}
	switch {
	case ok && networks && (address.Is6() || bits < 32) && length > bits && strings.Contains(text, "/"):
		return fmt.Sprintf("a network of up to %d bits, by which IPv%d clients are counted, such as %s", bits,
			4+2*ipVersion(address), addressKey(address, bits))
	case ok && !shorter:
		return addressKey(address, bits) + ", by which the client is counted"
	case ok && address.Is4() && bits == 32:
		return "a single address of IPv4, by which clients are counted"
	case ok:
		return of.form(ipVersion(address)) + ", by which clients are counted"
	case networks:
		return fmt.Sprintf("%s, %s, a network such as 10.0.0.0/8 or 2001:db8::/32, or %s", of.form(0), of.form(1), noAddress)
	default:
		return fmt.Sprintf("%s, %s, or %s", of.form(0), of.form(1), noAddress)
	}
}

// isAddressKey reports whether the text is the key of an address, with any number of bits if that
// is 0.
func isAddressKey(text string, of masks) bool {
	address, length, ok := readAddress(text)
	bits := cmp.Or(of[ipVersion(address)], length)
	return ok && bits > 0 && addressKey(address, bits) == text
}

// addressKey is the key of an address.
func addressKey(address netip.Addr, bits int) string {
	if bits == address.BitLen() {
		return address.String()
	}
	return netip.PrefixFrom(address, bits).Masked().String()
}

// form is what the key of an address is like.
func (p masks) form(version int) string {
	address := netip.AddrFrom4([4]byte{192, 0, 2, 1})
	if version == 1 {
		address = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 5: 1, 7: 2, 15: 1})
	}
	example := addressKey(address, p[version])
	if !strings.Contains(example, "/") {
		return fmt.Sprintf("an IPv%d address such as %s", 4+2*version, example)
	}
	return fmt.Sprintf("an IPv%d network of %d bits such as %s", 4+2*version, p[version], example)
}

// readAddress reads an address or a network as people write them, with how many bits of it count.
// It takes more than keys can be, with ports, zones and brackets, so that a fault can say what was
// probably meant.
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
