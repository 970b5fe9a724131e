// Package clientip finds the client of a request: its address, when there may be
// reverse proxies in between, and the key by which a limit counts it.
//
// Only what trusted proxies wrote is believed. If the peer is no trusted proxy, its address is the
// client's. Otherwise the header field that the proxies maintain is read from its end, past the
// addresses of trusted proxies, to the first other address. Addresses further left may come from
// the client itself, and are ignored. If an element is empty or no address, the proxy that wrote it
// is the client, for all of its own clients together. A peer without an address, as on a Unix
// socket, is no trusted proxy, and all such peers are one client, "unknown".
package clientip

import (
	"net/http"
	"net/netip"
	"strings"
)

// A Resolver finds clients. It is immutable and safe for concurrent use; make it with [New].
type Resolver struct {
	config Config
}

// New makes a resolver, or reports everything that is wrong with the configuration.
func New(config Config) (*Resolver, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Resolver{config: config.withDefaults()}, nil
}

// Key is the client's address as a key: an IPv4 address as it is, an IPv6 address as its network,
// such as 2001:db8:1:2::/64. It is "unknown" when the peer has no address, as on a Unix socket.
// Most peers are IPv4 addresses that no proxy stands before; their key is a part of the peer's own
// text, so that nothing is allocated.
func (r *Resolver) Key(peer string, header http.Header) string {
	host, addr := ipv4Of(peer)
	if host == "" {
		addr = parseHop(peer)
	}
	switch {
	case r.trusts(addr):
		return r.KeyOf(r.behind(addr, header))
	case host != "":
		return host
	default:
		return r.KeyOf(addr)
	}
}

// ipv4Of reads a peer as most come, an IPv4 address and a port, with the address as it is written,
// which is in one way only. It returns "" for anything else. It is strict: four numbers up to 255
// without leading zeros, a colon and a port. What is not so is left to package netip.
func ipv4Of(peer string) (host string, addr netip.Addr) {
	var numbers [4]byte
	at, digits, n := 0, 0, 0
	for i := range len(peer) {
		c := peer[i]
		switch {
		case '0' <= c && c <= '9' && (digits == 0 || n > 0):
			if n = n*10 + int(c-'0'); n > 255 {
				return "", netip.Addr{}
			}
			digits++
		case digits == 0:
			return "", netip.Addr{}
		case c == '.' && at < 3:
			numbers[at] = byte(n)
			at, digits, n = at+1, 0, 0
		case c == ':' && at == 3 && isPort(peer[i:]):
			numbers[at] = byte(n)
			return peer[:i], netip.AddrFrom4(numbers)
		default:
			return "", netip.Addr{}
		}
	}
	return "", netip.Addr{}
}

// KeyOf is the key of an address that [Resolver.Client] or [Parse] returned. IPv6 clients usually
// have a whole network of 64 bits, and could otherwise be a new client with each request.
func (r *Resolver) KeyOf(client netip.Addr) string {
	switch bits := r.config.IPv6Prefix; {
	case !client.IsValid():
		return "unknown"
	case client.Is4() || bits == client.BitLen():
		return client.String()
	default:
		return netip.PrefixFrom(client, bits).Masked().String()
	}
}

// Parse reads an address that somebody else than a proxy tells, in the forms that a proxy writes:
// with or without a port and a zone, which are left out. It reports false for anything else.
func Parse(text string) (netip.Addr, bool) {
	addr := parseHop(text)
	return addr, addr.IsValid()
}

// Client is the address that a request comes from, given the peer (host:port, as in
// http.Request.RemoteAddr) and the request's header. IPv4-mapped addresses come out as IPv4, and no
// address has a zone. The zero Addr means that the peer has no address.
func (r *Resolver) Client(peer string, header http.Header) netip.Addr {
	last := parseHop(peer)
	if !r.trusts(last) {
		return last
	}
	return r.behind(last, header)
}

// behind is the client behind a trusted peer. Of several header fields the first that is there
// decides; others may be the client's own.
func (r *Resolver) behind(last netip.Addr, header http.Header) netip.Addr {
	for _, name := range r.config.Headers {
		if lines, present := header[name]; present {
			return r.walk(last, lines)
		}
	}
	return last
}

// TrustsPeer reports whether the peer (host:port) is a trusted proxy.
func (r *Resolver) TrustsPeer(peer string) bool { return r.trusts(parseHop(peer)) }

// walk goes through the joined lines of a field from the right. last is the trusted hop to which
// the right-most element was told. Several lines of a field are one list (RFC 9110, section 5.3),
// whose last element was written by the last proxy. Each step to the left is believed only since
// the hop that told it is trusted.
func (r *Resolver) walk(last netip.Addr, lines []string) netip.Addr {
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; {
			var hop string
			line, hop, more = cutLast(line)
			addr := parseHop(hop)
			if !addr.IsValid() {
				return last
			}
			if !r.trusts(addr) {
				return addr
			}
			last = addr
		}
	}
	return last
}

// cutLast splits a list at its last comma.
func cutLast(list string) (before, last string, found bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// trusts reports whether an address is one of a trusted proxy; the zero Addr is in no network.
func (r *Resolver) trusts(addr netip.Addr) bool {
	for _, network := range r.config.TrustedProxies {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// parseHop reads an address with or without a port: 192.0.2.1, 192.0.2.1:80,
// 2001:db8::1, [2001:db8::1], [2001:db8::1]:80, each IPv6 address perhaps with a
// zone. It returns the zero Addr for anything else.
func parseHop(text string) netip.Addr { return parseHost(hostOf(text)) }

// hostOf is a hop without port and brackets, "" when that can't be an address. More than one colon
// without brackets is an IPv6 address without a port.
func hostOf(text string) string {
	text = strings.Trim(text, " \t")
	switch {
	case strings.HasPrefix(text, "["):
		end := strings.IndexByte(text, ']')
		if end < 0 || end+1 < len(text) && !isPort(text[end+1:]) {
			return ""
		}
		host := text[1:end]
		if strings.IndexByte(host, ':') < 0 {
			return "" // brackets are for IPv6
		}
		return host
	case strings.Count(text, ":") == 1:
		colon := strings.IndexByte(text, ':')
		if !isPort(text[colon:]) {
			return ""
		}
		return text[:colon]
	default:
		return text
	}
}

// parseHost reads an address without port. Zones are dropped, since they have a meaning on one
// machine only, and IPv4-mapped addresses are the IPv4 address.
func parseHost(host string) netip.Addr {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return addr.WithZone("").Unmap()
}

// isPort reports whether the text is a colon and a port, 0 to 65535.
func isPort(text string) bool {
	const longest = len(":65535")
	if len(text) < 2 || len(text) > longest || text[0] != ':' {
		return false
	}
	port := 0
	for i := 1; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
		port = port*10 + int(text[i]-'0')
	}
	return port <= 65535
}
