//go:build linux

package proxies

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// applications take the path of a request in the ways that users of their languages write. Each says by which of
// them it was asked for /login, or for the host admin.example.com.
var applications = map[string]func(*stack){
	"node":   func(s *stack) { s.runInstead("node", "--no-deprecation", "testdata/app.js", s.host, appPort) },
	"php":    func(s *stack) { s.runInstead("php", "-q", "-S", s.host+":"+appPort, "testdata/app.php") },
	"python": func(s *stack) { s.runInstead("python3", "testdata/app.py", s.host, appPort) },
	"go":     func(s *stack) { s.serveInstead(answerAsGo) },
	// Servlet containers in Java are too large for these tests; this does what they do.
	"servlet": func(s *stack) { s.serveInstead(answerAsServlet) },
}

// runInstead runs a program in the place of the application, until the test ends.
func (s *stack) runInstead(program string, args ...string) {
	s.t.Helper()
	s.kill("app")
	_ = s.listenAt(appPort).Close() // nobody else listens there
	var log strings.Builder
	command := exec.CommandContext(context.Background(), program, args...)
	command.Stdout, command.Stderr = &log, &log
	gone := must.Get(launch(command))(s.t)
	s.t.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended
		<-gone
	})
	s.until(program+" listens", func() bool {
		select {
		case <-gone:
			s.t.Fatalf("%s has ended:\n%s", program, log.String())
		default:
		}
		return s.listens(appPort)
	})
}

// serveInstead serves in the place of the application, until the test ends.
func (s *stack) serveInstead(handler http.HandlerFunc) {
	s.t.Helper()
	s.kill("app")
	s.serveAt(appPort, handler)
}

// serveAt serves at the address of a program, until the test ends.
func (s *stack) serveAt(port string, handler http.HandlerFunc) {
	s.t.Helper()
	listener := s.listenAt(port)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is closed
	s.t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
}

