//go:build linux

package proxies

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The least configuration of docs/proxies.md limits logins, and nothing else.
func TestLeast(t *testing.T) {
	page, err := os.ReadFile("../../docs/proxies.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```nginx\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/proxies.md has no nginx configuration")
	}
	places := strings.NewReplacer("http://127.0.0.1:8000", "http://application", "http://127.0.0.1:8080", "http://stint")
	text := `
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
	server {
		include listen.conf;
` + places.Replace(string(block[1])) + `
	}
}`
	file := filepath.Join(t.TempDir(), "nginx.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "nginx", file)
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
