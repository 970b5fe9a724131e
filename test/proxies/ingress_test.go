//go:build linux

package proxies

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint/internal/must"
)

// annotations are those of the page about ingress-nginx, by their names behind the slash.
func annotations(t *testing.T) map[string]string {
	t.Helper()
	page := must.Get(os.ReadFile("../../docs/ingress-nginx.md"))(t)
	found := map[string]string{}
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
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

// ingress writes what the template of ingress-nginx 1.12 makes of an Ingress with auth-url and, perhaps, its snippets
// (rootfs/etc/nginx/template/nginx.tmpl, the places of an external authentication and of a path), but for its Lua, and for
// the choice of a pod by upstream_balancer.
func ingress(t *testing.T, snippets bool) (file string) {
	t.Helper()
	of := annotations(t)
	if !snippets {
		of["server-snippet"], of["configuration-snippet"] = "", ""
	}
	target := strings.Replace(of["auth-url"], "stint.stint.svc.cluster.local:8080", "stint", 1)
	return nginxOf(t, `
	map $http_x_request_id $req_id { default $http_x_request_id; "" $request_id; }
	map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
	server {
		include listen.conf;
		server_name _;
		set $proxy_upstream_name "-";
`+of["server-snippet"]+`
		location = /_external-auth-Lw-Prefix {
			internal;
			access_log off;
			set $proxy_upstream_name "default-app-8000";
			proxy_pass_request_body off;
			proxy_set_header Content-Length "";
			proxy_set_header X-Forwarded-Proto "";
			proxy_set_header X-Request-ID $req_id;
			proxy_set_header Host stint.stint.svc.cluster.local;
			proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
			proxy_set_header X-Original-Method $request_method;
			proxy_set_header X-Sent-From "nginx-ingress-controller";
			proxy_set_header X-Real-IP $remote_addr;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Auth-Request-Redirect $request_uri;
			proxy_buffering off;
			proxy_buffer_size 4k;
			proxy_buffers 4 4k;
			proxy_request_buffering on;
			proxy_http_version 1.1;
			proxy_ssl_server_name on;
			proxy_pass_request_headers on;
			client_max_body_size 1m;
			set $target `+target+`;
			proxy_pass $target;
		}
		location / {
			set $pass_access_scheme $scheme;
			set $pass_server_port $server_port;
			set $best_http_host $http_host;
			set $pass_port $pass_server_port;
			auth_request /_external-auth-Lw-Prefix;
			auth_request_set $auth_cookie $upstream_http_set_cookie;
			add_header Set-Cookie $auth_cookie;
			client_max_body_size 1m;
			proxy_set_header Host $best_http_host;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
			proxy_set_header X-Request-ID $req_id;
			proxy_set_header X-Real-IP $remote_addr;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Host $best_http_host;
			proxy_set_header X-Forwarded-Port $pass_port;
			proxy_set_header X-Forwarded-Proto $pass_access_scheme;
			proxy_set_header X-Forwarded-Scheme $pass_access_scheme;
			proxy_set_header X-Scheme $pass_access_scheme;
			proxy_set_header X-Original-Forwarded-For $http_x_forwarded_for;
			proxy_set_header Proxy "";
			proxy_buffering off;
			proxy_http_version 1.1;
			proxy_next_upstream error timeout;
`+of["configuration-snippet"]+`
			proxy_pass http://application;
			proxy_redirect off;
		}
	}`)
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
