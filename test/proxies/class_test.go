//go:build linux

package proxies

import (
	"regexp"
	"strings"
	"testing"
)

// classes is a limit of which a batch request leaves 5 of 10.
const classes = `
rules:
  - id: api
    scope: global
    limits: [{algorithm: fixed_window, limit: 10, window: 1d, start: first_request}]
    classes: {by: {attribute: class}, keep: {critical: 0%, normal: 20%, batch: 50%}, default: normal}
`

// The lines of docs/priorities.md bring a class through nginx, and a client can't choose its own.
func TestClass(t *testing.T) {
	page, configuration := "../../docs/priorities.md", read(t, asItStands("nginx"))
	blocks := nginxBlocks(t, page)
	fields := regexp.MustCompile(`identity: \{user: X-User-Id, attributes: \{class: (\S+)\}\}`).FindStringSubmatch(read(t, page))
	if fields == nil {
		t.Fatalf("%s lacks the setting", page)
	}
	users := strings.NewReplacer("checkout", "alice", "reports", "bob").Replace(blocks[0])
	before, asking, _ := strings.Cut(configuration, "location = /.stint {")
	text := strings.Replace(before, "\tserver {", users+"\tserver {", 1) + "location = /.stint {" +
		strings.Replace(asking, "proxy_set_header X-User-Id $user;", "proxy_set_header X-User-Id $user;\n"+blocks[1], 1)
	s := startWith(t, []string{
		bin(), "STINT_RULES_FROM=" + write(t, "rules.yaml", classes), "STINT_IDENTITY_ATTRIBUTES=class=" + fields[1],
	}, "nginx", write(t, "nginx.conf", patient(text)))
	const alice, bob = "Authorization: Bearer token-of-alice\n", "Authorization: Bearer token-of-bob\n"
	remaining := func(want string, c call) {
		t.Helper()
		if got := s.answered(200, c).header.Get("X-RateLimit-Remaining"); got != want {
			t.Errorf("%q: %s remaining, want %s", c.header, got, want)
		}
	}
	remaining("9", call{header: alice})                       // critical
	remaining("3", call{header: bob})                         // batch
	remaining("5", call{})                                    // normal, the default
	remaining("4", call{header: "X-Class: critical\n"})       // which is still normal
	remaining("0", call{header: bob + "X-Class: critical\n"}) // and this batch
	for _, header := range []string{"", "X-Class: critical\n", "x-class: critical\nX-Class: critical\n", "X_Class: critical\n", "Connection: X-Class\n"} {
		s.answered(429, call{header: bob + header})
	}
	remaining("4", call{header: alice + "X-Class: batch\n"})
	remaining("3", call{header: alice + "Connection: X-Class\n"})
	if r := s.answered(200, call{}); r.header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("a request of the default class is told %v", r.header)
	}
	s.answered(429, call{})
	s.answered(429, call{header: "X-Class: critical\n"})
	remaining("1", call{header: alice})
}
