package rules

import (
	"net/netip"
	"strings"
)

// A hostPattern is a host's name, and whether the names below it are meant. *.example.com means the
// names below example.com, and not that name itself.
type hostPattern struct {
	name  string
	below bool
}

// parseHostPattern reads a name such as api.example.com, or *.example.com. A pattern that a
// request's host could never equal, for want of a canonical form, is a fault: it would match
// nothing, silently.
func parseHostPattern(text string) (p hostPattern, ok bool) {
	name, below := strings.CutPrefix(text, "*.")
	canonical := string(appendHost(nil, name))
	return hostPattern{canonical, below}, canonical != "" && len(canonical) <= maxText &&
		canonical == strings.ToLower(strings.TrimSuffix(name, ".")) && isPlainName(canonical) &&
		!strings.Contains(canonical, "*") && !strings.HasPrefix(canonical, ".") && !strings.Contains(canonical, "..")
}

const hosts = "a host's name such as api.example.com in ASCII, without a port, or *.example.com for the names below it"

// appendHost appends a host in the form that rules match, and returns the extended buffer: in
// lower case, without port, brackets and dots at its end. Whatever follows a name's first colon is no
// part of it: a server that gets several may look at the first.
func appendHost(to []byte, host string) []byte {
	host = bareHost(host)
	for i := range len(host) {
		c := host[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		to = append(to, c)
	}
	return to
}

// plainHosts is what a request's host may be.
const plainHosts = "a name such as api.example.com in ASCII and not percent-encoded, or an address, " +
	"with or without a port"

// isHost reports whether all programs take a host for the same, with or without a port: they differ
// in whether they decode percent-encoded bytes, in what they make of letters beyond ASCII, and in
// what ends a name (RFC 3986, section 3.2.2; the URL Standard's host parser). A zone may be
// percent-encoded in an address in brackets (RFC 6874). What programs take for different hosts is
// refused rather than matched: a rule for a host must not be led around by a spelling.
func isHost(host string) bool {
	literal, found := strings.CutPrefix(host, "[")
	if !found {
		return isPlainName(host)
	}
	address, port, closed := strings.Cut(literal, "]")
	address, zone, _ := strings.Cut(address, "%25")
	return closed && (port == "" || port[0] == ':') && isPlainName(address) && isPlainName(zone) && isPlainName(port)
}

// isPlainName reports whether the text has only letters, digits and signs that end no name
// anywhere.
func isPlainName(text string) bool {
	for i := range len(text) {
		if c := text[i]; !isAlphanumeric(rune(c)) && strings.IndexByte("-._~!$&'()*+,;=:", c) < 0 {
			return false
		}
	}
	return true
}

// bareHost cuts off brackets, port and the dots at the end. An IPv6 address without brackets has no
// port that could be told.
func bareHost(host string) string {
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end > 0 {
			return host[1:end]
		}
	}
	name, port, _ := strings.Cut(host, ":")
	if strings.Contains(port, ":") {
		if _, err := netip.ParseAddr(host); err == nil {
			return host
		}
	}
	return strings.TrimRight(name, ".")
}
