package rulesapi

import (
	"fmt"
	"net/http"

	"github.com/stint-go/stint"
)

// A Refusal is why a request is not carried out, with the status that says so.
type Refusal struct {
	Status int
	Detail string
	// Field and Value are a header field to send along; Field "" is none.
	Field, Value string
}

// Error is the detail.
func (r *Refusal) Error() string { return r.Detail }

func noRule(id string) error {
	return &Refusal{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no rule %q", clip(id))}
}

func noPath(path string) error {
	return &Refusal{
		Status: http.StatusNotFound,
		Detail: fmt.Sprintf("path is %q; allowed: the paths that /openapi.yaml of this listener describes", clip(path)),
	}
}

func badMethod(method, allowed string) error {
	return &Refusal{
		Status: http.StatusMethodNotAllowed,
		Detail: fmt.Sprintf("method is %q; allowed: %s", clip(method), allowed),
		Field:  "Allow", Value: allowed,
	}
}

// clip shortens what came to what is worth repeating.
func clip(text string) string {
	const most = 128
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}

// invalid is the fault of a parameter, of which what came is clipped.
func invalid(param, value, allowed string) error { return stint.Invalid(param, clip(value), allowed) }
