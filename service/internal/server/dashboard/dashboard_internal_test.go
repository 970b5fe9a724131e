package dashboard

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stint-go/stint/internal/must"
)

// A file that is embedded compressed is served under its own name: so to those who take it, and unpacked to others.
func TestCompressed(t *testing.T) {
	const script = "let a = 1; let b = 1; let c = 1;"
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write([]byte(script)); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	h, err := load(fstest.MapFS{
		"index.html": {Data: []byte("<!doctype html>")}, "assets/a-12.js.gz": {Data: small.Bytes()},
		"report.js.gz": {Data: small.Bytes()}, "SOURCES": {Data: []byte("x")},
	})
	if err != nil || !h.Built() || h.Serves("/report.js") || h.Serves("/SOURCES") || h.Serves("/assets/a-12.js.gz") {
		t.Fatalf("%v; the pages are %v; want index.html and assets/a-12.js", err, h.files)
	}
	for _, test := range []struct{ accepts, encoding, text string }{
		{"gzip", "gzip", small.String()}, {"", "", script}, {"gzip;q=0", "", script},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/assets/a-12.js", nil)
		r.Header.Set("Accept-Encoding", test.accepts)
		answer := httptest.NewRecorder()
		must.Do(t, h.Serve(answer, r))
		header := answer.Header()
		if answer.Body.String() != test.text || header.Get("Content-Encoding") != test.encoding ||
			header.Get("Content-Type") != "text/javascript; charset=utf-8" {
			t.Errorf("to %q: %d bytes, %v", test.accepts, answer.Body.Len(), header)
		}
	}
	if _, err := load(fstest.MapFS{"assets/a.js.gz": {Data: []byte("no gzip")}}); err == nil {
		t.Error("a file that can't be unpacked is no error")
	}
}
