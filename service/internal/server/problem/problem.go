// Package problem is the one place where errors turn into statuses and problem documents (RFC 9457), and has what else
// the answers of both listeners share: JSON, and the faults of a query.
//
// Handlers return errors; [Write] answers with what [Of] makes of them: an [Error] as it is,
// invalid input as 400, an overloaded process or an unreachable store as 503, and
// anything else as 500 without its text. Texts name the parameter at fault, what came, and what is
// allowed; what came is clipped by [Short].
package problem

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/spell"
)

// An Error is an error with its status.
type Error struct {
	Status int
	// Type is the problem's type. Default: "", that of the status.
	Type string
	// Detail names the parameter at fault, what came and what is allowed.
	Detail string
	// Field and Value are a header field to send along. Default: "", none.
	Field, Value string
	// Cause is what the error wraps, and what only the log says. Default: nil, nothing.
	Cause error
}

// Error is the detail.
func (e *Error) Error() string { return e.Detail }

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New is an error with a status.
func New(status int, format string, args ...any) *Error {
	return &Error{Status: status, Detail: prefix.Trim(fmt.Sprintf(format, args...))}
}

// BadRequest is that of a request that is wrong.
func BadRequest(format string, args ...any) *Error {
	return New(http.StatusBadRequest, format, args...)
}

// Forbidden is that of a request that its caller may not make.
func Forbidden(format string, args ...any) *Error { return New(http.StatusForbidden, format, args...) }

// NoPath is that of a path that the listener does not have.
func NoPath(path string) *Error {
	return New(
		http.StatusNotFound, "path is %q; allowed: the paths that %s of this listener describes", Short(path),
		apipath.OpenAPI,
	)
}

// CheckMethod refuses other methods than those that a path has.
func CheckMethod(r *http.Request, has ...string) error {
	if slices.Contains(has, r.Method) {
		return nil
	}
	allowed := strings.Join(has, ", ")
	e := New(http.StatusMethodNotAllowed, "method is %q; allowed: %s", Short(r.Method), allowed)
	e.Field, e.Value = "Allow", allowed
	return e
}

// ReducedCapacity is that of a request which may be sent again in a second.
func ReducedCapacity(detail string) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable,
		Type:   apipath.ProblemReducedCapacity,
		Detail: detail,
		Field:  "Retry-After",
		Value:  "1",
	}
}

// TooLarge is that of a body.
func TooLarge(most int64) *Error {
	return New(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes; allowed: up to %d bytes", most, most)
}

// EndedEarly is that of a body that did not come whole.
func EndedEarly() *Error {
	return BadRequest("the body ended early, or took longer than http.body_timeout")
}

// Short is a text of a request as a detail or a line of the log repeats it: 128 bytes of it at
// most.
func Short(text string) string {
	const most = 128
	return clip.To(most, text)
}

// Unknown is what a store's error means where nothing more is known.
const Unknown = "the store could not decide; whether anything was consumed is not known"

// ClientGone answers a client that has hung up, or closed its half of the connection: its request
// ended before there was an answer. In most cases nobody reads it.
var ClientGone = New(http.StatusServiceUnavailable, "the client has gone")

// Of returns the Error that err is or stands for. The text of an
// unknown error stays inside, as the cause: it may name what is no caller's business.
func Of(err error) *Error {
	var known *Error
	var invalid *stint.InvalidError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &invalid):
		detail, named := strings.CutPrefix(prefix.Trim(err.Error()), invalid.Param)
		if named {
			detail = spell.Document(invalid.Param) + detail
		}
		return &Error{Status: http.StatusBadRequest, Detail: detail}
	case errors.Is(err, stint.ErrInvalid):
		return &Error{Status: http.StatusBadRequest, Detail: prefix.Trim(err.Error())}
	case errors.Is(err, stint.ErrOverloaded):
		overloaded := ReducedCapacity("the service is overloaded; whether anything was consumed is not known")
		overloaded.Cause = stint.ErrOverloaded
		return overloaded
	case errors.Is(err, stint.ErrUnavailable):
		return &Error{Status: http.StatusServiceUnavailable, Detail: Unknown}
	case errors.Is(err, context.Canceled):
		return ClientGone
	default:
		return &Error{
			Status: http.StatusInternalServerError, Detail: "an internal error; the service's log says more", Cause: err,
		}
	}
}

