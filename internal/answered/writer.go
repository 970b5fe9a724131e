// Package answered notes what a handler answers, for what wraps it.
package answered

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// A Writer notes the status of an answer, and lets a handler do what it can without: stream, copy, push and take the
// connection over.
type Writer struct {
	http.ResponseWriter

	// Begun is the status; 0: the answer has not begun.
	Begun int
}

// begin notes the status of an answer that begins. Informational ones come before it, but that of an upgrade.
func (a *Writer) begin(status int) {
	if a.Begun == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		a.Begun = status
	}
}

// Unwrap is for [http.ResponseController].
func (a *Writer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (a *Writer) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *Writer) Write(data []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(data)
}

// ReadFrom begins the answer with the first byte: a handler whose source fails before it can still answer otherwise.
func (a *Writer) ReadFrom(from io.Reader) (n int64, err error) {
	if a.Begun == 0 {
		const first = 512 // of which net/http detects the media type
		n, err = io.Copy(struct{ io.Writer }{a}, io.LimitReader(from, first))
		if err != nil || n < first {
			return n, err
		}
	}
	rest, err := io.Copy(a.ResponseWriter, from)
	return n + rest, err
}

// Flush implements [http.Flusher].
func (a *Writer) Flush() { _ = a.FlushError() }

// FlushError is for [http.ResponseController].
func (a *Writer) FlushError() error {
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		a.begin(http.StatusOK)
	}
	return err
}

// Hijack is an upgrade, of which the handler writes the answer.
func (a *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
	}
	return conn, both, err
}

// Push is for handlers of HTTP/2 that ask for it.
func (a *Writer) Push(target string, options *http.PushOptions) error {
	if pusher, ok := a.ResponseWriter.(http.Pusher); ok {
		return pusher.Push(target, options)
	}
	return http.ErrNotSupported
}
