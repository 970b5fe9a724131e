//go:build linux

package proxies

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
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
	page := must.Get(os.ReadFile("../../docs/priorities.md"))(t)
	configuration := must.Get(os.ReadFile("../../examples/nginx/nginx.conf"))(t)
	blocks := regexp.MustCompile("(?s)```nginx\n(.*?)```").FindAllSubmatch(page, -1)
	fields := regexp.MustCompile(`identity: \{user: X-User-Id, attributes: \{class: (\S+)\}\}`).FindSubmatch(page)
	if len(blocks) != 2 || fields == nil {
		t.Fatalf("docs/priorities.md has %d parts of nginx's configuration, and the setting %q", len(blocks), fields)
	}
	users := strings.NewReplacer("checkout", "alice", "reports", "bob").Replace(string(blocks[0][1]))
	asking := strings.Index(string(configuration), "location = /.stint {")
	text := strings.Replace(string(configuration[:asking]), "\tserver {", users+"\tserver {", 1) +
		strings.Replace(string(configuration[asking:]), "proxy_set_header X-User-Id $user;", "proxy_set_header X-User-Id $user;\n"+string(blocks[1][1]), 1)

	dir := t.TempDir()
	for name, text := range map[string]string{"nginx.conf": patient(text), "rules.yaml": classes} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := startWith(t, []string{
		"BIN=" + os.Getenv(built), "STINT_RULES_FROM=" + filepath.Join(dir, "rules.yaml"), "STINT_IDENTITY_ATTRIBUTES=class=" + string(fields[1]),
	}, "nginx", filepath.Join(dir, "nginx.conf"))
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
