package rules

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/stint-go/stint"
)

// AppendPath appends the canonical form of a path, which is what patterns are brought into, and returns the extended
// buffer: it begins with a slash and ends before a query or a #; percent-encoded bytes are
// decoded, once; %2F and backslashes are slashes; runs of slashes are one; segments . and
// .. are resolved, as far as there is something to leave (RFC 3986, section 5.2.4). What
// follows a % that are not two hexadecimal digits stays as it is. A slash at the end stays, but for
// runs of it.
func AppendPath(to []byte, path string) []byte {
	var p decoded
	var r variant
	_ = p.decode(path, false) // as long as it may be
	r.read(&p, canonical)
	return r.appendTo(to)
}

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
	start, codedDot, decoded := 0, false, [1]byte{}
	for i := len(path) - len(strings.TrimPrefix(path, "/")); i < len(path); i++ {
		c, coded := path[i], false
		if c == '%' && i+2 < len(path) {
			if _, err := hex.Decode(decoded[:], []byte(path[i+1:i+3])); err == nil {
				c, coded = decoded[0], true
				i += 2
			}
		}
		if mark := markOf(c, coded); mark != 0 {
			p.cut(start, mark, codedDot)
			start, codedDot = len(p.text)+1, false
			if bounded && p.exceeds(path) {
				return errTooAmbiguous(path)
			}
		}
		codedDot = codedDot || coded && c == '.'
		p.text = append(p.text, c)
	}
	p.cut(start, atEnd, codedDot)
	if bounded && p.exceeds(path) {
		return errTooAmbiguous(path)
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

func errTooAmbiguous(path string) error {
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
			p.noteEmpty()
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

// noteEmpty notes an empty piece, which means that an authority may follow if there are only such before it.
func (p *decoded) noteEmpty() {
	if !p.rooted || len(p.text) > len(p.pieces) {
		return
	}
	p.features |= leaveAuthority
	if len(p.pieces) > 0 {
		p.features |= leaveLead
	}
}

// A normalisation is one way in which programs split a path into segments. Its bits say what is not done.
// The zero value does all of it, and makes the canonical variant. Two bits in one group exclude each other.
type normalisation uint16

const (
	keepHash normalisation = 1 << iota // # is a character like others; else the path ends there

	keepSlashes // %2F belongs to its segment
	lateSlashes // it separates once dots are resolved

	keepCodedBackslashes // %5C belongs to its segment
	keepBackslashes      // \ does as well

	keepCodedDots // segments . and .. stay where a dot of them is percent-encoded
	keepDots      // all of these segments stay

	keepRuns // between two slashes of a run there is an empty segment
	lateRuns // it is left out once dots are resolved

	leaveAuthority // two slashes at the start begin an authority, which is left out (RFC 3986, section 4.2)
	leaveLead      // any number of them does (the URL Standard)

	canonical normalisation = 0

	anySlashes     = keepSlashes | lateSlashes
	anyBackslashes = keepCodedBackslashes | keepBackslashes
	anyDots        = keepCodedDots | keepDots
	anyRuns        = keepRuns | lateRuns
	anyAuthority   = leaveAuthority | leaveLead
	anyLate        = lateSlashes | lateRuns
)

// after is the next of the normalisations that give a path with these features different variants, each
// once; canonical follows the last. There are 252 at most.
func (as normalisation) after(features normalisation) normalisation {
	for {
		as = (as - features) & features // the next of the subsets
		if as == canonical || as.isDistinct(features) {
			return as
		}
	}
}

// isDistinct reports whether no other normalisation gives the same variant: it has one bit of each group, and none is late if no
// dots are resolved. Parsers that know an authority all end a path at #, and those that skip any number of slashes
// before it take \ for a slash.
func (as normalisation) isDistinct(features normalisation) bool {
	for _, pair := range [...]normalisation{anySlashes, anyBackslashes, anyDots, anyRuns, anyAuthority, leaveLead | keepBackslashes} {
		if as&pair == pair {
			return false
		}
	}
	if as&anyAuthority != 0 && as&keepHash != 0 {
		return false
	}
	if as&anyLate == 0 || as&keepDots == 0 && as&anyDots != features&anyDots {
		return true
	}
	return as&anyAuthority != 0 && as&anyLate == lateSlashes // which do not end the authority
}

// separators are the marks that end a segment.
func (as normalisation) separators() mark {
	these := atSlash | atEnd
	if as&keepHash == 0 {
		these |= atHash
	}
	if as&anySlashes == 0 {
		these |= atCodedSlash
	}
	if as&keepBackslashes == 0 {
		these |= atBackslash
		if as&keepCodedBackslashes == 0 {
			these |= atCodedBackslash
		}
	}
	return these
}

// A variant is a path's segments by one normalisation.
type variant struct {
	as        normalisation
	text      []byte // the path's
	segments  []span // of the text
	resolved  []span // the segments before what is late is done
	slash     bool   // whether the path ends in a slash; then the last segment is empty
	authority span   // what was left out
}

// A span is a part of a text.
type span struct{ start, end int }

// read takes a decoded path apart.
func (r *variant) read(p *decoded, as normalisation) {
	r.as, r.text, r.segments, r.slash, r.authority = as, p.text, r.segments[:0], false, span{}
	separators, start := as.separators(), 0
	lead := -1 // slashes before what may be an authority; -1 where none is left out, or it is behind
	if as&anyAuthority != 0 {
		lead = 1
	}
	for i := range p.pieces {
		piece := &p.pieces[i]
		if piece.mark&separators == 0 {
			continue
		}
		s, last := span{start, piece.end}, piece.mark&(atHash|atEnd) != 0
		start = piece.end + 1
		switch {
		case lead >= 0 && !last && s.start == s.end && (lead < 2 || as&leaveLead != 0):
			lead++
		case lead >= 2:
			r.authority, lead = s, -1
		case r.resolve(s, piece.codedDot):
			r.slash = last
		case s.start < s.end, as&anyRuns != 0 && !last:
			r.segments = append(r.segments, s)
		default:
			r.slash = last
		}
		if lead < 2 && s.start < s.end {
			lead = -1 // one slash begins a path
		}
		if last {
			break
		}
	}
	if as&anyLate != 0 {
		r.applyLate()
	}
	if r.slash = r.slash && len(r.segments) > 0; r.slash {
		r.segments = append(r.segments, span{})
	}
}

// resolve leaves segments if the one that follows them is made of dots, and reports whether it did.
func (r *variant) resolve(s span, codedDot bool) bool {
	n := s.end - s.start
	if n == 0 || n > 2 || r.text[s.start] != '.' || r.text[s.end-1] != '.' ||
		r.as&keepDots != 0 || codedDot && r.as&keepCodedDots != 0 {
		return false
	}
	if n == 2 {
		r.segments = r.segments[:max(len(r.segments)-1, 0)]
	}
	return true
}

// applyLate does what is done once dots are resolved: coded slashes separate, or empty segments are left
// out.
func (r *variant) applyLate() {
	r.segments, r.resolved = r.resolved[:0], r.segments
	for i, s := range r.resolved {
		for r.as&lateSlashes != 0 {
			at := bytes.IndexByte(r.text[s.start:s.end], '/')
			if at < 0 {
				break
			}
			r.keep(span{s.start, s.start + at})
			s.start += at + 1
		}
		if i == len(r.resolved)-1 && s.start == s.end && !r.slash {
			r.slash = true
		} else {
			r.keep(s)
		}
	}
}

// keep adds a segment, unless it is empty and empty ones are left out.
func (r *variant) keep(s span) {
	if s.start < s.end || r.as&keepRuns != 0 {
		r.segments = append(r.segments, s)
	}
}

// trim removes a slash at the end.
func (r *variant) trim() {
	if r.slash {
		r.segments, r.slash = r.segments[:len(r.segments)-1], false
	}
}

// segment is one of the path's, from 0.
func (r *variant) segment(i int) []byte {
	s := r.segments[i]
	return r.text[s.start:s.end]
}

// appendTo appends the segments, a slash before each, or a slash if there are none.
func (r *variant) appendTo(to []byte) []byte {
	if len(r.segments) == 0 {
		return append(to, '/')
	}
	for i := range r.segments {
		to = append(append(to, '/'), r.segment(i)...)
	}
	return to
}
