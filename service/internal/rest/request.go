package rest

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/strictjson"
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
	statusMember

	claimMembers      = keyMember | algorithmMember | policyMember
	costMembers       = claimMembers | permitsMember | keepMember
	reserveMembers    = costMembers | settledMembers | idMember | ttlMember | onExpiryMember
	endMembers        = claimMembers | settledMembers | idMember | ttlMember | expiresAtMember | rulesMember
	settledMembers    = methodMember | pathMember | hostMember | ipMember | headersMember | attributesMember | setMember
	evaluationMembers = settledMembers | waitMember
	viaMembers        = viaMember | viasMember
	integerMembers    = permitsMember | keepMember | expiresAtMember | statusMember
	textMembers       = claimMembers | idMember | ttlMember | onExpiryMember
	commitMembers     = endMembers | permitsMember | viaMembers | statusMember
)

// memberNames are the names of the members, in their order.
var memberNames = [...]string{
	"key", "algorithm", "policy", "permits", "keep", "details", "method", "path", "host", "ip", "headers",
	"attributes", "wait", "set",
	"id", "ttl", "expiresAt", "onExpiry", "rules", "via", "vias", "status",
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
	id, ttl, expiresAt, onExpiry, status  string
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
	case idMember:
		q.id = value
	case ttlMember:
		q.ttl = value
	case expiresAtMember:
		q.expiresAt = value
	case onExpiryMember:
		q.onExpiry = value
	case statusMember:
		q.status = value
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
	strictjson.Scanner

	allowed    member
	evaluation *evaluation        // has the evaluationMembers; nil if none are allowed
	clients    *clientip.Resolver // as above
}

// parseBody reads a body that may be an array of 1 to 1,000 objects in the place of one. batch says that it was
// an array.
func parseBody(text string, allowed member) (requests []request, batch bool, err error) {
	s := &scanner{Scanner: strictjson.New(text), allowed: allowed}
	err = s.Whole(func() (err error) {
		if batch = s.Next() == '['; batch {
			requests, err = s.array()
			return err
		}
		requests = make([]request, 1)
		requests[0], err = s.object()
		return err
	})
	return requests, batch, err
}

func (s *scanner) array() ([]request, error) {
	s.Accept('[')
	if s.Accept(']') {
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
		if s.Accept(']') {
			return requests, nil
		}
		if !s.Accept(',') {
			return nil, s.Malformed("a comma or the end of the array")
		}
	}
}

func (s *scanner) object() (q request, err error) {
	if s.Next() != '{' {
		return q, s.Malformed("a JSON object with " + s.allowed.String())
	}
	err = s.Members(func(name string) error { return s.member(&q, name) })
	return q, err
}

// member reads a member's value. A settlement is of a key or of a described request, as its first
// members say.
func (s *scanner) member(q *request, name string) error {
	m, err := q.add(name, s.allowed)
	switch {
	case err != nil:
		return err
	case m&claimMembers != 0:
		s.allowed &^= evaluationMembers | rulesMember | viaMembers | statusMember
	case m&(evaluationMembers|rulesMember|viaMembers|statusMember) != 0:
		s.allowed &^= claimMembers
	}
	var value string
	switch {
	case m == ttlMember && s.Next() != '"':
		return s.Mistyped(name, `a string such as "120s"`)
	case m&integerMembers != 0:
		value, err = s.Integer(name, "an integer")
	case m&textMembers != 0:
		value, err = s.Text(name)
	case m == rulesMember:
		q.rules, err = s.Texts(name)
	case m&viaMembers != 0:
		return s.viaOf(q, m, name)
	default:
		return s.describe(m, name)
	}
	q.set(m, value)
	return err
}

// describe reads what a body says about the request that it describes.
func (s *scanner) describe(m member, name string) (err error) {
	switch m {
	case waitMember:
		s.evaluation.now, err = s.IsFalse(name)
		return err
	case headersMember, attributesMember:
		if s.Next() != '{' {
			return s.Mistyped(name, "an object")
		}
		read := s.headerField
		if m == attributesMember {
			read = s.attribute
		}
		return s.Members(read)
	default: // a text
		value, err := s.Text(name)
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
	value, err := s.Text("headers." + name)
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
	if s.Next() == '"' {
		value, err = s.Text(full)
	} else if value, err = s.Integer(full, "a string or an integer"); err == nil {
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

// inElement says in which element of a batch the error lies.
func inElement(index int, err error) error {
	e := *problem.Of(err)
	e.Detail = fmt.Sprintf("element %d: %s", index, e.Detail)
	return &e
}
