package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/stint-go/stint"
)

const (
	// defaultIPv6Prefix is by how many bits of their address IPv6 clients are counted, as package clientip has it.
	defaultIPv6Prefix = 64
	// noAddress is the key of clients without an address, as on a Unix socket.
	noAddress = "unknown"
)

// addressFault says what would be right where a text is not the key of a client by its address, as
// clientip.Resolver.KeyOf writes it: an IPv4 address, an IPv6 network of so many bits, or unknown; with networks it may
// also be a network of several clients. bits 0 stands for any number. It is "" if nothing is wrong: no request has another key.
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
		return fmt.Sprintf("a network of up to %d bits, by which IPv6 clients are counted (ipv6_prefix), such as %s", bits, addressKey(address, bits))
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

// addressFault returns what is wrong with the parts of a client that are addresses: nil, or an error that
// shows the client as shown. They may be networks of several clients if so.
func (r *Rule) addressFault(param, shown string, parts []keyPart, bits int, networks bool) error {
	for i, p := range parts {
		if i >= len(r.Scope) || r.Scope[i] != PerIP {
			continue
		}
		allowed := addressFault(p.text, bits, networks)
		if allowed == "" {
			continue
		}
		if len(r.Scope) > 1 {
			allowed = "in the place of " + PerIP + ": " + allowed
		}
		return stint.Invalid(param, shown, allowed)
	}
	return nil
}

// fallbackKey is the key of a client by address, of those who lack what the scope asks for.
func (r *Rule) fallbackKey(address string, bits int) (string, error) {
	client := fallbackPrefix + address
	if allowed := addressFault(address, bits, false); allowed != "" {
		return "", stint.Invalid("key", r.shownKey(client), "behind "+fallbackPrefix+" "+allowed)
	}
	return client, nil
}
