package rules

import (
	"fmt"
	"regexp"
	"strings"
)

// A dialect is how other routers write a segment of a path that stands for any text. In a pattern of a
// rule it would stand for itself, and match none of the requests that are meant.
type dialect struct {
	sign *regexp.Regexp // of a segment
	// instead is the segment of a pattern, with the groups of sign.
	instead string
	// last says that the sign is one only at the end of the path.
	last bool
	// likely says that paths of requests may have such a segment.
	likely bool
}

// dialects are tried in this order. None has a colon behind other text: /v1/items:batchGet is a path of
// requests.
var dialects = []dialect{
	{sign: regexp.MustCompile(`^:([\pL_][\pL\pN_]*)`), instead: "{$1}"},                // Express, gin, Rails
	{sign: regexp.MustCompile(`^<path:[^<>]*>$|^<[^<>]*\.\.>$`), instead: "**"},        // Flask, Rocket
	{sign: regexp.MustCompile(`^<(?:[^<>:]*:)?([\pL_][\pL\pN_]*)>$`), instead: "{$1}"}, // Flask, Django, Rocket
	{sign: regexp.MustCompile(`^\{\$\}$`), instead: ""},                                // http.ServeMux
	{sign: regexp.MustCompile(`^\{[^{}]*\.\.\.\}$|^\[*\.\.\.`), instead: "**"},         // http.ServeMux, Next.js, Go
	{sign: regexp.MustCompile(`^\{([\pL_][\pL\pN_]*)[:=<][^{}]*\}$`), instead: "{$1}"}, // chi, gorilla/mux, Spring
	{sign: regexp.MustCompile(`^\{[^{}]*[:=<>()\[\]$\\^|+][^{}]*\}$`), instead: "*"},   // the same, with another name
	{sign: regexp.MustCompile(`^\[([\pL_][\pL\pN_]*)\]$`), instead: "{$1}"},            // Next.js
	{sign: regexp.MustCompile(`[<>\[\]^|]|\.\+|\\[dDsSwW]\+|^\\[dDsSwW]$|\\[^\pL\pN]`), instead: "*"},
	{sign: regexp.MustCompile(`^(.*)\$$`), instead: "$1", last: true},
	{sign: regexp.MustCompile(`^\$([\pL_][\pL\pN_]*)$`), instead: "{$1}", likely: true}, // Remix
}

// inDialect finds the first segment of a valid pattern that is in another router's language. It
// returns what to write in place of the pattern, or allowed "" if there is none.
func inDialect(text string) (allowed string, likely bool) {
	if !strings.ContainsAny(text, `:<>[]()|^$\=+`) && !strings.Contains(text, "...") {
		return "", false // as nearly all patterns, of which there may be many
	}
	parts := strings.Split(text, "/")
	for _, d := range dialects {
		for i, part := range parts {
			if part == "" || d.last && i+1 < len(parts) || !d.sign.MatchString(part) {
				continue
			}
			at := d.sign.FindStringSubmatchIndex(part)
			meant := string(d.sign.ExpandString(nil, d.instead, part, at))
			if meant == "**" && i+1 < len(parts) {
				meant = "*" // ** is at the end only
			}
			return alternatives(parts, i, meant), d.likely
		}
	}
	return "", false
}

// alternatives are the patterns with what a segment means elsewhere, and with the segment itself, if it
// can be written.
func alternatives(parts []string, i int, meant string) string {
	with := func(segment string) string {
		path := strings.Join(parts[:i], "/") + "/" + segment
		if len(parts) > i+1 {
			path += "/" + strings.Join(parts[i+1:], "/")
		}
		return path
	}
	literal := notUnreserved.ReplaceAllStringFunc(parts[i], func(s string) string { return fmt.Sprintf("%%%02X", s) })
	if strings.ContainsAny(parts[i], `{}\`) || literal == parts[i] {
		return with(meant)
	}
	return fmt.Sprintf("%s, or %s for %s itself", with(meant), with(literal), parts[i])
}

// notUnreserved finds the bytes that have to be percent-encoded to stand for nothing but themselves (RFC 3986,
// section 2.3), except the % of those that are.
var notUnreserved = regexp.MustCompile(`[^\pL\pN._~%-]`)