// answerAsGo is the application as users of Go write it.
func answerAsGo(w http.ResponseWriter, r *http.Request) {
	found := []string{"application in Go"}
	note := func(way, path string) {
		if path == "/login" {
			found = append(found, "login by "+way)
		}
		if decoded, err := url.PathUnescape(path); err == nil && loose(decoded) == "/login" {
			found = append(found, "login by "+way+", decoded")
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(http.ResponseWriter, *http.Request) { note("ServeMux", "/login") })
	mux.ServeHTTP(discard{}, r)
	note("URL.Path", r.URL.Path)
	note("RequestURI", strings.Split(r.RequestURI, "?")[0])
	if u, err := url.Parse(r.RequestURI); err == nil {
		note("url.Parse", u.Path)
		note("url.Parse, escaped", u.EscapedPath())
	}
	_, _ = fmt.Fprintln(w, strings.Join(append(found, admins(r)...), "\n"))
}

// admins are the ways in which a request is for the host admin.example.com.
func admins(r *http.Request) (found []string) {
	if u, err := url.Parse(r.RequestURI); err == nil && strings.EqualFold(u.Hostname(), "admin.example.com") {
		found = append(found, "admin by url.Parse")
	}
	if u, err := url.Parse("http://" + r.Host); err == nil && strings.EqualFold(u.Hostname(), "admin.example.com") {
		found = append(found, "admin by Host")
	}
	return found
}

// answerAsServlet is an application in a servlet container: parameters of every segment are cut, what is left is decoded,
// and then dots are resolved; or a program before it has decoded, or resolved them.
func answerAsServlet(w http.ResponseWriter, r *http.Request) {
	found := []string{"application as a servlet"}
	target, _, _ := strings.Cut(r.RequestURI, "?")
	note := func(way, route string, err error) {
		if err == nil && path.Clean(route) == "/login" {
			found = append(found, "login by "+way)
		}
	}
	route, err := url.PathUnescape(parameters.ReplaceAllString(target, ""))
	note("servlet", route, err)
	decoded, err := url.PathUnescape(target)
	note("servlet, decoded", parameters.ReplaceAllString(decoded, ""), err)
	note("servlet, resolved", parameters.ReplaceAllString(path.Clean(target), ""), nil)
	_, _ = fmt.Fprintln(w, strings.Join(append(found, admins(r)...), "\n"))
}

var parameters = regexp.MustCompile(";[^/]*")

var slashes = regexp.MustCompile("/+")

// loose merges slashes, and leaves one at the end out.
func loose(path string) string {
	path = slashes.ReplaceAllString(path, "/")
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// A discard is where a router's own answers go.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// applicationRules allow five tries to log in, and five requests to a host, whatever the path.
const applicationRules = `rules:
  - id: login
    match: {methods: [POST], path: /login}
    scope: per_ip
    limits: [{algorithm: sliding_window_log, limit: 5, window: 1h}]
  - id: admin
    match: {host: admin.example.com}
    scope: per_ip
    limits: [{algorithm: sliding_window_log, limit: 5, window: 1h}]
`

// loginTargets are spellings of /login: what may begin an authority, what may be one, and paths behind it.
func loginTargets() (targets []string) {
	targets = []string{
		"/login", "/login/", "/%6cogin", "/login?x", "/login#x", "/./login", "/x/../login", "/x/%2e%2e/login", "/%2e/login", `/x\..\login`,
		"/x%2F..%2Flogin", "/x/..%2Flogin", "/login%2F", "/login/.", "/login//", "/;/login", "http://example.org/login", "http://example.org//x/login",
	}
	for _, params := range []string{
		";x=1", ";", "%3Bx=1", "%3b", ";x%2Fy", `;x\y`, ";x;y", ";x%3By/..%3By/login", ";x=1/..;y/login",
		";x/", ";x?y;z", ";x/.",
	} {
		for _, lead := range []string{
			"/login", "//h/login", "/;/login", "/a/..;x/login", "/a;b/..%3bx/login", "/a/..;x%2Fy/login",
			"/a%2F..;x%2Fb/login", "/%6cogin",
		} {
			targets = append(targets, lead+params)
		}
	}
	for _, lead := range []string{"//", `/\`, "///", "/////", `/\/`, "/%2F", `//\`, "/%5C"} {
		for _, authority := range []string{"", "x", "u:p@h:80", "u@h", "%41", "h%2Fx", "[::1]", "..", `h\y`, "h#y"} {
			for _, rest := range []string{
				"/login", `\login`, "//login", "/./login", "/../login", "/login/", "/login?x", "/login#x", "/%6cogin", "%2Flogin",
				`/x\..\login`, "/x/%2e%2e/login", "/x%2F..%2Flogin", "/y//../login",
			} {
				targets = append(targets, lead+authority+rest)
			}
		}
	}
	return targets
}

// adminHosts are spellings of admin.example.com that one or the other program takes for it.
var adminHosts = []string{
	"admin.example.com", "ADMIN.example.com", "admin.example.com:80", "admin.example.com.", "%61dmin.example.com", "admin%2Eexample.com", "%41DMIN.example.com:80",
	"admin.example.com%2e", "x@admin.example.com", "x:y@admin.example.com", `admin.example.com\x`, "admin.example.com?x", "admin.example.com#x",
	"admin.example.com:80?x", "\xaadmin.example.com", "a\xaddmin.example.com", "admin\xb7.example.com", "%EF%BD%81dmin.example.com",
}

// Whatever an application makes of a target or of a host, its route is not reached more often than the rule of
// the route allows.
func TestApplications(t *testing.T) {
	env := []string{bin(), "STINT_RULES_FROM=" + write(t, "rules.yaml", applicationRules)}
	for name, replace := range applications {
		t.Run(name, func(t *testing.T) {
			s := startWith(t, env, "nginx", patiently(t, "nginx"))
			replace(s)
			var logins, admins []call
			for _, target := range loginTargets() {
				logins = append(logins, call{method: http.MethodPost, target: target})
			}
			for _, host := range adminHosts {
				admins = append(admins, call{method: http.MethodPost, target: "/x", host: host})
			}
			for _, target := range []string{"//admin.example.com/x", `/\admin.example.com/x`, "///admin.example.com", "//u@ADMIN.example.com:80/x", "//%61dmin.example.com/x"} {
				admins = append(admins, call{method: http.MethodPost, target: target})
			}
			s.reachesOnly(5, "login by", logins)
			s.reachesOnly(5, "admin by", admins)
		})
	}
}

// reachesOnly makes calls, the first of them as often as is allowed before, and expects that none of the others reaches
// the route whose answers have a text.
func (s *stack) reachesOnly(allowed int, text string, calls []call) {
	s.t.Helper()
	for range allowed {
		if r := s.answered(200, calls[0]); !strings.Contains(r.text, text) {
			s.t.Fatalf("the application answers %q", r.text)
		}
	}
	reaches, around := 0, 0
	for _, c := range calls {
		if strings.Contains(s.askAt(appPort, c).text, text) {
			reaches++
		}
		r := s.ask(c)
		if strings.Contains(r.text, text) {
			if around++; around <= 10 {
				s.t.Errorf("%s of host %q walks around the rule: %q", c.target, c.host, r.text)
			}
		} else if r.status == 500 || r.status == 502 {
			s.t.Errorf("%s of host %q is answered %d", c.target, c.host, r.status)
		}
	}
	if reaches < allowed {
		s.t.Errorf("only %d of %d spellings reach the application; the draws never meet", reaches, len(calls))
	}
	s.t.Logf("%q: %d of %d spellings reach the route without a proxy, %d of them though the limit is spent", text, reaches, len(calls), around)
}
