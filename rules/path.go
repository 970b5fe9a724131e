package rules

import "strings"

// AppendPath appends the one form of a path that rules match, and returns the extended
// buffer: it begins with a slash and ends before a query; percent-encoded bytes are
// decoded, once; %2F and backslashes are slashes; runs of slashes are one; segments . and
// .. are resolved, as far as there is something to leave (RFC 3986, section 5.2.4). What
// follows a % that are not two hexadecimal digits stays as it is. A slash at the end stays, but for
// runs of it.
func AppendPath(to []byte, path string) []byte {
	start := len(to)
	to = append(to, '/')
	for i := 0; i < len(path) && path[i] != '?' && path[i] != '#'; i++ {
		c := path[i]
		if c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]) {
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			i += 2
		}
		if c != '/' && c != '\\' {
			to = append(to, c)
			continue
		}
		to = resolve(to, start)
		if to[len(to)-1] != '/' {
			to = append(to, '/')
		}
	}
	return resolve(to, start)
}

// resolve removes a last segment that is . or .., and with the latter the one before it.
func resolve(path []byte, start int) []byte {
	segment := len(path)
	for path[segment-1] != '/' {
		segment--
	}
	switch string(path[segment:]) {
	case ".":
		return path[:segment]
	case "..":
		if segment-1 == start {
			return path[:segment]
		}
		segment--
		for path[segment-1] != '/' {
			segment--
		}
		return path[:segment]
	default:
		return path
	}
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// isCanonical reports whether AppendPath would return the path as it is.
func isCanonical(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	last := byte(0)
	for i := range len(path) {
		c := path[i]
		switch {
		case c == '%' || c == '\\' || c == '?' || c == '#', c == '/' && last == '/', c == '.' && last == '/':
			return false
		}
		last = c
	}
	return true
}

// AppendHost appends a host in the form that rules match, and returns the extended buffer: in
// lower case, without port, brackets and a dot at its end.
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

func bareHost(host string) string {
	if strings.HasPrefix(host, "[") {
		if end := strings.IndexByte(host, ']'); end > 0 {
			return host[1:end]
		}
	}
	if colon := strings.IndexByte(host, ':'); colon >= 0 && strings.IndexByte(host[colon+1:], ':') < 0 {
		host = host[:colon]
	}
	return strings.TrimSuffix(host, ".")
}
