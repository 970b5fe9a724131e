package server

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint"
)

// parseQuery reads a query of which every parameter must be allowed and stand
// once. It does not allocate unless a text is percent-encoded.
func parseQuery(query string, allowed member) (request, error) {
	var q request
	for query != "" {
		pair := query
		if end := strings.IndexByte(query, '&'); end >= 0 {
			pair, query = query[:end], query[end+1:]
		} else {
			query = ""
		}
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := unescape(name)
		if err != nil {
			return q, err
		}
		if value, err = unescape(value); err != nil {
			return q, err
		}
		if err := q.set(name, value, allowed); err != nil {
			return q, err
		}
	}
	return q, nil
}

// unescape decodes a name or value of a query, in which a plus is a space.
func unescape(text string) (string, error) {
	i := 0
	for i < len(text) && text[i] != '%' && text[i] != '+' {
		i++
	}
	if i == len(text) {
		return text, nil
	}
	decoded := make([]byte, i, len(text))
	copy(decoded, text)
	for ; i < len(text); i++ {
		switch c := text[i]; c {
		case '+':
			decoded = append(decoded, ' ')
		case '%':
			if i+2 >= len(text) || hexDigit(text[i+1]) < 0 || hexDigit(text[i+2]) < 0 {
				return "", stint.Invalid("query", clip(text), "percent-encoding, % with two hexadecimal digits")
			}
			decoded = append(decoded, byte(hexDigit(text[i+1])<<4|hexDigit(text[i+2])))
			i += 2
		default:
			decoded = append(decoded, c)
		}
	}
	return string(decoded), nil
}

// hexDigit is the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	default:
		return -1
	}
}

// detailsOf reads the query of a request whose other parameters are members of the body. A settlement has no details.
func detailsOf(query string, allowed member) (details bool, err error) {
	if query == "" {
		return false, nil
	}
	q, err := parseQuery(query, allowed)
	if err != nil {
		only := "none"
		if allowed != 0 {
			only = "details=true"
		}
		return false, badRequest(fmt.Sprintf("the query is %q; allowed: %s, as the parameters are members of the body", clip(query), only))
	}
	return q.details, nil
}
