package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// inProcess is a transport that hands requests to a handler.
type inProcess struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	incoming := r.Clone(r.Context())
	incoming.RequestURI = r.URL.RequestURI()
	incoming.RemoteAddr = "127.0.0.1:0"
	if incoming.Body == nil {
		incoming.Body = http.NoBody
	}
	w := answerWriter{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(&w, incoming)
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode: w.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        w.header,
		Body:          io.NopCloser(&w.body),
		ContentLength: int64(w.body.Len()),
		Request:       r,
	}, nil
}

// answerWriter keeps an answer.
type answerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *answerWriter) Header() http.Header                { return w.header }
func (w *answerWriter) WriteHeader(status int)             { w.status = status }
func (w *answerWriter) Write(text []byte) (n int, _ error) { return w.body.Write(text) }
