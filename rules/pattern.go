package rules

import (
	"regexp"
	"strings"
	"unique"
)

// maxSegments bounds the segments of a pattern, and with it the depth of the tree.
const maxSegments = 64

// maxPattern bounds a pattern's length in bytes.
const maxPattern = 1024

// A pattern is a path's pattern taken apart.
type pattern struct {
	// segments are the pattern's, without /** at its end.
	segments []segment
	rest     bool // whether any number of segments may follow
}

// A segment of a pattern stands for itself, or for any one segment.
type segment struct {
	literal string
	any     bool
	// name is that of a parameter, "" of * and of literals.
	name string
}

const paths = "a path such as /users/{id}/posts or /static/**: *, {name} and ** stand for whole segments, ** at the end"

// parsePattern takes a path's pattern apart, if it is one. What it says literally is brought into the form
// that requests' paths are, so that a pattern that is written otherwise still matches.
func parsePattern(text string) (p pattern, ok bool) {
	if len(text) > maxPattern || !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?#") {
		return p, false
	}
	body, rest := strings.CutSuffix(text, "/**")
	p.rest = rest
	canonical := string(appendPath(nil, body))
	if encodedWild.MatchString(body) || countWild(canonical) != countWild(body) {
		return p, false // ones that are meant literally, or that .. removes
	}
	if canonical == "/" {
		return p, true
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
				return p, false
			}
			names[s.name] = true
		case strings.ContainsAny(part, "{}*"):
			return p, false
		}
		p.segments = append(p.segments, s)
	}
	if p.rest && p.segments[len(p.segments)-1].literal == "" && !p.segments[len(p.segments)-1].any {
		p.segments = p.segments[:len(p.segments)-1]
	}
	return p, len(p.segments) <= maxSegments
}

// parsePatterns reads the sound ones of several patterns. Unless strict, a slash at their end does
// not matter.
func parsePatterns(texts []string, strict bool) (patterns []pattern) {
	for _, text := range texts {
		p, ok := parsePattern(text)
		if !ok {
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
