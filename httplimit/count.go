package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// An answerWriter notes the status of an answer.
type answerWriter struct {
	http.ResponseWriter

	begun int // the status; 0: it has not begun
}

// begin notes the status of an answer that begins. Informational ones come before it, but that of an upgrade.
func (a *answerWriter) begin(status int) {
	if a.begun == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		a.begun = status
	}
}

// Unwrap is for [http.ResponseController].
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answerWriter) WriteHeader(status int) {
	a.begin(status)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerWriter) Write(data []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(data)
}

// ReadFrom begins the answer with the first byte: a handler whose source fails before it can still answer otherwise.
func (a *answerWriter) ReadFrom(from io.Reader) (n int64, err error) {
	if a.begun == 0 {
		const first = 512 // of which net/http detects the media type
		n, err = io.Copy(struct{ io.Writer }{a}, io.LimitReader(from, first))
		if err != nil || n < first {
			return n, err
		}
	}
	rest, err := io.Copy(a.ResponseWriter, from)
	return n + rest, err
}

func (a *answerWriter) Flush() { _ = a.FlushError() }

func (a *answerWriter) FlushError() error {
	err := http.NewResponseController(a.ResponseWriter).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		a.begin(http.StatusOK)
	}
	return err
}

// Hijack is an upgrade, of which the handler writes the answer.
func (a *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
	}
	return conn, both, err
}

// Push is for handlers of HTTP/2 that ask for it.
func (a *answerWriter) Push(target string, options *http.PushOptions) error {
	if pusher, ok := a.ResponseWriter.(http.Pusher); ok {
		return pusher.Push(target, options)
	}
	return http.ErrNotSupported
}
