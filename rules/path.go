package rules

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// appendPath appends the canonical form of a path, which is what patterns are brought into, and returns the extended
// buffer: it begins with a slash and ends before a query or a #; percent-encoded bytes are
// decoded, once; %2F and backslashes are slashes; runs of slashes are one; segments . and
// .. are resolved, as far as there is something to leave (RFC 3986, section 5.2.4). What
// follows a % that are not two hexadecimal digits stays as it is. A slash at the end stays, but for
// runs of it.
func appendPath(to []byte, path string) []byte {
	var p decoded
	var r variant
	_ = p.decode(path, false) // as long as it may be
	r.read(&p, canonical)
	return r.appendTo(to)
}

// A decoded path is what all of its variants have in common: its text, and where it may be cut.
type decoded struct {
	// text has percent-encoded bytes decoded, once, and no query.
	text   []byte
	pieces []piece // between two of them there is one byte of the text
	rooted bool    // whether it began with a slash, which the text lacks
	// features has the bits for which a normalisation makes a difference to this path; most paths have
	// none.
	features normalisation
	coded    bool // whether a semicolon was percent-encoded
}

// A piece lies between what may separate segments. A segment is one, or several with the bytes
// between them.
type piece struct {
	end  int  // in the text
	mark mark // what follows
	// whether a dot in it, before parameters, was percent-encoded
	codedDot bool
	params   int // where the first semicolon is in the text; -1: nowhere
	// where the first one is that was not percent-encoded; -1: nowhere
	written int
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

// plain takes a path of which there is one variant, as of most, and reports whether it is such a
// path. It is the way of nearly all requests: one pass, no decoding.
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
		case c == '%' || c == '\\' || c == '?' || c == '#' || c == ';', last == '/' && (c == '/' || c == '.'):
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
	p.text, p.pieces, p.features, p.coded = p.text[:0], p.pieces[:0], canonical, false
	path, _, _ = strings.Cut(path, "?")
	p.rooted = strings.HasPrefix(path, "/")
	start, next, decoded := 0, piece{params: -1, written: -1}, [1]byte{}
	for i := len(path) - len(strings.TrimPrefix(path, "/")); i < len(path); i++ {
		c, coded := path[i], false
		if c == '%' && i+2 < len(path) {
			if _, err := hex.Decode(decoded[:], []byte(path[i+1:i+3])); err == nil {
				c, coded = decoded[0], true
				i += 2
			}
		}
		if next.mark = markOf(c, coded); next.mark != 0 {
			p.cut(start, next)
			start, next = len(p.text)+1, piece{params: -1, written: -1}
			if bounded && p.exceeds(path) {
				return errTooAmbiguous(path)
			}
		}
		if c == ';' {
			p.noteParams(&next, coded)
		}
		next.codedDot = next.codedDot || coded && c == '.' && next.params < 0
		p.text = append(p.text, c)
	}
	next.mark = atEnd
	p.cut(start, next)
	if bounded && p.exceeds(path) {
		return errTooAmbiguous(path)
	}
	if p.features&anyParams != 0 && (p.coded || p.features&(anySlashes|anyBackslashes) != 0) {
		p.features |= rawParams
	}
	if p.features&leaveAuthority != 0 && p.features&(anySlashes|anyBackslashes) != 0 && p.pieces[0].mark == atSlash {
		p.features |= onlySlash
	}
	return nil
}

// exceeds reports whether the path so far has several variants and is too long for them. The number
// of variants grows with the features: twice with an authority, six times with parameters, for
// which an eighth of the cuts are allowed.
func (p *decoded) exceeds(path string) bool {
	cuts := bounds.MaxOddPathCuts
	if p.features&anyAuthority != 0 {
		cuts /= 2
	}
	if p.features&anyParams != 0 {
		cuts /= 8
	}
	return p.features != canonical && (len(path) > bounds.MaxOddPathBytes || len(p.pieces)-1 > cuts)
}

