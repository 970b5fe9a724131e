package rules

import (
	"strings"

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
	fault := stint.Invalid("match.path", text, paths)
	if len(text) > maxPattern || !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?#") {
		return pattern{}, fault
	}
	var p pattern
	body, rest := strings.CutSuffix(text, "/**")
	p.rest = rest
	canonical := string(AppendPath(nil, body))
	if canonical == "/" {
		return p, nil
	}
	if wild := "*{}"; countAny(canonical, wild) != countAny(body, wild) {
		return pattern{}, fault // encoded ones, or ones that .. removes
	}
	names := map[string]bool{}
	for _, part := range strings.Split(canonical[1:], "/") {
		s := segment{literal: part}
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

func countAny(text, chars string) int {
	n := 0
	for i := range len(text) {
		if strings.IndexByte(chars, text[i]) >= 0 {
			n++
		}
	}
	return n
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
		strings.ContainsAny(canonical, "*/\\?#@ []") || strings.HasPrefix(canonical, ".") || strings.Contains(canonical, "..") {
		return hostPattern{}, stint.Invalid("match.host", text, "a host's name such as api.example.com, without a port, or *.example.com for the names below it")
	}
	return hostPattern{canonical, below}, nil
}
