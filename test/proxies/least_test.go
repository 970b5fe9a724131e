//go:build linux

package proxies

import (
	"net"
	"net/http"
	"net/http/fcgi"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// The least configurations of docs/proxies.md limit logins, and nothing else.
func TestLeast(t *testing.T) {
	s := start(t, "nginx", leastConfiguration(t, false))
	for range 5 {
		s.answered(200, call{method: http.MethodPost, target: "/login"})
	}
	if r := s.answered(429, call{method: http.MethodPost, target: "/%6cogin/"}); r.header.Get("Retry-After") == "" {
		t.Errorf("a denied client is not told when to come back: %v", r.header)
	}
	s.answered(200, call{target: "/"})
	s.kill("stint")
	s.answered(500, call{target: "/"})
}

// The same for PHP, here a program in Go that speaks FastCGI: each request counts once, and its own 403 stays 403.
func TestLeastForPHP(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t) //nolint:noctx // it listens as long as the test runs
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		_ = fcgi.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/forbidden" {
				w.WriteHeader(http.StatusForbidden)
			}
		}))
	}()
	s := start(t, "nginx", leastConfiguration(t, true, "127.0.0.1:9000", listener.Addr().String()))
	for range 5 {
		s.answered(200, call{method: http.MethodPost, target: "/login"})
	}
	s.answered(429, call{method: http.MethodPost, target: "/login"})
	s.answered(403, call{target: "/forbidden"})
	s.answered(200, call{target: "/"})
}

// leastConfiguration writes a configuration of nginx with the page's first lines, for PHP with those for it in their place.
func leastConfiguration(t *testing.T, php bool, places ...string) (file string) {
	t.Helper()
	blocks := nginxBlocks(t, "../../docs/proxies.md")
	text := blocks[0]
	if php {
		_, rest, _ := strings.Cut(text, "location = /.stint {")
		text = blocks[1] + "location = /.stint {" + rest
	}
	text = strings.NewReplacer(append(places,
		"http://127.0.0.1:8000", "http://application", "http://127.0.0.1:8080", "http://stint", "include fastcgi.conf", "include /etc/nginx/fastcgi.conf",
	)...).Replace(text)
	return nginxOf(t, `
	server {
		include listen.conf;
`+text+`
	}`)
}

// nginxBlocks are the two parts of nginx's configuration that a page shows.
func nginxBlocks(t *testing.T, page string) (texts []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```nginx\n(.*?)```").FindAllStringSubmatch(read(t, page), -1) {
		texts = append(texts, block[1])
	}
	if len(texts) != 2 {
		t.Fatalf("%s has %d parts of nginx's configuration; want 2", page, len(texts))
	}
	return texts
}

// nginxOf is a configuration of nginx with this in its http block, whose files are in the folder that it runs in.
func nginxOf(t *testing.T, inHTTP string) (file string) {
	t.Helper()
	return write(t, "nginx.conf", `
worker_processes 1;
pid nginx.pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	include upstreams.conf;
`+inHTTP+`
}`)
}
