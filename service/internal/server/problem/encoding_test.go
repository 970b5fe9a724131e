package problem_test

import (
	"net/http"
	"testing"

	"github.com/stint-go/stint/service/internal/server/problem"
)

func TestAcceptsGzip(t *testing.T) {
	for accepts, want := range map[string]bool{
		"": false, "identity": false, "gzipped": false, "br": false, "gzip;q=0": false, "gzip; q=0.000, *;q=1": false, "*;q=0": false,
		"gzip;q=nothing": false, "identity;q=1, *;q=0": false,
		"gzip": true, "GZIP": true, "x-gzip": true, "br, gzip": true, "gzip;q=0.001": true, "gzip ; q = 1": true, "*": true,
		"*;q=0, gzip": true, "deflate;q=0, *;q=0.5": true,
	} {
		r := &http.Request{Header: http.Header{"Accept-Encoding": {accepts}}}
		if got := problem.AcceptsGzip(r); got != want {
			t.Errorf("%q: %t, want %t", accepts, got, want)
		}
	}
	r := &http.Request{Header: http.Header{"Accept-Encoding": {"br", "gzip"}}}
	if !problem.AcceptsGzip(r) {
		t.Error("of two fields only the first was read")
	}
}
