package server

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/server/problem"
)

func badRequest(detail string) error {
	return &problem.Error{Status: http.StatusBadRequest, Detail: detail}
}

// inElement says in which element of a batch the error lies.
func inElement(index int, err error) error {
	e := *problem.Of(err)
	e.Detail = fmt.Sprintf("element %d: %s", index, e.Detail)
	return &e
}

// errStoreAway answers what the store did not, by what may have come of it. It wraps
// stint.ErrUnavailable.
func errStoreAway(verb stint.Verb) error {
	detail := problem.Unknown
	switch verb {
	case stint.Take, stint.Try:
	case stint.Peek:
		detail = "the store could not answer; nothing was consumed"
	case stint.Reset:
		detail = "the store did not confirm the reset; whether it was made is not known"
	case stint.Settle:
		detail = "the store did not confirm the settlement; whether it was made is not known"
	}
	return &problem.Error{Status: http.StatusServiceUnavailable, Detail: detail, Cause: stint.ErrUnavailable}
}

// errRulesUnknown answers what can't be decided without rules.
func errRulesUnknown() error {
	return problem.New(http.StatusServiceUnavailable, "the rules could not be read yet; nothing was consumed. The service's log says why")
}

// writeJSON answers with a document.
func writeJSON(w http.ResponseWriter, status int, v any) {
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // a client that is gone has no use for the error
}
