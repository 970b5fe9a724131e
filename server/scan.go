package server

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stint-go/stint/api"
)

// A scanner reads the shapes that a body can have: an object of known members, an array of
// such objects, or an object that holds others, see parseEvaluation. It is stricter than encoding/json: members are
// spelled exactly and stand once, and texts hold what they say, without replacement
// characters for what could not be read.
type scanner struct {
	text    string
	at      int
	allowed member
}

// parseBody reads a body that must be one object, or, when list is true, may be
// an array of 1 to api.MaxBatch objects. batch says that it was an array.
func parseBody(text string, allowed member, list bool) (requests []request, batch bool, err error) {
	if !utf8.ValidString(text) {
		return nil, false, badRequest("the body is not UTF-8; allowed: JSON in UTF-8")
	}
	s := &scanner{text: text, allowed: allowed}
	if s.next() == '[' && list {
		batch = true
		requests, err = s.array()
	} else {
		requests = make([]request, 1)
		requests[0], err = s.object()
	}
	if err == nil && s.next() != 0 {
		err = s.malformed("the end of the body")
	}
	return requests, batch, err
}

// next skips white space and returns the byte that follows, 0 at the end. A zero
// byte in the text is malformed wherever it stands, so nothing is lost.
func (s *scanner) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		case 0:
			return '?'
		default:
			return c
		}
	}
	return 0
}

// take consumes the byte if it comes next.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) malformed(wanted string) error {
	came := "the end"
	if s.at < len(s.text) {
		r, _ := utf8.DecodeRuneInString(s.text[s.at:])
		came = fmt.Sprintf("%q", r)
	}
	return badRequest(fmt.Sprintf("the body is malformed: byte %d is %s; allowed: %s", s.at, came, wanted))
}

func (s *scanner) array() ([]request, error) {
	s.at++ // the bracket
	if s.take(']') {
		return nil, errBatchSize("no elements")
	}
	var requests []request
	for {
		if len(requests) == api.MaxBatch {
			return nil, errBatchSize(fmt.Sprintf("more than %d elements", api.MaxBatch))
		}
		q, err := s.object()
		if err != nil {
			return nil, inElement(len(requests), err)
		}
		requests = append(requests, q)
		if s.take(']') {
			return requests, nil
		}
		if !s.take(',') {
			return nil, s.malformed("a comma or the end of the array")
		}
	}
}

func (s *scanner) object() (q request, err error) {
	if s.next() != '{' {
		return q, s.malformed("a JSON object with " + s.allowed.String())
	}
	err = s.members(func(name string) error {
		value, err := s.value(name)
		if err != nil {
			return err
		}
		return q.set(name, value, s.allowed)
	})
	return q, err
}

// members reads an object, whose brace comes next, and calls read where a member's value
// does.
func (s *scanner) members(read func(name string) error) error {
	s.at++ // the brace
	if s.take('}') {
		return nil
	}
	for {
		if s.next() != '"' {
			return s.malformed("the name of a member in quotes")
		}
		name, err := s.string()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.malformed("a colon")
		}
		if err := read(name); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.malformed("a comma or the end of the object")
		}
	}
}

// value reads a member's value: an integer for permits, else a string. What is no
// member is refused before its value is looked at.
func (s *scanner) value(name string) (string, error) {
	m := memberNamed(name) & s.allowed
	if m == 0 {
		return "", new(request).set(name, "", s.allowed)
	}
	wanted := "a string"
	if m == permitsMember {
		wanted = "an integer"
		if isNumber(s.next()) {
			return s.integer(name)
		}
	} else if s.next() == '"' {
		return s.string()
	}
	return "", s.mistyped(name, wanted)
}

// isNumber reports whether a number can begin with the byte.
func isNumber(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// mistyped says that a member's value, which comes next, is of another type than wanted.
func (s *scanner) mistyped(name, wanted string) error {
	c := s.next()
	kind, known := map[byte]string{
		'"': "a string", '{': "an object", '[': "an array", 't': "a boolean", 'f': "a boolean", 'n': "null",
	}[c]
	if isNumber(c) {
		kind, known = "a number", true
	}
	if !known {
		return s.malformed(wanted)
	}
	return badRequest(fmt.Sprintf("%s is %s; allowed: %s", name, kind, wanted))
}

// integer reads a number that is written as an integer (RFC 8259, section 6). What
// it is worth is judged later.
func (s *scanner) integer(name string) (string, error) {
	start := s.at
	for s.at < len(s.text) && strings.IndexByte("+-.0123456789Ee", s.text[s.at]) >= 0 {
		s.at++
	}
	number := s.text[start:s.at]
	digits := strings.TrimPrefix(number, "-")
	if digits == "" || strings.ContainsAny(digits, "+-.Ee") || digits[0] == '0' && len(digits) > 1 {
		return "", badRequest(fmt.Sprintf("%s is %s; allowed: an integer", name, clip(number)))
	}
	return number, nil
}

// string reads a string, whose quote comes next (RFC 8259, section 7).
func (s *scanner) string() (string, error) {
	s.at++
	start := s.at
	var decoded []byte // what stood before start, once there was an escape
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '"':
			plain := s.text[start:s.at]
			s.at++
			if decoded == nil {
				return plain, nil
			}
			return string(append(decoded, plain...)), nil
		case c < ' ':
			return "", s.malformed("no control character in a string")
		case c == '\\':
			decoded = append(decoded, s.text[start:s.at]...)
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			decoded = utf8.AppendRune(decoded, r)
			start = s.at
		default:
			s.at++
		}
	}
	return "", s.malformed("the closing quote of a string")
}

// escape reads an escape sequence, whose backslash comes next.
func (s *scanner) escape() (rune, error) {
	s.at++
	if s.at == len(s.text) {
		return 0, s.malformed("an escape sequence")
	}
	const names, meanings = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(names, s.text[s.at]); i >= 0 {
		s.at++
		return rune(meanings[i]), nil
	}
	r, err := s.codeUnit()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.at < len(s.text) && s.text[s.at] == '\\' {
		s.at++
		low, err := s.codeUnit()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, s.malformed("surrogates in pairs")
}

// codeUnit reads a u and four hexadecimal digits.
func (s *scanner) codeUnit() (rune, error) {
	const digits = 4
	if s.at >= len(s.text) || s.text[s.at] != 'u' {
		return 0, s.malformed("an escape sequence")
	}
	s.at++
	r := rune(0)
	for range digits {
		if s.at >= len(s.text) || hexDigit(s.text[s.at]) < 0 {
			return 0, s.malformed("four hexadecimal digits")
		}
		r = r<<4 | rune(hexDigit(s.text[s.at]))
		s.at++
	}
	return r, nil
}