// errTooAmbiguous says by what a path could be shorter; it is the client's to change.
func errTooAmbiguous(path string) error {
	return stint.Invalid("path", fmt.Sprintf("%d bytes that can be read in several ways", len(path)),
		fmt.Sprintf("up to %d bytes, and %d slashes of any kind, half of them where two are first, an eighth with ;, "+
			"with //, \\, #, ;, %%2F, or segments . or .. in them", bounds.MaxOddPathBytes, bounds.MaxOddPathCuts))
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

// noteParams notes a semicolon at the end of the text.
func (p *decoded) noteParams(in *piece, coded bool) {
	p.features |= anyParams | lateParams
	p.coded = p.coded || coded
	if in.params < 0 {
		in.params = len(p.text)
	}
	if !coded && in.written < 0 {
		in.written = len(p.text)
	}
}

// cut ends the piece at the end of the text.
func (p *decoded) cut(start int, next piece) {
	switch next.mark {
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
	next.end = len(p.text)
	end := next.end
	if next.params >= 0 {
		end = next.params // what is left of the piece where parameters are cut
	}
	switch string(p.text[start:end]) {
	case "":
		if next.mark&(atHash|atEnd) == 0 {
			p.features |= anyRuns
			if next.params < 0 {
				p.noteEmpty()
			}
		}
	case ".", "..":
		if next.codedDot {
			p.features |= keepCodedDots
		} else {
			p.features |= keepDots
		}
	}
	p.pieces = append(p.pieces, next)
}

// noteEmpty notes an empty piece, which means that an authority may follow if there are only such
// before it.
func (p *decoded) noteEmpty() {
	if !p.rooted || len(p.text) > len(p.pieces) {
		return
	}
	p.features |= leaveAuthority
	if len(p.pieces) > 0 {
		p.features |= leaveLead
	}
}

// A normalisation is one way in which programs split a path into segments. Its bits say what is not
// done, and that parameters are cut. The zero value is the canonical variant. Two bits in one group
// exclude each other.
type normalisation uint16

const (
	keepSlashes normalisation = 1 << iota // %2F belongs to its segment
	lateSlashes                           // it separates once dots are resolved

	keepCodedBackslashes // %5C belongs to its segment
	keepBackslashes      // \ does as well

	keepCodedDots // segments . and .. stay where a dot of them is percent-encoded
	keepDots      // all of these segments stay

	keepRuns // between two slashes of a run there is an empty segment
	lateRuns // it is left out once dots are resolved

	leaveAuthority // two slashes at the start begin an authority, which is left out (RFC 3986, section 4.2)
	leaveLead      // any number of them does (the URL Standard)

	cutParams     // a segment ends at its ;, as of servlets
	cutLastParams // only the last one does, as of Python's urlparse

	rawParams  // that is done before anything is decoded: %3B is a character like others, and only / ends what is cut
	lateParams // it is done once dots are resolved

	keepHash // # is a character like others; else the path ends there

	onlySlash // nothing but / ends an authority, whatever separates segments behind it (RFC 3986, section 3.2)

	canonical normalisation = 0

	anySlashes     = keepSlashes | lateSlashes
	anyBackslashes = keepCodedBackslashes | keepBackslashes
	anyDots        = keepCodedDots | keepDots
	anyRuns        = keepRuns | lateRuns
	anyAuthority   = leaveAuthority | leaveLead
	anyParams      = cutParams | cutLastParams
	unlikeOthers   = rawParams | lateParams // when parameters are cut, unless it is once all is decoded
	anyLate        = lateSlashes | lateRuns | lateParams

	// groupStarts are the first bits of the groups, each of which has two.
	groupStarts = keepSlashes | keepCodedBackslashes | keepCodedDots | keepRuns | leaveAuthority | cutParams | rawParams
)

// after is the next of the normalisations that give a path with these features different variants,
// each once; canonical follows the last. There are 1,864 at most, and 308 of a path without
// parameters. (as - features) & features counts through the subsets of features, as adding 1 does
// through all numbers.
func (as normalisation) after(features normalisation) normalisation {
	for {
		as = (as - features) & features // the next of the subsets
		if as&(as>>1)&groupStarts != 0 {
			continue // two of a group
		}
		if as == canonical || as.isDistinct(features) {
			return as
		}
	}
}

// isDistinct reports whether no other normalisation gives the same variant: none is late if no dots
// are resolved. Parsers that know an authority all end a path at #, and those that skip any number
// of slashes before it take \ for a slash. Who decodes before parameters are cut has decoded %2F as
// well. Only / ends an authority anyway where nothing else in the path separates.
func (as normalisation) isDistinct(features normalisation) bool {
	if as&leaveLead != 0 && as&keepBackslashes != 0 || as&anyAuthority != 0 && as&keepHash != 0 ||
		as&onlySlash != 0 && (as&leaveAuthority == 0 || as.separators()&^features.separators()&^atHash == 0) {
		return false
	}
	decodes := as&anyParams != 0 && as&unlikeOthers == 0
	if as&anyParams == 0 && as&unlikeOthers != 0 || decodes && as&lateSlashes != 0 {
		return false
	}
	if as&anyLate == 0 || as&keepDots == 0 && as&anyDots != features&anyDots {
		return true
	}
	return as&anyAuthority != 0 && as&lateSlashes != 0 && as&lateRuns == 0 // which do not end the authority
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
	as       normalisation
	text     []byte // the path's
	segments []span // of the text
	resolved []span // the segments before what is late is done
	// whether the path ends in a slash; then the last segment is empty
	slash     bool
	authority span // what was left out
}

// A span is a part of a text.
type span struct{ start, end int }

// read takes a decoded path apart. A variant is made of pieces in one pass: pieces are joined where
// what separates them does not separate for this normalisation, and dots are resolved as segments
// are added. What is late is done at the end, over the segments that are left.
func (r *variant) read(p *decoded, as normalisation) {
	r.as, r.text, r.segments, r.slash, r.authority = as, p.text, r.segments[:0], false, span{}
	separators, start, first := as.separators(), 0, 0
	cuts, params, rawFrom := as&anyParams != 0 && as&lateParams == 0, -1, 0
	if cuts {
		rawFrom = p.rawFrom(as)
	}
	lead := -1 // slashes before what may be an authority; -1 where none is left out, or it is behind
	if as&anyAuthority != 0 {
		lead = 1
	}
	for i := range p.pieces {
		piece := &p.pieces[i]
		ends := separators
		if lead >= 2 && as&onlySlash != 0 {
			ends &= atSlash | atHash | atEnd
		}
		if cuts && lead < 2 && i >= rawFrom {
			if params < 0 {
				params = piece.paramsOf(as)
			}
			if params >= 0 && as&rawParams != 0 {
				ends &= atSlash | atHash | atEnd
			}
		}
		if piece.mark&ends == 0 {
			continue
		}
		whole, last := span{start, piece.end}, piece.mark&(atHash|atEnd) != 0
		s, codedDot := whole, piece.codedDot
		if params >= 0 {
			if last || as&(cutParams|rawParams) != 0 {
				s.end = params
			}
			codedDot, params = p.pieces[first].codedDot, -1 // what is left may be dots, which are in one piece
		}
		start, first = piece.end+1, i+1
		switch {
		case lead >= 0 && !last && whole.start == whole.end && (lead < 2 || as&leaveLead != 0):
			lead++
		case lead >= 2:
			r.authority, lead = whole, -1
		case r.resolve(s, codedDot):
			r.slash = last
		case s.start < s.end, as&anyRuns != 0 && !last:
			r.segments = append(r.segments, s)
		default:
			r.slash = last
		}
		if lead < 2 && whole.start < whole.end {
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

// paramsOf is where parameters begin in a piece, if they are cut before dots are resolved; -1:
// nowhere.
func (p *piece) paramsOf(as normalisation) int {
	if as&rawParams != 0 {
		return p.written
	}
	return p.params
}

// rawFrom is the first piece in which parameters may be cut: behind the last slash if only the last segment's are, and
// before anything is decoded.
func (p *decoded) rawFrom(as normalisation) (from int) {
	if as&cutLastParams == 0 || as&rawParams == 0 {
		return 0
	}
	for i := range p.pieces {
		switch mark := p.pieces[i].mark; {
		case mark == atHash && as&keepHash == 0:
			return from
		case mark == atSlash:
			from = i + 1
		}
	}
	return from
}

// resolve leaves segments if the one that follows them is made of dots, and reports whether it did.
// RFC 3986, section 5.2.4, in one pass: .. takes the last segment away, if there is one.
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

// applyLate does what is done once dots are resolved: coded slashes separate, parameters are cut, or empty segments
// are left out.
func (r *variant) applyLate() {
	r.segments, r.resolved = r.resolved[:0], r.segments
	for i, s := range r.resolved {
		for r.as&lateSlashes != 0 {
			at := bytes.IndexByte(r.text[s.start:s.end], '/')
			if at < 0 {
				break
			}
			r.keep(r.cutLate(span{s.start, s.start + at}, false))
			s.start += at + 1
		}
		last := i == len(r.resolved)-1 && !r.slash
		if s = r.cutLate(s, last); last && s.start == s.end {
			r.slash = true
		} else {
			r.keep(s)
		}
	}
}

// cutLate is a segment without its parameters, if they are cut once dots are resolved.
func (r *variant) cutLate(s span, last bool) span {
	if r.as&lateParams != 0 && (last || r.as&cutParams != 0) {
		if at := bytes.IndexByte(r.text[s.start:s.end], ';'); at >= 0 {
			s.end = s.start + at
		}
	}
	return s
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
