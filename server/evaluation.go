package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// An evaluation is what deciding one request by rules needs for a moment. The zero value is
// ready to use, and one that is used again saves its allocations.
type evaluation struct {
	request    rules.Request
	verdict    enforce.Verdict
	header     http.Header
	lines      []string // of the header
	attributes map[string]string
	now        bool // whether the request is denied rather than held
	response   api.EvaluateResponse
	body       []byte
	work       ticket
}

// newEvaluation makes an evaluation, whose work is over when the request begins to be held.
func newEvaluation() *evaluation {
	e := new(evaluation)
	e.verdict.OnHold = e.work.leave
	return e
}

// fewRules is how many rules and members an evaluation may have had whose room is kept.
const fewRules = 256

// clear forgets the request. It reports whether the evaluation is worth keeping.
func (e *evaluation) clear() bool {
	few := len(e.header)+len(e.attributes)+len(e.verdict.Matched) <= fewRules
	e.request, e.response, e.now = rules.Request{}, api.EvaluateResponse{}, false
	clear(e.header)
	clear(e.attributes)
	clear(e.lines)
	e.lines = e.lines[:0]
	return few
}

const evaluationMembers = "method, path, host, ip, headers, attributes, wait"

// A reader reads an evaluation's body.
type reader struct {
	scanner
	*evaluation
	clients *clientip.Resolver
	seen    uint8 // of the members, a bit each

	settles bool   // whether it is the body of a settlement, which has permits as well
	permits string // of a settlement
}

// read reads a body that describes a request.
func (e *evaluation) read(text string, clients *clientip.Resolver) error {
	if !utf8.ValidString(text) {
		return badRequest("the body is not UTF-8; allowed: JSON in UTF-8")
	}
	r := reader{scanner: scanner{text: text}, evaluation: e, clients: clients}
	return r.body()
}

// errKeyed says that a settlement names a key, or what it decides by.
var errKeyed = errors.New("a settlement of a key")

const (
	permitsBit = 1 << 6
	waitBit    = 1 << 7
)

// readSettlement reads the body of a settlement, and reports whether it describes a request.
func (e *evaluation) readSettlement(text string, clients *clientip.Resolver) (permits string, described bool, err error) {
	r := reader{scanner: scanner{text: text}, evaluation: e, clients: clients, settles: true}
	err = r.body()
	described = r.seen&^permitsBit != 0 && !errors.Is(err, errKeyed)
	return r.permits, described, err
}

func (r *reader) body() error {
	if r.next() != '{' {
		return r.malformed("a JSON object with any of " + evaluationMembers)
	}
	if err := r.members(r.member); err != nil {
		return err
	}
	if r.next() != 0 {
		return r.malformed("the end of the body")
	}
	return nil
}

// member reads a member's value.
func (r *reader) member(name string) (err error) {
	q := &r.request
	switch name {
	case "method":
		if err = r.once(name, 1<<0); err == nil {
			q.Method, err = r.textOf(name)
		}
	case "path":
		if err = r.once(name, 1<<1); err == nil {
			q.Path, err = r.path()
		}
	case "host":
		if err = r.once(name, 1<<2); err == nil {
			q.Host, err = r.textOf(name)
		}
	case "ip":
		if err = r.once(name, 1<<3); err == nil {
			q.Address, err = r.address()
		}
	case "headers":
		if err = r.once(name, 1<<4); err == nil {
			err = r.object(name, r.headerField)
		}
	case "attributes":
		if err = r.once(name, 1<<5); err == nil {
			err = r.object(name, r.attribute)
		}
	case "wait":
		if err = r.once(name, waitBit); err == nil {
			err = r.wait()
		}
	case "permits":
		if err = r.once(name, permitsBit); err == nil && r.settles {
			r.next()
			r.permits, err = r.integer(name)
		} else if err == nil {
			err = stint.Invalid("parameter", name, evaluationMembers)
		}
	case "key", "algorithm", "policy":
		if err = stint.Invalid("parameter", name, evaluationMembers); r.settles {
			err = errKeyed
		}
	default:
		err = stint.Invalid("parameter", clip(name), evaluationMembers)
	}
	return err
}

// wait reads whether rules that wait may hold the request.
func (r *reader) wait() error {
	r.next()
	switch rest := r.text[r.at:]; {
	case r.settles:
		return stint.Invalid("parameter", "wait", "none in a settlement, which waits for nothing")
	case strings.HasPrefix(rest, "true"):
		r.at += len("true")
	case strings.HasPrefix(rest, "false"):
		r.at += len("false")
		r.now = true
	default:
		return r.mistyped("wait", "true or false")
	}
	return nil
}

// once notes that a member is there, which must not have been.
func (r *reader) once(name string, bit uint8) error {
	if r.seen&bit != 0 {
		return errRepeated(name)
	}
	r.seen |= bit
	return nil
}

func errRepeated(name string) error {
	return badRequest(fmt.Sprintf("%s is repeated; allowed: once", clip(name)))
}

// textOf reads a string.
func (r *reader) textOf(name string) (string, error) {
	if r.next() != '"' {
		return "", r.mistyped(clip(name), "a string")
	}
	return r.string()
}

// object reads a member that is an object.
func (r *reader) object(name string, read func(string) error) error {
	if r.next() != '{' {
		return r.mistyped(name, "an object")
	}
	return r.members(read)
}

func (r *reader) path() (string, error) {
	path, err := r.textOf("path")
	if err == nil {
		err = checkPath("path", path)
	}
	return path, err
}

// checkPath reports what is wrong with a request's path.
func checkPath(param, path string) error {
	if path == "*" || strings.HasPrefix(path, "/") {
		return nil
	}
	return stint.Invalid(param, clip(path), "a path that begins with a slash, or * alone")
}

// address reads the client's address and makes a key of it.
func (r *reader) address() (string, error) {
	text, err := r.textOf("ip")
	if err != nil {
		return "", err
	}
	addr, ok := clientip.Parse(text)
	if !ok {
		return "", stint.Invalid("ip", clip(text), "an IPv4 or IPv6 address")
	}
	return r.clients.KeyOf(addr), nil
}

// headerField reads one member of headers.
func (r *reader) headerField(name string) error {
	value, err := r.textOf("headers." + name)
	if err != nil {
		return err
	}
	field := http.CanonicalHeaderKey(name)
	if _, twice := r.header[field]; twice {
		return errRepeated("headers." + name)
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	r.request.Header = r.header
	r.lines = append(r.lines, value)
	n := len(r.lines)
	r.header[field] = r.lines[n-1 : n : n]
	return nil
}

// attribute reads one member of attributes: a string, or an integer as its decimal text.
func (r *reader) attribute(name string) (err error) {
	if _, twice := r.attributes[name]; twice {
		return errRepeated("attributes." + name)
	}
	var value string
	switch c := r.next(); {
	case c == '"':
		value, err = r.string()
	case isNumber(c):
		if value, err = r.integer(clip("attributes." + name)); err == nil {
			_, err = parseInteger(value)
		}
		if errors.Is(err, errNotInteger) {
			err = stint.Invalid(clip("attributes."+name), clip(value), "a string, or an integer of 64 bits")
		}
	default:
		err = r.mistyped(clip("attributes."+name), "a string or an integer")
	}
	if err != nil {
		return err
	}
	if r.attributes == nil {
		r.attributes = map[string]string{}
	}
	r.attributes[name] = value
	switch name {
	case api.AttributeUserID:
		r.request.User = value
	case api.AttributeAPIKey:
		r.request.APIKey = value
	}
	r.request.Attributes = r.attributes
	return nil
}
