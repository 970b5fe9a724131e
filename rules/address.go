package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/stint-go/stint"
)

const (
	// defaultIPv6Prefix is by how many bits of their address IPv6 clients are counted, as package clientip has it.
	defaultIPv6Prefix = 64
	// noAddress is the key of who has no address, as on a Unix socket.
	noAddress = "unknown"
)

// addressFault says what would be right where a text is not the key of a client by its address, as
// clientip.Resolver.KeyOf writes it: an IPv4 address, an IPv6 network of so many bits, or unknown. bits 0 stands
// for any number. It is "" if nothing is wrong: no request has another key.
func addressFault(text string, bits int) (allowed string) {
	if text == noAddress || isAddressKey(text, bits) {
		return ""
	}
	if bits == 0 {
		bits = defaultIPv6Prefix
	}
	address, length, ok := readAddress(text)
	switch {
	case !ok:
		return fmt.Sprintf("an IPv4 address such as 192.0.2.1, %s, or %s", networkForm(bits), noAddress)
	case length == address.BitLen(), address.Is6() && length >= bits:
		return addressKey(address, bits) + ", by which the client is counted"
	case address.Is4():
		return "single addresses of IPv4: their networks are not overridden one by one"
	default:
		return networkForm(bits) + ", by which clients are counted"
	}
}

// isAddressKey reports whether the text is the key of an address, with any number of bits if that is 0.
func isAddressKey(text string, bits int) bool {
	address, length, ok := readAddress(text)
	if !ok || address.Is4() || bits != 0 {
		return ok && addressKey(address, bits) == text
	}
	return addressKey(address, length) == text
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
		return network.Addr(), network.Bits(), network.Bits() > 0 || network.Addr().Is4()
	}
	if peer, err := netip.ParseAddrPort(text); err == nil {
		text = peer.Addr().String()
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	address = address.WithZone("").Unmap()
	return address, address.BitLen(), err == nil
}

// addressFault returns what is wrong with the parts of a client that are addresses: nil, or an error that
// shows the client as shown.
func (r *Rule) addressFault(param, shown string, parts []keyPart, bits int) error {
	for i, p := range parts {
		if i >= len(r.Scope) || r.Scope[i] != PerIP {
			continue
		}
		allowed := addressFault(p.text, bits)
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
	if allowed := addressFault(address, bits); allowed != "" {
		return "", stint.Invalid("key", r.shownKey(client), "behind "+fallbackPrefix+" "+allowed)
	}
	return client, nil
}
