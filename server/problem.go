package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	cliptext "github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/server/rulesapi"
)

// A failure is an error with its status. Every other error turns into one in
// failureOf.
type failure struct {
	status int
	kind   string // the problem's type; "" is that of the status
	detail string
	field  string // a header field to send along, with its value
	value  string
	cause  error // what it is an instance of; nil is nothing
}

func (f *failure) Error() string { return f.detail }

func (f *failure) Unwrap() error { return f.cause }

func badRequest(detail string) error { return &failure{status: http.StatusBadRequest, detail: detail} }

// inElement says in which element of a batch the error lies.
func inElement(index int, err error) error {
	f := *failureOf(err)
	f.detail = fmt.Sprintf("element %d: %s", index, f.detail)
	return &f
}

// errStoreAway answers what the store did not, by what may have come of it. It wraps
// stint.ErrUnavailable.
func errStoreAway(verb stint.Verb) error {
	detail := "the store could not decide; whether anything was consumed is not known"
	switch verb {
	case stint.Take, stint.Try:
	case stint.Peek:
		detail = "the store could not answer; nothing was consumed"
	case stint.Reset:
		detail = "the store did not confirm the reset; whether it was made is not known"
	case stint.Settle:
		detail = "the store did not confirm the settlement; whether it was made is not known"
	}
	return &failure{status: http.StatusServiceUnavailable, detail: detail, cause: stint.ErrUnavailable}
}

// errRulesUnknown answers what can't be decided without rules.
func errRulesUnknown() error {
	return &failure{
		status: http.StatusServiceUnavailable,
		detail: "the rules could not be read yet from where they are kept; nothing was consumed",
	}
}

// failureOf is the one place where errors turn into statuses. The text of an
// unknown error stays inside: it may name what is no caller's business.
func failureOf(err error) *failure {
	var known *failure
	var refusal *rulesapi.Refusal
	switch {
	case errors.As(err, &refusal):
		return &failure{status: refusal.Status, kind: refusal.Type, detail: refusal.Detail, field: refusal.Field, value: refusal.Value}
	case errors.As(err, &known):
		return known
	case errors.Is(err, stint.ErrInvalid):
		return &failure{status: http.StatusBadRequest, detail: err.Error()}
	case errors.Is(err, stint.ErrOverloaded):
		return &failure{
			status: http.StatusServiceUnavailable, kind: api.ProblemReducedCapacity,
			detail: "the service is overloaded; whether anything was consumed is not known",
			field:  fieldRetryAfter, value: "1", cause: stint.ErrOverloaded,
		}
	case errors.Is(err, stint.ErrUnavailable):
		return &failure{status: http.StatusServiceUnavailable, detail: errStoreAway(stint.Take).Error()}
	default:
		return &failure{status: http.StatusInternalServerError, detail: "the server made a mistake; its log says more"}
	}
}

// writeProblem answers with a problem document (RFC 9457).
func writeProblem(w http.ResponseWriter, err error) {
	f := failureOf(err)
	if f.field != "" {
		w.Header().Set(f.field, f.value)
	}
	problem := api.Problem{Type: "about:blank", Title: http.StatusText(f.status), Status: f.status, Detail: clipDetail(f.detail)}
	if f.kind == api.ProblemReducedCapacity {
		problem.Type, problem.Title = f.kind, "Temporary Reduced Capacity"
	}
	writeDocument(w, f.status, problemType, problem)
}

const (
	// maxDetail bounds a problem's detail, in bytes: small bodies may have many faults.
	maxDetail = 16 << 10
	// maxFault bounds one of them.
	maxFault = 1 << 10
)

// clipDetail is where everything that an answer repeats of a request is bounded. It shortens each line of a
// detail, which is a fault, and leaves out whole ones of too many, and says how many.
func clipDetail(detail string) string {
	if len(detail) <= maxFault {
		return detail
	}
	var clipped strings.Builder
	more := 0
	for line := range strings.SplitSeq(detail, "\n") {
		line = cliptext.To(maxFault, line)
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

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, status int, v any) { writeDocument(w, status, jsonType, v) }

func writeDocument(w http.ResponseWriter, status int, mediaType []string, v any) {
	header := w.Header()
	header["Content-Type"] = mediaType
	header["Cache-Control"] = noStore
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	// A client that is gone by now has no use for the error.
	_ = encoder.Encode(v)
}

func errNotFound(path string) error {
	return &failure{
		status: http.StatusNotFound,
		detail: fmt.Sprintf("path is %q; allowed: the paths that %s describes", clip(path), api.PathOpenAPI),
	}
}

func errMethod(method, allowed string) error {
	return &failure{
		status: http.StatusMethodNotAllowed,
		detail: fmt.Sprintf("method is %q; allowed: %s", clip(method), allowed),
		field:  "Allow", value: allowed,
	}
}
