package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// A member is one of the things that a request may say: a query parameter or a
// member of a JSON object. A set of them is their sum.
type member uint32

const (
	keyMember member = 1 << iota
	algorithmMember
	policyMember
	permitsMember
	keepMember
	detailsMember // of a query only
	methodMember
	pathMember
	hostMember
	ipMember
	headersMember
	attributesMember
	waitMember
	setMember
	idMember
	ttlMember
	expiresAtMember
	onExpiryMember
	rulesMember
	viaMember
	viasMember

	claimMembers      = keyMember | algorithmMember | policyMember
	costMembers       = claimMembers | permitsMember | keepMember
	reserveMembers    = costMembers | settledMembers | idMember | ttlMember | onExpiryMember
	endMembers        = claimMembers | settledMembers | idMember | ttlMember | expiresAtMember | rulesMember
	settledMembers    = methodMember | pathMember | hostMember | ipMember | headersMember | attributesMember | setMember
	evaluationMembers = settledMembers | waitMember
	viaMembers        = viaMember | viasMember
)

// memberNames are the names of the members, in their order.
var memberNames = [...]string{
	"key", "algorithm", "policy", "permits", "keep", "details", "method", "path", "host", "ip", "headers",
	"attributes", "wait", "set",
	"id", "ttl", "expiresAt", "onExpiry", "rules", "via", "vias",
}

// memberNamed returns the member of that name, or 0.
func memberNamed(name string) member {
	if i := slices.Index(memberNames[:], name); i >= 0 {
		return 1 << i
	}
	return 0
}

// String lists the members' names.
func (m member) String() string {
	var names []string
	for i, name := range memberNames {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// A request is what a caller asked for, as it was written; permits and keep are integers
// in decimal, or something that claims to be one.
type request struct {
	present                               member
	key, algorithm, policy, permits, keep string
	id, ttl, expiresAt, onExpiry          string
	rules                                 []string
	// by which ways rules charged, under "" of those that it does not name
	vias    map[string]string
	details bool
}

// has reports whether the request says any of the members.
func (q *request) has(m member) bool { return q.present&m != 0 }

// add notes a member, which must be among the allowed ones and not be there yet.
func (q *request) add(name string, allowed member) (member, error) {
	m := memberNamed(name) & allowed
	switch {
	case m == 0:
		return 0, stint.Invalid("parameter", problem.Short(name), allowed.String())
	case q.has(m):
		return 0, errRepeated(name)
	}
	q.present |= m
	return m, nil
}

func errRepeated(name string) error {
	return problem.BadRequest("%s is repeated; allowed: once", problem.Short(name))
}

// set keeps the value of a member that is a text.
func (q *request) set(m member, value string) {
	switch m {
	case keyMember:
		q.key = value
	case algorithmMember:
		q.algorithm = value
	case policyMember:
		q.policy = value
	case permitsMember:
		q.permits = value
	case keepMember:
		q.keep = value
	default:
	}
}

// checkKey reports what is wrong with a key that a caller named.
func checkKey(key string) error {
	switch {
	case key == "" || len(key) > bounds.MaxKeyBytes:
		return stint.Invalid("key", problem.Short(key), fmt.Sprintf("1 to %d bytes; it has %d", bounds.MaxKeyBytes, len(key)))
	case !utf8.ValidString(key):
		return stint.Invalid("key", problem.Short(key), "UTF-8")
	case strings.ContainsFunc(key, unicode.IsControl):
		return stint.Invalid("key", problem.Short(key), "no control characters")
	}
	return nil
}

var errNotInteger = errors.New("not an integer of 64 bits")

// parseInteger reads an integer in decimal: digits, perhaps after a minus sign.
func parseInteger(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text[0] == '+' {
		return 0, errNotInteger
	}
	return n, nil
}

// A batch's size is bounded by what one store call should carry.
func errBatchSize(came string) error {
	return problem.BadRequest("the array has %s; allowed: 1 to %d elements", came, bounds.MaxBatch)
}

// parseQuery reads a query of which every parameter must be allowed and stand
// once. It does not allocate unless a text is percent-encoded.
func parseQuery(query string, allowed member) (q request, err error) {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if name, err = unescape(name); err != nil {
			return q, err
		}
		if value, err = unescape(value); err != nil {
			return q, err
		}
		m, err := q.add(name, allowed)
		if err != nil {
			return q, err
		}
		q.set(m, value)
		if q.details = q.details || m == detailsMember && value == "true"; m == detailsMember &&
			!q.details && value != "false" {
			return q, stint.Invalid(name, problem.Short(value), "true or false")
		}
	}
	return q, nil
}

// unescape decodes a name or value of a query, in which a plus is a space.
func unescape(text string) (string, error) {
	decoded, err := url.QueryUnescape(text)
	if err != nil {
		return "", stint.Invalid("query", problem.Short(text), "percent-encoding, % with two hexadecimal digits")
	}
	return decoded, nil
}

// detailsOf reads the query of a request whose other parameters are members of the body. A
// settlement has no details.
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
		return false, problem.BadRequest(
			"the query is %q; allowed: %s, as the parameters are members of the body", problem.Short(query), only,
		)
	}
	return q.details, nil
}