// Write answers with the problem document of an error.
func Write(w http.ResponseWriter, err error) {
	e := Of(err)
	header := w.Header()
	if e.Field != "" {
		header.Set(e.Field, e.Value)
	}
	document := api.Problem{
		Type:   cmp.Or(e.Type, "about:blank"),
		Title:  http.StatusText(e.Status),
		Status: e.Status,
		Detail: Clip(e.Detail),
	}
	if e.Type == apipath.ProblemReducedCapacity {
		document.Title = "Temporary Reduced Capacity"
	}
	header.Set("Content-Type", apipath.ProblemType)
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(e.Status)
	text, _ := Marshal(document) // which has nothing that can't be
	_, _ = w.Write(text)         // a client that is gone has no use for the error
}

// Marshal writes a value as JSON for people: without escapes for HTML.
func Marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return text.Bytes(), err
}

// Answer answers with a document, in JSON. An error is the document's; nothing was answered then.
func Answer(w http.ResponseWriter, r *http.Request, status int, document any) error {
	text, err := Marshal(document)
	if err == nil {
		AnswerJSON(w, r, status, text)
	}
	return err
}

// AnswerJSON answers with a text that is JSON.
func AnswerJSON(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // a client that is gone has no use for the error
	}
}

// AnswerYAML answers with a text that is YAML, such as the description of an API.
func AnswerYAML(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(text) // a client that is gone has no use for the error
}

// A Query is the parameters of a request's query.
type Query struct{ url.Values }

// ParseQuery reads a query, of which only the names may be there, each once. label may be there
// several times.
func ParseQuery(text string, names []string) (Query, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return Query{}, stint.Invalid(
			"query", Short(text), "percent-encoding, % with two hexadecimal digits, and no semicolon",
		)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			return Query{}, stint.Invalid("parameter", Short(name), cmp.Or(strings.Join(names, ", "), "none"))
		}
		if name != "label" && len(values[name]) > 1 {
			return Query{}, stint.Invalid("parameter", name, "once")
		}
	}
	return Query{values}, nil
}

// Integer reads a parameter between bounds; without it, it is otherwise.
func (q Query) Integer(name string, otherwise, least, most int64) (int64, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		return 0, stint.Invalid(name, Short(q.Get(name)), fmt.Sprintf("%d to %d", least, most))
	}
	return n, nil
}

// Flag is a parameter of which the only value is true; false if there is none.
func (q Query) Flag(name string) (bool, error) {
	if q.Has(name) && q.Get(name) != "true" {
		return false, stint.Invalid(name, Short(q.Get(name)), "true, or none")
	}
	return q.Has(name), nil
}

const (
	// maxDetail bounds a problem's detail, in bytes: small bodies may have many faults.
	maxDetail = 16 << 10
	// maxFault bounds one of them.
	maxFault = 1 << 10
)

// Clip bounds everything that an answer repeats of a request. It shortens each line of a
// detail, which is a fault, and leaves out whole ones of too many, and says how many.
func Clip(detail string) string {
	if len(detail) <= maxFault {
		return detail
	}
	var clipped strings.Builder
	more := 0
	for line := range strings.SplitSeq(detail, "\n") {
		line = clip.To(maxFault, line)
		if more > 0 || clipped.Len()+1+len(line) > maxDetail {
			more++
			continue
		}
		if clipped.Len() > 0 {
			clipped.WriteByte('\n')
		}
		clipped.WriteString(line)
	}
	if more > 0 {
		fmt.Fprintf(&clipped, "\nand %d more", more)
	}
	return strings.ToValidUTF8(clipped.String(), "\uFFFD")
}
