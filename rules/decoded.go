package rules

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint"
)

// A path of which there are several variants is bounded, as each of them costs what there is to cut. A path
// of one variant may be of any length.
const (
	// MaxOddPathBytes is how long such a path may be, without its query.
	MaxOddPathBytes = 8 << 10
	// MaxOddPathCuts is how many of its bytes may separate segments: slashes, backslashes, percent-encoded
	// ones as well, and #. A path that may begin with an authority has twice the variants, and may have half as many.
	MaxOddPathCuts = 512
)

// A decoded path is what all of its variants have in common: its text, and where it may be cut.
type decoded struct {
	text     []byte        // percent-encoded bytes are decoded, once; no query
	pieces   []piece       // between two of them there is one byte of the text
	rooted   bool          // whether it began with a slash, which the text lacks
	features normalisation // for which of its bits a normalisation makes a difference
}

// A piece lies between what may separate segments. A segment is one, or several with the bytes
// between them.
type piece struct {
	end      int  // in the text
	mark     mark // what follows
	codedDot bool // whether a dot in it was percent-encoded
}

// A mark is what follows a piece.
type mark uint8

const (
	atSlash mark = 1 << iota
	atCodedSlash
	atBackslash
	atCodedBackslash
	atHash
	atEnd // of the path: its query, or nothing
)

// plain takes a path of which there is one variant, as of most, and reports whether it is such a path.
func (p *decoded) plain(path string, r *variant) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	p.text, p.features = append(p.text[:0], path...), canonical
	r.as, r.text, r.segments, r.slash = canonical, p.text, r.segments[:0], false
	last, start := byte('/'), 1
	for i := 1; i < len(path); i++ {
		c := path[i]
		switch {
		case c == '%' || c == '\\' || c == '?' || c == '#', last == '/' && (c == '/' || c == '.'):
			return false
		case c == '/':
			r.segments = append(r.segments, span{start, i})
			start = i + 1
		}
		last = c
	}
	if len(path) > 1 {
		r.segments = append(r.segments, span{start, len(path)})
		r.slash = last == '/'
	}
	return true
}

// decode takes any path. The error says that there are several variants of one that is too long for them,
// if it is to be bounded.
func (p *decoded) decode(path string, bounded bool) error {
	p.text, p.pieces, p.features = p.text[:0], p.pieces[:0], canonical
	path, _, _ = strings.Cut(path, "?")
	p.rooted = strings.HasPrefix(path, "/")
	start, codedDot := 0, false
	for i := len(path) - len(strings.TrimPrefix(path, "/")); i < len(path); i++ {
		c, coded := path[i], false
		if c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]) {
			c, coded = unhex(path[i+1])<<4|unhex(path[i+2]), true
			i += 2
		}
		if mark := markOf(c, coded); mark != 0 {
			p.cut(start, mark, codedDot)
			start, codedDot = len(p.text)+1, false
			if bounded && p.exceeds(path) {
				return tooOdd(path)
			}
		}
		codedDot = codedDot || coded && c == '.'
		p.text = append(p.text, c)
	}
	p.cut(start, atEnd, codedDot)
	if bounded && p.exceeds(path) {
		return tooOdd(path)
	}
	return nil
}

// exceeds reports whether the path so far has several variants and is too long for them.
func (p *decoded) exceeds(path string) bool {
	cuts := MaxOddPathCuts
	if p.features&anyAuthority != 0 {
		cuts /= 2
	}
	return p.features != canonical && (len(path) > MaxOddPathBytes || len(p.pieces)-1 > cuts)
}

func tooOdd(path string) error {
	return stint.Invalid("path", fmt.Sprintf("%d bytes that can be read in several ways", len(path)),
		fmt.Sprintf("up to %d bytes, and %d slashes of any kind, half of them where two are first, with //, \\, #, %%2F, or segments . or .. in them", MaxOddPathBytes, MaxOddPathCuts))
}

// markOf is what a byte, which was percent-encoded or not, may mean for the segments; 0: nothing.
func markOf(c byte, coded bool) mark {
	switch {
	case c == '/' && coded:
		return atCodedSlash
	case c == '/':
		return atSlash
	case c == '\\' && coded:
		return atCodedBackslash
	case c == '\\':
		return atBackslash
	case c == '#' && !coded:
		return atHash
	default:
		return 0
	}
}

// cut ends the piece at the end of the text.
func (p *decoded) cut(start int, mark mark, codedDot bool) {
	switch mark {
	case atCodedSlash:
		p.features |= anySlashes
	case atBackslash:
		p.features |= keepBackslashes
	case atCodedBackslash:
		p.features |= keepCodedBackslashes
	case atHash:
		p.features |= keepHash
	case atSlash, atEnd: // all agree
	}
	switch string(p.text[start:]) {
	case "":
		if mark&(atHash|atEnd) == 0 {
			p.features |= anyRuns
			p.lead()
		}
	case ".", "..":
		if codedDot {
			p.features |= keepCodedDots
		} else {
			p.features |= keepDots
		}
	}
	p.pieces = append(p.pieces, piece{len(p.text), mark, codedDot})
}

// lead notes an empty piece, which means that an authority may follow if there are only such before it.
func (p *decoded) lead() {
	if !p.rooted || len(p.text) > len(p.pieces) {
		return
	}
	p.features |= leaveAuthority
	if len(p.pieces) > 0 {
		p.features |= leaveLead
	}
}
