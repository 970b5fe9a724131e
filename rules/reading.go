package rules

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint"
)

// MaxOddPathBytes bounds a path of which there are several readings, as each costs what the path
// is long. A path of one reading may have any length.
const MaxOddPathBytes = 8 << 10

// A manner is a way to take a path apart, in which programs differ: its bits say what is not done.
// The zero value does all of it, and makes the canonical reading.
type manner uint8

const (
	keepSlashes     manner = 1 << iota // %2F belongs to its segment
	keepBackslashes                    // \ and %5C belong to their segment
	keepCodedDots                      // segments . and .. stay where a dot of them is percent-encoded
	keepDots                           // all of these segments stay
	keepRuns                           // between two slashes of a run there is an empty segment
	manners                            // one more than any manner

	canonical manner = 0
)

// among reports whether a path that has these features may be read so, and not just as well by another
// manner. There are at most 16, canonical included: who keeps empty segments resolves none.
func (as manner) among(features manner) bool {
	const anyDots = keepCodedDots | keepDots
	switch {
	case as&^features != 0 || as&anyDots == anyDots:
		return false
	case as&keepRuns != 0:
		return as&anyDots == min(features&anyDots, keepDots)
	default:
		return true
	}
}

// A reading is a path taken apart in one manner.
type reading struct {
	text     []byte // a slash, and the segments with a slash between them
	ends     []int  // of the segments in text
	slash    bool   // whether the path ends in a slash, behind which the last segment is empty
	features manner // for which of its bits a manner makes a difference
}

// readPlain takes a path apart of which there is one reading, as of most, and reports whether it
// is such a path.
func (p *reading) readPlain(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	p.text, p.ends, p.features = append(p.text[:0], path...), p.ends[:0], canonical
	last := byte('/')
	for i := 1; i < len(path); i++ {
		c := path[i]
		switch {
		case c == '%' || c == '\\' || c == '?' || c == '#', last == '/' && (c == '/' || c == '.'):
			return false
		case c == '/':
			p.ends = append(p.ends, i)
		}
		last = c
	}
	if len(path) > 1 {
		p.ends = append(p.ends, len(path))
	}
	p.slash = len(path) > 1 && last == '/'
	return true
}

// read takes any path apart.
func (p *reading) read(path string, as manner) {
	p.text, p.ends, p.features = append(p.text[:0], '/'), p.ends[:0], canonical
	codedDot := false
	for i := len(path) - len(strings.TrimPrefix(path, "/")); i < len(path) && path[i] != '?' && path[i] != '#'; i++ {
		c, coded := path[i], false
		if c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]) {
			c, coded = unhex(path[i+1])<<4|unhex(path[i+2]), true
			i += 2
		}
		if !p.separates(c, coded, as) {
			p.text = append(p.text, c)
			codedDot = codedDot || coded && c == '.'
			continue
		}
		if p.end(codedDot, as) {
			p.text = append(p.text, '/')
		}
		codedDot = false
	}
	last := p.next() < len(p.text) && p.end(codedDot, as)
	if p.slash = !last && len(p.ends) > 0; p.slash {
		p.ends = append(p.ends, len(p.text))
	}
}

// bounded returns an error for a path that was taken apart, if there are several readings and it is
// too long for them.
func (p *reading) bounded(path string) error {
	if p.features == 0 || len(path) <= MaxOddPathBytes {
		return nil
	}
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = path[:end]
	}
	if len(path) <= MaxOddPathBytes {
		return nil
	}
	return stint.Invalid("path", fmt.Sprintf("%d bytes that can be read in several ways", len(path)),
		fmt.Sprintf("up to %d bytes with // or \\, %%2F, or segments . or .. in them", MaxOddPathBytes))
}

// separates reports whether a byte, which was percent-encoded or not, ends a segment.
func (p *reading) separates(c byte, coded bool, as manner) bool {
	switch {
	case c == '\\':
		p.features |= keepBackslashes
		return as&keepBackslashes == 0
	case c == '/' && coded:
		p.features |= keepSlashes
		return as&keepSlashes == 0
	default:
		return c == '/'
	}
}

// end ends the segment at the end of the text, and reports whether it stays: it does not if it is
// resolved, or empty in a run of slashes.
func (p *reading) end(codedDot bool, as manner) bool {
	start := p.next()
	switch segment := string(p.text[start:]); segment {
	case "":
		p.features |= keepRuns
		if as&keepRuns == 0 {
			return false
		}
	case ".", "..":
		feature := keepDots
		if codedDot {
			feature = keepCodedDots
		}
		p.features |= feature
		if as&(feature|keepDots) != 0 {
			break
		}
		if n := len(p.ends); segment == ".." && n > 0 {
			p.ends = p.ends[:n-1]
			start = p.next()
		}
		p.text = p.text[:start]
		return false
	}
	p.ends = append(p.ends, len(p.text))
	return true
}

// next is where the segment begins that follows those that have ended.
func (p *reading) next() int {
	if n := len(p.ends); n > 0 {
		return p.ends[n-1] + 1
	}
	return 1
}

// trim removes a slash at the end.
func (p *reading) trim() {
	if p.slash {
		p.ends, p.text, p.slash = p.ends[:len(p.ends)-1], p.text[:len(p.text)-1], false
	}
}

// segment is one of the path's, from 0.
func (p *reading) segment(i int) []byte {
	start := 1
	if i > 0 {
		start = p.ends[i-1] + 1
	}
	return p.text[start:p.ends[i]]
}
