package server_test

import (
	"testing"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// What a client refuses compressed comes plain: the metrics, and the dashboard's files.
func TestRefusedCompression(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	for name, url := range map[string]string{
		"metrics":   "http://" + d.server.Addr().String() + apipath.Metrics,
		"dashboard": "http://" + d.server.AdminAddr().String() + "/",
	} {
		for accepts, want := range map[string]string{"gzip": "gzip", "gzip;q=0": "", "identity, gzip;q=0.0": ""} {
			if name == "dashboard" && want != "" {
				continue // what says that it was not built is too short to be compressed
			}
			r := newRequest("GET", url, "")
			r.RequestURI = ""
			r.Header.Set("Accept-Encoding", accepts)
			if got := d.send(r).is(200).header.Get("Content-Encoding"); got != want {
				t.Errorf("%s to %q: encoded as %q, want %q", name, accepts, got, want)
			}
		}
	}
}
