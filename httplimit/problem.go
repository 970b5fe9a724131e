package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/stint-go/stint"
)

// problem answers with a problem document (RFC 9457), which nobody may cache.
func problem(status int, detail string) http.Handler {
	// Texts and a number always marshal.
	document, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail})
	mediaType, noStore := []string{"application/problem+json"}, []string{"no-store"}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header["Content-Type"] = mediaType
		header["Cache-Control"] = noStore
		w.WriteHeader(status)
		// A client that is gone by now has no use for the error.
		_, _ = w.Write(document)
	})
}

// unfit answers a request without a key or a cost. The text of an error that is not
// about the input stays inside.
func unfit(w http.ResponseWriter, r *http.Request, err error) {
	detail := "the request does not say what its rate limit needs to know"
	if errors.Is(err, stint.ErrInvalid) {
		detail = err.Error()
	}
	problem(http.StatusBadRequest, detail).ServeHTTP(w, r)
}
