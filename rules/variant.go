package rules

import "bytes"

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
		if as == canonical || as.apart(features) {
			return as
		}
	}
}

// apart reports whether no other normalisation gives the same variant: it has one bit of each group, and none is late if no
// dots are resolved. Parsers that know an authority all end a path at #, and those that skip any number of slashes
// before it take \ for a slash.
func (as normalisation) apart(features normalisation) bool {
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
		r.doLate()
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

// doLate does what is done once dots are resolved: coded slashes separate, or empty segments are left
// out.
func (r *variant) doLate() {
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

// keep adds a segment, but for an empty one if none stay.
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
