package httplimit

import (
	"encoding/base64"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// A kind is a type of structured field values (RFC 9651, section 3).
type kind uint8

const (
	kindInner kind = iota
	kindInteger
	kindDecimal
	kindString
	kindToken
	kindBytes
	kindBoolean
	kindDate
	kindDisplay
)

// A scanner reads structured field values as RFC 9651, section 4.2, says: what does
// not fit makes the whole field unreadable. Only the values of integers are kept.
type scanner struct{ rest string }

// skip takes one byte if it comes next.
func (s *scanner) skip(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// take takes the longest run, perhaps empty, of bytes that fit.
func (s *scanner) take(fits func(byte) bool) string {
	n := 0
	for n < len(s.rest) && fits(s.rest[n]) {
		n++
	}
	run := s.rest[:n]
	s.rest = s.rest[n:]
	return run
}

// end takes spaces and tells whether nothing follows them.
func (s *scanner) end() bool {
	s.rest = strings.TrimLeft(s.rest, " ")
	return s.rest == ""
}

// list reads a list (section 4.2.1). member is told the kind of each of its members and
// returns what is to be told its parameters: their names, kinds and, of integers, values.
func (s *scanner) list(member func(kind) func(name string, k kind, n int64)) bool {
	if s.end() {
		return true
	}
	for {
		k, ok := s.member()
		if !ok || !s.parameters(member(k)) {
			return false
		}
		s.rest = strings.TrimLeft(s.rest, " \t")
		if s.rest == "" {
			return true
		}
		if !s.skip(',') {
			return false
		}
		s.rest = strings.TrimLeft(s.rest, " \t")
		if s.rest == "" {
			return false
		}
	}
}

// member reads an item or an inner list, without what follows it.
func (s *scanner) member() (kind, bool) {
	if s.skip('(') {
		return kindInner, s.inner()
	}
	k, _, ok := s.item()
	return k, ok
}

// inner reads an inner list (section 4.2.1.2) behind its parenthesis.
func (s *scanner) inner() bool {
	for {
		if s.end() {
			return false
		}
		if s.skip(')') {
			return true
		}
		if _, _, ok := s.item(); !ok || !s.parameters(func(string, kind, int64) {}) {
			return false
		}
		if s.rest == "" || s.rest[0] != ' ' && s.rest[0] != ')' {
			return false
		}
	}
}

// parameters reads what follows an item (section 4.2.3.2).
func (s *scanner) parameters(each func(name string, k kind, n int64)) bool {
	for s.skip(';') {
		s.end()
		if s.rest == "" || !isLower(s.rest[0]) && s.rest[0] != '*' {
			return false
		}
		name := s.take(func(c byte) bool { return isLower(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 })
		k, n, ok := kindBoolean, int64(0), true
		if s.skip('=') {
			k, n, ok = s.item()
		}
		if !ok {
			return false
		}
		each(name, k, n)
	}
	return true
}

// item reads a bare item (section 4.2.3.1) and the value of an integer.
func (s *scanner) item() (k kind, n int64, ok bool) {
	if s.rest == "" {
		return 0, 0, false
	}
	switch c := s.rest[0]; {
	case c == '-' || isDigit(c):
		return s.number()
	case c == '"':
		return kindString, 0, s.quoted()
	case c == '*' || isAlpha(c):
		s.take(func(c byte) bool { return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0 })
		return kindToken, 0, true
	case c == ':':
		return kindBytes, 0, s.bytes()
	case c == '?':
		s.skip('?')
		return kindBoolean, 0, s.skip('0') || s.skip('1')
	case c == '@':
		s.skip('@')
		k, _, ok = s.number()
		return kindDate, 0, ok && k == kindInteger
	case c == '%':
		return kindDisplay, 0, s.display()
	}
	return 0, 0, false
}

// number reads an integer of up to 15 digits, or a decimal of up to 12 and 3 (section
// 4.2.4).
func (s *scanner) number() (k kind, n int64, ok bool) {
	const mostDigits, mostWhole, mostFraction = 15, 12, 3
	negative := s.skip('-')
	whole := s.take(isDigit)
	if s.skip('.') {
		fraction := s.take(isDigit)
		return kindDecimal, 0, whole != "" && len(whole) <= mostWhole && fraction != "" && len(fraction) <= mostFraction
	}
	if whole == "" || len(whole) > mostDigits {
		return 0, 0, false
	}
	for i := range len(whole) {
		n = n*10 + int64(whole[i]-'0')
	}
	if negative {
		n = -n
	}
	return kindInteger, n, true
}

// quoted reads a string (section 4.2.5).
func (s *scanner) quoted() bool {
	s.skip('"')
	for s.rest != "" {
		c := s.rest[0]
		s.rest = s.rest[1:]
		switch {
		case c == '"':
			return true
		case c == '\\':
			if !s.skip('"') && !s.skip('\\') {
				return false
			}
		case !isPrintable(c):
			return false
		}
	}
	return false
}

// bytes reads a byte sequence (section 4.2.7), padded or not.
func (s *scanner) bytes() bool {
	s.skip(':')
	text, rest, closed := strings.Cut(s.rest, ":")
	s.rest = rest
	if !closed || strings.ContainsAny(text, "\r\n") { // which the decoder would leave out
		return false
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(text, "=") {
		encoding = base64.StdEncoding
	}
	_, err := encoding.DecodeString(text)
	return err == nil
}

// display reads a display string (section 4.2.10): UTF-8 with percent signs.
func (s *scanner) display() bool {
	s.skip('%')
	if !s.skip('"') {
		return false
	}
	var text []byte
	for s.rest != "" {
		c := s.rest[0]
		s.rest = s.rest[1:]
		switch {
		case c == '"':
			return utf8.Valid(text)
		case c == '%':
			if len(s.rest) < 2 {
				return false
			}
			high, low := hexDigit(s.rest[0]), hexDigit(s.rest[1])
			if high < 0 || low < 0 {
				return false
			}
			c = byte(high<<4 | low)
			s.rest = s.rest[2:]
		case !isPrintable(c):
			return false
		}
		text = append(text, c)
	}
	return false
}

// hexDigit is the value of a hexadecimal digit in lower case, or -1.
func hexDigit(c byte) int { return strings.IndexByte("0123456789abcdef", c) }

func isDigit(c byte) bool     { return '0' <= c && c <= '9' }
func isLower(c byte) bool     { return 'a' <= c && c <= 'z' }
func isAlpha(c byte) bool     { return isLower(c | 0x20) }
func isPrintable(c byte) bool { return ' ' <= c && c <= '~' }

// mulDivCeil is a x b / c rounded up, for positive numbers whose quotient fits.
func mulDivCeil(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
