package server

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/server/problem"
)

// A member is one of the things that a request may say: a query parameter or a
// member of a JSON object. A set of them is their sum.
type member uint8

const (
	keyMember member = 1 << iota
	algorithmMember
	policyMember
	permitsMember
	detailsMember // of a query only

	claimMembers = keyMember | algorithmMember | policyMember
	costMembers  = claimMembers | permitsMember
)

// memberNamed returns the member of that name, or 0.
func memberNamed(name string) member {
	switch name {
	case "key":
		return keyMember
	case "algorithm":
		return algorithmMember
	case "policy":
		return policyMember
	case "permits":
		return permitsMember
	case "details":
		return detailsMember
	default:
		return 0
	}
}

// String lists the members' names.
func (m member) String() string {
	var names []string
	for i, name := range []string{"key", "algorithm", "policy", "permits", "details"} {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// A request is what a caller asked for, as it was written; permits is an integer
// in decimal, or something that claims to be one.
type request struct {
	present                         member
	key, algorithm, policy, permits string
	details                         bool
}

// has reports whether the request says any of the members.
func (q *request) has(m member) bool { return q.present&m != 0 }

// set notes a member, which must be among the allowed ones and not be there yet.
func (q *request) set(name, value string, allowed member) error {
	m := memberNamed(name)
	if m&allowed == 0 {
		return stint.Invalid("parameter", problem.Short(name), allowed.String())
	}
	if q.has(m) {
		return badRequest(fmt.Sprintf("%s is repeated; allowed: once", name))
	}
	q.present |= m
	switch m {
	case keyMember:
		q.key = value
	case algorithmMember:
		q.algorithm = value
	case policyMember:
		q.policy = value
	case permitsMember:
		q.permits = value
	case detailsMember:
		if q.details = value == "true"; !q.details && value != "false" {
			return stint.Invalid(name, problem.Short(value), "true or false")
		}
	case claimMembers, costMembers: // sets of members, not one
	}
	return nil
}

// checkKey reports what is wrong with a key that a caller named.
func checkKey(key string) error {
	if key == "" || len(key) > stint.MaxKeyBytes {
		return stint.Invalid("key", problem.Short(key), fmt.Sprintf("1 to %d bytes; it has %d", stint.MaxKeyBytes, len(key)))
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return checkUnicodeKey(key)
		}
	}
	return nil
}

func checkUnicodeKey(key string) error {
	if !utf8.ValidString(key) {
		return stint.Invalid("key", problem.Short(key), "UTF-8")
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return stint.Invalid("key", problem.Short(key), "no control characters")
	}
	return nil
}

var errNotInteger = errors.New("not an integer of 64 bits")

// parseInteger reads an integer in decimal: digits, perhaps after a minus sign.
func parseInteger(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	negative := len(digits) < len(text)
	if digits == "" {
		return 0, errNotInteger
	}
	var n int64 // -|value|, which reaches one further than |value|
	for i := range len(digits) {
		c := digits[i]
		const last, lastDigit = -(1 << 63) / 10, 8
		if c < '0' || c > '9' || n < last || n == last && c-'0' > lastDigit {
			return 0, errNotInteger
		}
		n = n*10 - int64(c-'0')
	}
	if negative {
		return n, nil
	}
	if n == -1<<63 {
		return 0, errNotInteger
	}
	return -n, nil
}

// A batch's size is bounded by what one store call should carry.
func errBatchSize(came string) error {
	return badRequest(fmt.Sprintf("the array has %s; allowed: 1 to %d elements", came, api.MaxBatch))
}

// parseQuery reads a query of which every parameter must be allowed and stand
// once. It does not allocate unless a text is percent-encoded.
func parseQuery(query string, allowed member) (request, error) {
	var q request
	for query != "" {
		pair := query
		if end := strings.IndexByte(query, '&'); end >= 0 {
			pair, query = query[:end], query[end+1:]
		} else {
			query = ""
		}
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := unescape(name)
		if err != nil {
			return q, err
		}
		if value, err = unescape(value); err != nil {
			return q, err
		}
		if err := q.set(name, value, allowed); err != nil {
			return q, err
		}
	}
	return q, nil
}

// unescape decodes a name or value of a query, in which a plus is a space.
func unescape(text string) (string, error) {
	i := 0
	for i < len(text) && text[i] != '%' && text[i] != '+' {
		i++
	}
	if i == len(text) {
		return text, nil
	}
	decoded := make([]byte, i, len(text))
	copy(decoded, text)
	for ; i < len(text); i++ {
		switch c := text[i]; c {
		case '+':
			decoded = append(decoded, ' ')
		case '%':
			if i+2 >= len(text) || hexDigit(text[i+1]) < 0 || hexDigit(text[i+2]) < 0 {
				return "", stint.Invalid("query", problem.Short(text), "percent-encoding, % with two hexadecimal digits")
			}
			decoded = append(decoded, byte(hexDigit(text[i+1])<<4|hexDigit(text[i+2])))
			i += 2
		default:
			decoded = append(decoded, c)
		}
	}
	return string(decoded), nil
}

// hexDigit is the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	default:
		return -1
	}
}

// detailsOf reads the query of a request whose other parameters are members of the body. A settlement has no details.
func detailsOf(query string, allowed member) (details bool, err error) {
	if query == "" {
		return false, nil
	}
	q, err := parseQuery(query, allowed)
	if err != nil {
		only := "none"
		if allowed != 0 {
			only = "details=true"
		}
		return false, badRequest(fmt.Sprintf("the query is %q; allowed: %s, as the parameters are members of the body", problem.Short(query), only))
	}
	return q.details, nil
}

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

// accept consumes the byte if it comes next.
func (s *scanner) accept(c byte) bool {
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
	if s.accept(']') {
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
		if s.accept(']') {
			return requests, nil
		}
		if !s.accept(',') {
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
	if s.accept('}') {
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
		if !s.accept(':') {
			return s.malformed("a colon")
		}
		if err := read(name); err != nil {
			return err
		}
		if s.accept('}') {
			return nil
		}
		if !s.accept(',') {
			return s.malformed("a comma or the end of the object")
		}
	}
}

// value reads a member's value: an integer for permits, else a string. An unknown
// member is refused before its value is read.
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
		return "", badRequest(fmt.Sprintf("%s is %s; allowed: an integer", name, problem.Short(number)))
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
