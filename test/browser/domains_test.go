package browser

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// The domains of Envoy's rate limit service stand beside the rules, with what their limits do.
func TestDomains(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "web.yaml")
	text := `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: tenant, shadow_mode: true, rate_limit: {unit: month, calendar: true, requests_per_unit: 9, accounting: reference}}
`
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	s := serve(t, "--grpc-listen", "127.0.0.1:0", "--envoy-config", file)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		body := strings.NewReader(`{"domain": "web", "descriptors": [{"entries": [{"key": "remote_address", "value": "192.0.2.1"}]}]}`)
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.api+"/json", body))(t)
		response := must.Get(http.DefaultClient.Do(request))(t)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, response.StatusCode, want)
		}
	}
	p := open(t, s, 1280)
	p.signIn(reader)
	p.visit("domains")
	for _, want := range []string{"web.remote_address", "2 per year", "web.tenant", "9 per calendar month (UTC)", "in shadow", "all requests", "33 %"} {
		p.shows(want)
	}
	p.visit("denials")
	p.shows("web.remote_address")
	p.shows("remote_address=192.0.2.1")
}
