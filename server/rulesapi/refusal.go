package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/stint-go/stint"
	cliptext "github.com/stint-go/stint/internal/clip"
)

// A Refusal is why a request is not carried out, with the status that says so.
type Refusal struct {
	Status int
	Detail string
	// Type is the problem's type. Default: "", that of the status.
	Type string
	// Field and Value are a header field to send along; Field "" is none.
	Field, Value string

	cause       error // what only the log says: nothing is wrong with the request; nil is none
	unconfirmed bool  // with a cause: what was asked for may have been done
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
	return cliptext.To(most, text)
}

// unreadable refuses what can't be done as what is kept can't be read.
func unreadable(err error) error {
	return &Refusal{
		Status: http.StatusServiceUnavailable, cause: err,
		Detail: "where the rules are kept there is something that can't be read; nothing was changed, and the log says more",
	}
}

// storeAway tells that the store did not answer, and what may have come of it.
func storeAway(err error, detail string) error {
	if errors.Is(err, stint.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return &Refusal{Status: http.StatusServiceUnavailable, Detail: detail}
	}
	return err
}

// hidden is what of an error the answer leaves out: nil where it says all, and where a caller is
// gone.
func hidden(err error) error {
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal.cause
	case errors.Is(err, stint.ErrInvalid), errors.Is(err, stint.ErrUnavailable), errors.Is(err, context.Canceled):
		return nil
	default:
		return err
	}
}

// invalid is the fault of a parameter, of which what came is clipped.
func invalid(param, value, allowed string) error { return stint.Invalid(param, clip(value), allowed) }