// A scanner reads the shapes that a body can have: an object of known members, or an array of
// such objects. It is stricter than encoding/json: members are spelled exactly and stand once, and texts hold what
// they say, without replacement characters for what could not be read.
type scanner struct {
	text       string
	at         int
	allowed    member
	evaluation *evaluation        // has the evaluationMembers; nil if none are allowed
	clients    *clientip.Resolver // as above
}

// parseBody reads a body that may be an array of 1 to 1,000 objects in the place of one. batch says that it was
// an array.
func parseBody(text string, allowed member) (requests []request, batch bool, err error) {
	s := &scanner{text: text, allowed: allowed}
	err = s.whole(func() (err error) {
		if batch = s.next() == '['; batch {
			requests, err = s.array()
			return err
		}
		requests = make([]request, 1)
		requests[0], err = s.object()
		return err
	})
	return requests, batch, err
}

// whole has a body read to its end.
func (s *scanner) whole(read func() error) error {
	if !utf8.ValidString(s.text) {
		return problem.BadRequest("the body is not UTF-8; allowed: JSON in UTF-8")
	}
	if err := read(); err != nil {
		return err
	}
	if s.next() != 0 {
		return s.malformed("the end of the body")
	}
	return nil
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
	return problem.BadRequest("the body is malformed: byte %d is %s; allowed: %s", s.at, came, wanted)
}

