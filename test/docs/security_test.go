package docs_test

import (
	"testing"

	"github.com/stint-go/stint/internal/testport"
)

// What the page warns of: through a proxy on the service's machine everybody may name keys and edit rules, until there are
// tokens. A check without a key needs none. nginx writes the Host of the first two requests; that of the others is the client's.
func TestProxyOnThisMachine(t *testing.T) {
	for name, test := range map[string]struct {
		configuration                    string
		named, reset, local, rules, bare string // the statuses
	}{
		"without tokens": {"{}\n", "200", "200", "200", "200", "200"},
		"with tokens":    {"api: {tokens_file: tokens}\nadmin: {tokens_file: tokens}\n", "401", "401", "401", "401", "200"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.configuration, map[string]string{"tokens": "0123456789abcdef\n"})
			proxy, passing := testport.Address(t), testport.Address(t)
			nginx(t, proxy, `server { listen `+proxy+`; location / { proxy_pass http://`+s.api+`; } location /admin/ { proxy_pass http://`+s.admin+`/; } }
server { listen `+passing+`; location / { proxy_pass http://`+s.api+`; proxy_set_header Host $host; } }`)
			const ask, check = "curl -s -o /dev/null -w '%{http_code}' ", "/api/v1/rate-limit/check"
			const client = ask + "-H 'Host: shop.example.com' "
			for command, want := range map[string]string{
				client + proxy + check + "?key=ann":                                test.named,
				client + "-X DELETE " + proxy + "/api/v1/rate-limit/reset?key=ann": test.reset,
				ask + "-H 'Host: localhost' " + passing + check + "?key=ann":       test.local,
				client + proxy + "/admin/api/v1/rules":                             test.rules,
				client + proxy + check:                                             test.bare,
				client + "-H 'Authorization: Bearer unknown' " + proxy + check:     test.bare,
				ask + s.api + check + "?key=a":                                     test.local,
			} {
				if got := s.shell(t, command); got != want {
					t.Errorf("%s: %s, want %s", command, got, want)
				}
			}
		})
	}
}
