// Package strictjson reads JSON more strictly than encoding/json: texts hold what they say, without replacement
// characters for what could not be read, and errors name the byte, what came and what is allowed.
package strictjson

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stint-go/stint/service/internal/server/problem"
)

// A Scanner reads a text from its beginning to its end. Make it with [New]; it is for one goroutine.
type Scanner struct {
	text string
	at   int
}

// New makes a scanner of a text.
func New(text string) Scanner { return Scanner{text: text} }

// Whole has a body read to its end.
func (s *Scanner) Whole(read func() error) error {
	if !utf8.ValidString(s.text) {
		return problem.BadRequest("the body is not UTF-8; allowed: JSON in UTF-8")
	}
	if err := read(); err != nil {
		return err
	}
	if s.Next() != 0 {
		return s.Malformed("the end of the body")
	}
	return nil
}

// Next skips white space and returns the byte that follows, 0 at the end. A zero
// byte in the text is malformed wherever it stands, so nothing is lost.
func (s *Scanner) Next() byte {
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

// Accept consumes the byte if it comes next.
func (s *Scanner) Accept(c byte) bool {
	if s.Next() != c {
		return false
	}
	s.at++
	return true
}

// Malformed is the error of what stands next, where something else is wanted.
func (s *Scanner) Malformed(wanted string) error {
	came := "the end"
	if s.at < len(s.text) {
		r, _ := utf8.DecodeRuneInString(s.text[s.at:])
		came = fmt.Sprintf("%q", r)
	}
	return problem.BadRequest("the body is malformed: byte %d is %s; allowed: %s", s.at, came, wanted)
}

// Members reads an object, whose brace comes next, and calls read where a member's value does.
func (s *Scanner) Members(read func(name string) error) error {
	s.at++ // the brace
	if s.Accept('}') {
		return nil
	}
	for {
		if s.Next() != '"' {
			return s.Malformed("the name of a member in quotes")
		}
		name, err := s.string()
		if err != nil {
			return err
		}
		if !s.Accept(':') {
			return s.Malformed("a colon")
		}
		if err := read(name); err != nil {
			return err
		}
		if s.Accept('}') {
			return nil
		}
		if !s.Accept(',') {
			return s.Malformed("a comma or the end of the object")
		}
	}
}

// Text reads a string.
func (s *Scanner) Text(name string) (string, error) {
	if s.Next() != '"' {
		return "", s.Mistyped(name, "a string")
	}
	return s.string()
}

// IsFalse reads a boolean.
func (s *Scanner) IsFalse(name string) (bool, error) {
	s.Next()
	for text, is := range map[string]bool{"true": false, "false": true} {
		if strings.HasPrefix(s.text[s.at:], text) {
			s.at += len(text)
			return is, nil
		}
	}
	return false, s.Mistyped(name, "true or false")
}

// isNumber reports whether a number can begin with the byte.
func isNumber(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// Mistyped says that a member's value, which comes next, is of another type than wanted.
func (s *Scanner) Mistyped(name, wanted string) error {
	c := s.Next()
	kind, known := map[byte]string{
		'"': "a string", '{': "an object", '[': "an array", 't': "a boolean", 'f': "a boolean", 'n': "null",
	}[c]
	if isNumber(c) {
		kind, known = "a number", true
	}
	if !known {
		return s.Malformed(wanted)
	}
	return problem.BadRequest("%s is %s; allowed: %s", problem.Short(name), kind, wanted)
}

// Integer reads a number that is written as an integer (RFC 8259, section 6). What
// it is worth is judged later. wanted says what there may be.
func (s *Scanner) Integer(name, wanted string) (string, error) {
	if !isNumber(s.Next()) {
		return "", s.Mistyped(name, wanted)
	}
	number := s.text[s.at:]
	number = number[:len(number)-len(strings.TrimLeft(number, "+-.0123456789Ee"))]
	s.at += len(number)
	digits := strings.TrimPrefix(number, "-")
	if digits == "" || strings.ContainsAny(digits, "+-.Ee") || digits[0] == '0' && len(digits) > 1 {
		return "", problem.BadRequest("%s is %s; allowed: an integer", problem.Short(name), problem.Short(number))
	}
	return number, nil
}

// string reads a string, whose quote comes next (RFC 8259, section 7).
func (s *Scanner) string() (string, error) {
	begin, escapes := s.at, false
	for s.at++; s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		switch {
		case s.text[s.at] < ' ':
			return "", s.Malformed("no control character in a string")
		case s.text[s.at] == '\\':
			escapes = true
			s.at++
		}
	}
	if s.at >= len(s.text) {
		return "", s.Malformed("the closing quote of a string")
	}
	s.at++
	quoted := s.text[begin:s.at]
	if !escapes {
		return quoted[1 : len(quoted)-1], nil
	}
	text := new(string)
	if !pairsSurrogates(quoted) || json.Unmarshal([]byte(quoted), text) != nil {
		s.at = begin
		return "", s.Malformed("a string whose escape sequences are JSON's, with surrogates in pairs")
	}
	return *text, nil
}

// pairsSurrogates reports whether the escaped surrogates of a string are in pairs. encoding/json takes
// U+FFFD for a lone one, which would let different keys name one client.
func pairsSurrogates(quoted string) bool {
	for {
		_, escape, found := strings.Cut(quoted, `\`)
		if !found {
			return true
		}
		quoted = escape[1:]
		high, escaped := escapedUnit(escape)
		if !escaped || !utf16.IsSurrogate(high) {
			continue
		}
		next, follows := strings.CutPrefix(escape[5:], `\`)
		low, escaped := escapedUnit(next)
		if !follows || !escaped || utf16.DecodeRune(high, low) == unicode.ReplacementChar {
			return false
		}
		quoted = escape[11:]
	}
}

// escapedUnit is the unit of UTF-16 that text of the form uXXXX begins with.
func escapedUnit(text string) (unit rune, escaped bool) {
	if len(text) < 5 || text[0] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:5], 16, 16)
	return rune(n), err == nil
}

// Texts reads a list of strings.
func (s *Scanner) Texts(name string) ([]string, error) {
	list := []string{}
	if s.Next() != '[' {
		return nil, s.Mistyped(name, "a list of strings")
	}
	s.at++
	for !s.Accept(']') {
		if len(list) > 0 && !s.Accept(',') {
			return nil, s.Malformed("a comma or the end of the list")
		}
		text, err := s.Text(name)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}