func (s *scanner) array() ([]request, error) {
	s.at++ // the bracket
	if s.accept(']') {
		return nil, errBatchSize("no elements")
	}
	var requests []request
	for {
		if len(requests) == bounds.MaxBatch {
			return nil, errBatchSize(fmt.Sprintf("more than %d elements", bounds.MaxBatch))
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
	err = s.members(func(name string) error { return s.member(&q, name) })
	return q, err
}

// member reads a member's value. A settlement is of a key or of a described request, as its first
// members say.
func (s *scanner) member(q *request, name string) error {
	m, err := q.add(name, s.allowed)
	switch {
	case err != nil:
		return err
	case m == permitsMember:
		q.permits, err = s.integer(name, "an integer")
		return err
	case m == keepMember:
		q.keep, err = s.integer(name, "an integer")
		return err
	case m == expiresAtMember:
		q.expiresAt, err = s.integer(name, "an integer")
		return err
	case m == idMember:
		q.id, err = s.textOf(name)
		return err
	case m == ttlMember:
		if s.next() != '"' {
			return s.mistyped(name, `a string such as "120s"`)
		}
		q.ttl, err = s.textOf(name)
		return err
	case m == onExpiryMember:
		q.onExpiry, err = s.textOf(name)
		return err
	case m&claimMembers != 0:
		s.allowed &^= evaluationMembers | rulesMember | viaMembers
		value, err := s.textOf(name)
		q.set(m, value)
		return err
	}
	s.allowed &^= claimMembers
	switch m {
	case rulesMember:
		q.rules, err = s.texts(name)
		return err
	case viaMember, viasMember:
		return s.viaOf(q, m, name)
	default:
		return s.describe(m, name)
	}
}

// describe reads what a body says about the request that it describes.
func (s *scanner) describe(m member, name string) (err error) {
	switch m {
	case waitMember:
		s.evaluation.now, err = s.isFalse(name)
		return err
	case headersMember, attributesMember:
		if s.next() != '{' {
			return s.mistyped(name, "an object")
		}
		read := s.headerField
		if m == attributesMember {
			read = s.attribute
		}
		return s.members(read)
	default: // a text
		value, err := s.textOf(name)
		if err != nil {
			return err
		}
		return s.evaluation.set(m, value, s.clients)
	}
}

func addressKey(clients *clientip.Resolver, name, text string) (string, error) {
	addr, ok := clientip.Parse(text)
	if !ok {
		return "", stint.Invalid(name, problem.Short(text), "an IPv4 or IPv6 address")
	}
	return clients.KeyOf(addr), nil
}

// headerField reads one member of headers.
func (s *scanner) headerField(name string) error {
	value, err := s.textOf("headers." + name)
	if err != nil {
		return err
	}
	return s.evaluation.addHeader(name, value)
}

// addHeader notes a field of the request that is described.
func (e *evaluation) addHeader(name, value string) error {
	field := http.CanonicalHeaderKey(name)
	if _, twice := e.header[field]; twice {
		return errRepeated("headers." + name)
	}
	e.lines = append(e.lines, value)
	n := len(e.lines)
	e.header[field] = e.lines[n-1 : n : n]
	return nil
}

// attribute reads one member of attributes: a string, or an integer as its decimal text.
func (s *scanner) attribute(name string) (err error) {
	full := "attributes." + name
	var value string
	if s.next() == '"' {
		value, err = s.string()
	} else if value, err = s.integer(full, "a string or an integer"); err == nil {
		if _, err = parseInteger(value); err != nil {
			err = stint.Invalid(problem.Short(full), problem.Short(value), "a string, or an integer of 64 bits")
		}
	}
	if err != nil {
		return err
	}
	return s.evaluation.addAttribute(name, value)
}

// addAttribute notes an attribute of the request that is described.
func (e *evaluation) addAttribute(name, value string) error {
	if _, twice := e.attributes[name]; twice {
		return errRepeated("attributes." + name)
	}
	e.attributes[name] = value
	return nil
}

// members reads an object, whose brace comes next, and calls read where a member's value does.
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

// textOf reads a string.
func (s *scanner) textOf(name string) (string, error) {
	if s.next() != '"' {
		return "", s.mistyped(name, "a string")
	}
	return s.string()
}

// isFalse reads a boolean.
func (s *scanner) isFalse(name string) (bool, error) {
	s.next()
	for text, is := range map[string]bool{"true": false, "false": true} {
		if strings.HasPrefix(s.text[s.at:], text) {
			s.at += len(text)
			return is, nil
		}
	}
	return false, s.mistyped(name, "true or false")
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
	return problem.BadRequest("%s is %s; allowed: %s", problem.Short(name), kind, wanted)
}

// integer reads a number that is written as an integer (RFC 8259, section 6). What
// it is worth is judged later. wanted says what there may be.
func (s *scanner) integer(name, wanted string) (string, error) {
	if !isNumber(s.next()) {
		return "", s.mistyped(name, wanted)
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
func (s *scanner) string() (string, error) {
	begin, escapes := s.at, false
	for s.at++; s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		switch {
		case s.text[s.at] < ' ':
			return "", s.malformed("no control character in a string")
		case s.text[s.at] == '\\':
			escapes = true
			s.at++
		}
	}
	if s.at >= len(s.text) {
		return "", s.malformed("the closing quote of a string")
	}
	s.at++
	quoted := s.text[begin:s.at]
	if !escapes {
		return quoted[1 : len(quoted)-1], nil
	}
	text := new(string)
	if !pairsSurrogates(quoted) || json.Unmarshal([]byte(quoted), text) != nil {
		s.at = begin
		return "", s.malformed("a string whose escape sequences are JSON's, with surrogates in pairs")
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

// inElement says in which element of a batch the error lies.
func inElement(index int, err error) error {
	e := *problem.Of(err)
	e.Detail = fmt.Sprintf("element %d: %s", index, e.Detail)
	return &e
}
