package problem

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/promlimit"
)

// A CountedAnswer is the answer to one request, which is counted when it begins: what a slow client takes to read it,
// and how long a stream of events lasts, is not the service's doing. The zero value is not usable;
// [CountedAnswer.Begin] is called first. It is for one goroutine.
type CountedAnswer struct {
	http.ResponseWriter

	// Route is where the answer is counted.
	Route    *promlimit.AnswerRoute
	draining func() bool
	trace    string
	start    time.Time
	counted  bool
}

// Begin takes the place of an answer to a request that has just come, of a trace or of none (""). Another route may be
// set until the answer begins. If the service is draining then, the answer ends its connection: the request may have
// come before.
func (a *CountedAnswer) Begin(
	w http.ResponseWriter, route *promlimit.AnswerRoute, draining func() bool, trace string,
) {
	*a = CountedAnswer{ResponseWriter: w, Route: route, draining: draining, trace: trace, start: time.Now()}
}

// WriteHeader implements [http.ResponseWriter].
func (a *CountedAnswer) WriteHeader(status int) {
	if status >= http.StatusOK { // and not 100 (Continue), after which the answer comes
		a.count(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *CountedAnswer) Write(text []byte) (int, error) {
	a.count(http.StatusOK)
	return a.ResponseWriter.Write(text)
}

// End counts an answer of which nothing was written, which net/http sends when the handler ends. The answer must not be
// used afterwards.
func (a *CountedAnswer) End() {
	a.count(http.StatusOK)
	a.ResponseWriter = nil
}

// Unwrap lets [http.ResponseController] find the response below.
func (a *CountedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *CountedAnswer) count(status int) {
	if !a.counted {
		a.counted = true
		if a.draining() {
			a.Header().Set("Connection", "close")
		}
		a.Route.Answered(statusText(status), time.Since(a.start), a.trace)
	}
}

// statusText is the number of a status. Those of nearly all requests are texts already.
func statusText(status int) string {
	switch status {
	case http.StatusOK:
		return "200"
	case http.StatusTooManyRequests:
		return "429"
	default:
		return strconv.Itoa(status)
	}
}

// BoundedBody is the body of a request, of which reading more than so many bytes fails with [http.MaxBytesError] and
// ends the connection: by net/http's own response, which knows how to.
func BoundedBody(w http.ResponseWriter, r *http.Request, most int64) io.ReadCloser {
	if counted, ok := w.(*CountedAnswer); ok {
		w = counted.ResponseWriter
	}
	return http.MaxBytesReader(w, r.Body, most)
}

// BoundBody makes the body come in time, whether it is read here or, unread, by net/http. A connection that knows no
// deadlines, as in a test of the handler alone, has none.
//
// A body in chunks ends its connection with the answer. RFC 9112, section 6.1, wants that where a
// Content-Length stands beside Transfer-Encoding, of which net/http tells only the latter: whoever
// passed both on may have gone by the former, and then takes what follows for another request. In
// HTTP/1.0, which has no chunks, net/http ignores Transfer-Encoding and tells nothing of it, so
// each such connection ends with its answer.
func BoundBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Connection", "close")
	}
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	}
}
