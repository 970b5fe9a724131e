package clientip

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// DefaultIPv6Prefix is how many leading bits of an IPv6 address name a client
// when nothing else is said: networks hand out no less than a /64.
const DefaultIPv6Prefix = 64

// DefaultHeaders returns the header fields that are believed from a trusted proxy
// when nothing else is said: X-Forwarded-For.
func DefaultHeaders() []string { return []string{"X-Forwarded-For"} }

// A Config says whom to believe. The zero value believes nobody: a client is its peer address.
type Config struct {
	// TrustedProxies are the networks of one's own reverse proxies. Only a peer in
	// one of them is believed. Default: none.
	TrustedProxies []netip.Prefix
	// Headers are the header fields that carry the client's address, the one that
	// counts first. Name only those that the proxies set themselves: any other is
	// passed on as the client wrote it. Default: nil, which is DefaultHeaders.
	Headers []string
	// IPv6Prefix is how many leading bits of an IPv6 address name a client, 1 to
	// 128. Default: 0, which is DefaultIPv6Prefix.
	IPv6Prefix int
}

// withDefaults returns the configuration with its defaults filled in and its
// networks and names in canonical form.
func (c Config) withDefaults() Config {
	if c.Headers == nil {
		c.Headers = DefaultHeaders()
	}
	if c.IPv6Prefix == 0 {
		c.IPv6Prefix = DefaultIPv6Prefix
	}
	c.Headers = slices.Clone(c.Headers)
	for i, name := range c.Headers {
		c.Headers[i] = http.CanonicalHeaderKey(name)
	}
	c.TrustedProxies = slices.Clone(c.TrustedProxies)
	for i, prefix := range c.TrustedProxies {
		c.TrustedProxies[i] = unmapPrefix(prefix)
	}
	return c
}

// unmapPrefix turns a network of IPv4-mapped addresses into one of IPv4.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	const mapped = 96
	if p.Addr().Is4In6() && p.Bits() >= mapped {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked()
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c Config) Validate() error {
	var faults []error
	for _, prefix := range c.TrustedProxies {
		if !prefix.IsValid() {
			faults = append(faults, stint.Invalid("TrustedProxies", prefix, "networks such as 10.0.0.0/8 or fd00::/8"))
		}
	}
	for _, name := range c.Headers {
		switch {
		case !IsFieldName(name):
			faults = append(faults, stint.Invalid("Headers", name, "names of header fields"))
		case strings.EqualFold(name, "Forwarded"):
			faults = append(faults, stint.Invalid("Headers", name,
				"fields that hold nothing but addresses, such as X-Forwarded-For or X-Real-IP"))
		}
	}
	if c.IPv6Prefix < 0 || c.IPv6Prefix > 128 {
		faults = append(faults, stint.Invalid("IPv6Prefix", c.IPv6Prefix, "1 to 128"))
	}
	return prefix.Join(faults...)
}

// IsFieldName reports whether the text can name a header field, for which it has to be a token
// (RFC 9110, section 5.6.2).
func IsFieldName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}
