//go:build linux

package proxies

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// annotations are those of the page about ingress-nginx, by their names behind the slash.
func annotations(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, block := range strings.Split(read(t, "../../docs/ingress-nginx.md"), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		_, text, isIngress := strings.Cut("\n"+text, "\n    nginx.")
		if !isIngress {
			continue
		}
		var list map[string]string
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll("    nginx."+text, "\n    ", "\n")[4:]), &list); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		for name, value := range list {
			found[strings.TrimPrefix(name, "nginx.ingress.kubernetes.io/")] = value
		}
	}
	if len(found) != 3 {
		t.Fatalf("the page has the annotations %v", found)
	}
	return found
}

// ingress writes what the template of ingress-nginx 1.12 makes of an Ingress with auth-url and, perhaps, its snippets: in
// testdata/ingress.conf are the places of rootfs/etc/nginx/template/nginx.tmpl for an external authentication and for a
// path, but for its Lua, and for the choice of a pod by upstream_balancer.
func ingress(t *testing.T, snippets bool) (file string) {
	t.Helper()
	of := annotations(t)
	if !snippets {
		of["server-snippet"], of["configuration-snippet"] = "", ""
	}
	target := strings.Replace(of["auth-url"], "stint.stint.svc.cluster.local:8080", "stint", 1)
	return nginxOf(t, strings.NewReplacer(
		"SERVER_SNIPPET", of["server-snippet"], "CONFIGURATION_SNIPPET", of["configuration-snippet"], "AUTH_URL", target,
	).Replace(read(t, "testdata/ingress.conf")))
}

// The Ingress of docs/ingress-nginx.md limits, by the method, the host and the path that the client has asked for.
func TestIngressNginx(t *testing.T) {
	s := start(t, "nginx", ingress(t, false))
	for range 5 {
		if r := s.answered(200, login); r.seen.Method != "POST" || r.seen.URI != login.target || r.seen.Host != "example.com" || r.seen.Body != login.body {
			t.Errorf("the application saw %+v", r.seen)
		}
	}
	if r := s.answered(403, login); r.header.Get("Retry-After") != "" {
		t.Errorf("a denied client is told %v", r.header)
	}
	for _, target := range []string{"/%6cogin", "//login", "/x/../login?x"} {
		s.answered(403, call{method: http.MethodPost, target: target})
	}
	s.answered(200, call{target: login.target}) // which is no try
	other := login
	other.from = "127.0.0.3"
	s.answered(200, other)
	for _, field := range []string{"X-Forwarded-For: 198.51.100.1", "X-Original-URL: http://example.com/", "X-Original-Method: GET", "X-Real-IP: 198.51.100.1"} {
		denied := login
		denied.header = field + "\n"
		s.answered(403, denied)
	}
	for range 10 {
		s.answered(200, call{host: "admin.example.com:8443", target: "/a"})
	}
	s.answered(403, call{host: "ADMIN.example.com", target: "/b"})
	s.answered(200, call{target: "/b"})

	// What contradicts the controller is refused, and does not reach the application.
	before := s.served()
	for _, field := range []string{"X-Original-URI: /", "X-Forwarded-Uri: /", "X-Forwarded-Method: GET"} {
		c := other
		c.header = field + "\n"
		s.answered(500, c)
	}
	s.kill("stint")
	s.answered(500, call{target: "/"})
	if n := s.served() - before; n != 0 {
		t.Errorf("the application saw %d requests that were refused", n)
	}
}

// By its snippets, denials are 429 and say when to come back.
func TestIngressNginxWithSnippets(t *testing.T) {
	s := start(t, "nginx", ingress(t, true))
	s.exhaust(login)
	if wait, err := strconv.Atoi(s.answered(429, login).header.Get("Retry-After")); err != nil || wait < 1 {
		t.Errorf("Retry-After is %d, %v", wait, err)
	}
	s.answered(200, call{target: "/"})
}
