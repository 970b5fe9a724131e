package rules

import (
	"net/netip"
	"regexp"
	"strings"
	"unique"

	"github.com/stint-go/stint"
)

// maxSegments bounds the segments of a pattern.
const maxSegments = 64

// maxPattern bounds a pattern's length in bytes.
const maxPattern = 1024

// A pattern is a path's pattern taken apart.
type pattern struct {
	segments []segment
	rest     bool // whether any number of segments may follow
}

// A segment of a pattern stands for itself, or for any one segment.
type segment struct {
	literal string
	any     bool
	name    string // of a parameter
}

const paths = "a path such as /users/{id}/posts or /static/**: *, {name} and ** stand for whole segments, ** at the end"

// parsePattern reads a path's pattern. What it says literally is brought into the form
// that requests' paths are, so that a pattern that is written otherwise still matches.
func parsePattern(text string) (pattern, error) {
	fault := stint.Invalid("path", text, paths)
	if len(text) > maxPattern || !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?#") {
		return pattern{}, fault
	}
	var p pattern
	body, rest := strings.CutSuffix(text, "/**")
	p.rest = rest
	canonical := string(AppendPath(nil, body))
	if encodedWild.MatchString(body) || countWild(canonical) != countWild(body) {
		return pattern{}, fault // ones that are meant literally, or that .. removes
	}
	if canonical == "/" {
		return p, nil
	}
	names := map[string]bool{}
	for _, part := range strings.Split(canonical[1:], "/") {
		s := segment{literal: unique.Make(part).Value()} // kept once for all patterns that have it
		switch {
		case part == "*":
			s = segment{any: true}
		case strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}"):
			s = segment{any: true, name: part[1 : len(part)-1]}
			if s.name == "" || names[s.name] || strings.ContainsAny(s.name, "{}*") {
				return pattern{}, fault
			}
			names[s.name] = true
		case strings.ContainsAny(part, "{}*"):
			return pattern{}, fault
		}
		p.segments = append(p.segments, s)
	}
	if p.rest && p.segments[len(p.segments)-1].literal == "" && !p.segments[len(p.segments)-1].any {
		p.segments = p.segments[:len(p.segments)-1]
	}
	if len(p.segments) > maxSegments {
		return pattern{}, fault
	}
	return p, nil
}

// parsePatterns reads the sound ones of several patterns. Unless strict, a slash at their end does not matter.
func parsePatterns(texts []string, strict bool) (patterns []pattern) {
	for _, text := range texts {
		p, err := parsePattern(text)
		if err != nil {
			continue
		}
		if n := len(p.segments); !strict && n > 0 && p.segments[n-1] == (segment{}) {
			p.segments = p.segments[:n-1]
		}
		patterns = append(patterns, p)
	}
	return patterns
}

// matches reports whether the pattern matches a variant of a path.
func (p *pattern) matches(path *variant) bool {
	if len(path.segments) < len(p.segments) || len(path.segments) > len(p.segments) && !p.rest {
		return false
	}
	for i := range p.segments {
		s := path.segment(i)
		if wild := p.segments[i].any; !wild && p.segments[i].literal != string(s) ||
			wild && len(s) == 0 && path.slash && i+1 == len(path.segments) {
			return false
		}
	}
	return true
}

// encodedWild finds characters that stand for no text, percent-encoded.
var encodedWild = regexp.MustCompile(`(?i)%(2a|7b|7d)`)

// countWild counts the characters that stand for no text.
func countWild(text string) int {
	return strings.Count(text, "*") + strings.Count(text, "{") + strings.Count(text, "}")
}

// parameter is the place of the segment that the name stands for.
func (p *pattern) parameter(name string) (segment int, ok bool) {
	for i, s := range p.segments {
		if s.any && s.name == name && name != "" {
			return i, true
		}
	}
	return 0, false
}

// A hostPattern is a host's name, and whether the names below it are meant.
type hostPattern struct {
	name  string
	below bool
}

// parseHostPattern reads a name such as api.example.com, or *.example.com.
func parseHostPattern(text string) (hostPattern, error) {
	name, below := strings.CutPrefix(text, "*.")
	canonical := string(AppendHost(nil, name))
	if canonical == "" || len(canonical) > maxText || canonical != strings.ToLower(strings.TrimSuffix(name, ".")) ||
		!isPlainName(canonical) || strings.Contains(canonical, "*") || strings.HasPrefix(canonical, ".") || strings.Contains(canonical, "..") {
		return hostPattern{}, stint.Invalid("host", text, "a host's name such as api.example.com in ASCII, without a port, or *.example.com for the names below it")
	}
	return hostPattern{canonical, below}, nil
}

// AppendHost appends a host in the form that rules match, and returns the extended buffer: in
// lower case, without port, brackets and dots at its end. Whatever follows a name's first colon is no
// part of it: a server that gets several may look at the first.
func AppendHost(to []byte, host string) []byte {
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
const plainHosts = "a name such as api.example.com in ASCII and not percent-encoded, or an address, with or without a port"

// isHost reports whether all programs take a host for the same, with or without a port: they differ in whether they
// decode percent-encoded bytes, in what they make of letters beyond ASCII, and in what ends a name (RFC 3986, section
// 3.2.2; the URL Standard's host parser). A zone may be percent-encoded in an address in brackets (RFC 6874).
func isHost(host string) bool {
	literal, found := strings.CutPrefix(host, "[")
	if !found {
		return isPlainName(host)
	}
	address, port, closed := strings.Cut(literal, "]")
	address, zone, _ := strings.Cut(address, "%25")
	return closed && (port == "" || port[0] == ':') && isPlainName(address) && isPlainName(zone) && isPlainName(port)
}

// isPlainName reports whether the text has only letters, digits and signs that end no name anywhere.
func isPlainName(text string) bool {
	for i := range len(text) {
		if c := text[i]; !isAlphanumeric(rune(c)) && strings.IndexByte("-._~!$&'()*+,;=:", c) < 0 {
			return false
		}
	}
	return true
}

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
