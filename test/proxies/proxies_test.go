//go:build linux

package proxies

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stint-go/stint/internal/bounds"
)

// each runs a test with both proxies.
func each(t *testing.T, test func(t *testing.T, example string)) {
	for _, example := range []string{"nginx", "caddy"} {
		t.Run(example, func(t *testing.T) { test(t, example) })
	}
}

// login is a try to log in, five of which one address has in a window.
var login = call{method: http.MethodPost, target: "/login?next=/a%20b&x=1", body: "user=alice&password=guess"}

// exhaust makes the five tries, and one too many.
func (s *stack) exhaust(c call) {
	s.t.Helper()
	for range 5 {
		s.answered(200, c)
	}
	s.answered(429, c)
}

func TestLimit(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		for remaining := 4; remaining >= 0; remaining-- {
			r := s.answered(200, login)
			if r.seen.Method != "POST" || r.seen.URI != login.target || r.seen.Host != "example.com" || r.seen.Body != login.body {
				t.Errorf("the application saw %+v", r.seen)
			}
			if r.header.Get("X-RateLimit-Remaining") != strconv.Itoa(remaining) || r.header.Get("X-RateLimit-Limit") != "5" ||
				r.header.Get("RateLimit-Policy") != `"default";q=5;w=3600` || r.header.Get("Retry-After") != "" {
				t.Errorf("the client is told %v", r.header)
			}
		}
		for range 3 {
			r := s.answered(429, login)
			// A permit is free at the latest when a fifth of the next window has passed.
			wait, err := strconv.Atoi(r.header.Get("Retry-After"))
			if err != nil || wait < 1 || wait > 3600+720 || r.header.Get("RateLimit") != fmt.Sprintf(`"default";r=0;t=%d`, wait) ||
				r.header.Get("X-RateLimit-Remaining") != "0" || r.header.Get("X-RateLimit-Reset") == "" {
				t.Errorf("the client is told %v", r.header)
			}
		}
		if n := s.served(); n != 5 {
			t.Errorf("the application saw %d requests, want 5", n)
		}
		s.answered(200, call{target: login.target}) // which is no try
		other := login
		other.from = "127.0.0.3"
		s.answered(200, other)
	})
}

func TestSpellings(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		spellings := []string{
			"/login", "/%6cogin", "/%6C%6f%67in?q", "//login", "/./login", "/x/../login", "/login/", "/login//", "/login/.",
			"/login?deny_status=403", "/x%2F..%2flogin", "/%2e/login", `/x\..\login`, "http://example.org/login", "http://example.org//login",
		}
		s.exhaust(login)
		for _, target := range spellings {
			s.answered(429, call{method: http.MethodPost, target: target})
		}
		if n := s.served(); n != 5 {
			t.Errorf("the application saw %d requests, want 5", n)
		}
	})
}

// A request line with a whole URL has the host that counts (RFC 9112, section 3.2.2). stint and the
// application are told the same one, whatever the field Host says besides.
func TestHosts(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		admin := []call{
			{host: "admin.example.com"},
			{host: "ADMIN.example.com:8088"},
			{target: "http://admin.example.com/a"},
			{target: "http://admin.example.com/a", host: "example.org"},
		}
		for i := range 10 {
			if r := s.answered(200, admin[i%len(admin)]); hostname(r.seen.Host) != "admin.example.com" {
				t.Errorf("%+v: the application saw %q", admin[i%len(admin)], r.seen.Host)
			}
		}
		for _, c := range admin {
			s.answered(429, c)
		}
		other := call{target: "http://example.com/a", host: "admin.example.com"}
		if r := s.answered(200, other); hostname(r.seen.Host) != "example.com" {
			t.Errorf("%+v: the application saw %q", other, r.seen.Host)
		}
	})
}

// hostname is a host without port, in small letters.
func hostname(host string) string {
	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	return name
}

// forged are fields in which a client speaks for the proxy, to be taken for another or for asking something else.
var forged = []string{
	"X-Forwarded-For: 198.51.100.1\n",
	"X-Forwarded-For: 198.51.100.1\nX-Forwarded-For: 127.0.0.1\n",
	"X-Forwarded-For: 127.0.0.9, 127.0.0.1\n",
	"X_Forwarded_For: 198.51.100.1\n",
	"X-Real-IP: 198.51.100.1\nForwarded: for=198.51.100.1\n",
	"X-Forwarded-Method: GET\n", "X-Original-Method: GET\n", "X-HTTP-Method-Override: GET\n",
	"X-Forwarded-Uri: /free\n", "X-Original-URI: /free\n", "X-Original-URI: /free\nX-Original-URI: /free\n", "X-Original-URL: /free\n",
	"X-Forwarded-Host: example.org\n",
	"X-Forwarded-Method: GET\nX-Forwarded-Uri: /free\nX-Forwarded-Host: example.org\nX-Original-Method: GET\nX-Original-URI: /free\n",
	"X-User-Id: bob\n", "X-User-Id:\n", "X-User-Id: bob\nX-User-Id: alice\n", "X_User_Id: bob\n",
	"Connection: X-User-Id\n", "Connection: close, X-Forwarded-For, X-Forwarded-Method, X-Forwarded-Uri, X-Original-Method, X-Original-URI, X-User-Id\n",
	"RateLimit: \"default\";r=9\nX-RateLimit-Limit: 9\n",
}

func TestForgedFields(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		s.exhaust(login)
		alice := call{target: "/api/orders", header: "Authorization: Bearer token-of-alice\n"}
		for range 20 {
			if r := s.answered(200, alice); r.seen.Header.Get("X-User-Id") != "alice" {
				t.Errorf("the application saw %v", r.seen.Header)
			}
		}
		before := s.served()
		for _, header := range forged {
			for _, c := range []call{login, alice} {
				c.header += header
				s.answered(429, c)
			}
		}
		if n := s.served(); n != before {
			t.Errorf("the application saw %d more requests", n-before)
		}
		s.answered(200, call{target: "/api/orders", header: "Authorization: Bearer token-of-bob\n"})
		guess := call{target: "/api/orders", header: "Authorization: BEARER TOKEN-OF-BOB\n", from: "127.0.0.9"}
		if user := s.answered(200, guess).seen.Header.Get("X-User-Id"); user != "" {
			t.Errorf("a token in other letters is %s's", user)
		}

		// Nobody becomes somebody: 20 of them are those of one address.
		for _, header := range forged[:20] {
			seen := s.answered(200, call{target: "/api/orders", header: header}).seen.Header
			if seen.Get("X-User-Id") != "" || len(seen["X-User-Id"]) > 1 || seen.Get("RateLimit") != "" ||
				strings.Join(seen["X-Forwarded-For"], "|") != "127.0.0.2" {
				t.Errorf("%q: the application saw %v", header, seen)
			}
		}
		s.answered(429, call{target: "/api/orders", header: forged[20]})
	})
}

// The fields of the proxy are not believed from clients that reach stint directly.
func TestNoProxy(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		fields := "X-Forwarded-Method: POST\nX-Forwarded-Uri: /login\nX-Forwarded-Host: example.com\nX-Forwarded-For: 198.51.100.1\n"
		if r := s.askAt(stintPort, call{target: "/forward-auth", header: fields}); r.status != 403 {
			t.Errorf("a client is answered %d %s", r.status, r.text)
		}
		if r := s.askAt(stintPort, call{from: "127.0.0.1", target: "/forward-auth", header: fields}); r.status != 200 {
			t.Errorf("the proxy's address is answered %d %s", r.status, r.text)
		}
		// The place where nginx asks is none for clients.
		if r := s.ask(call{target: "/.stint"}); example == "nginx" && r.status != 404 {
			t.Errorf("/.stint is answered %d %s", r.status, r.text)
		}
	})
}

func TestBodiesAndStatuses(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		large := strings.Repeat("0123456789abcdef", 512<<10/16)
		if r := s.answered(200, call{method: http.MethodPut, target: "/upload", body: large}); r.seen.Body != large {
			t.Errorf("of %d bytes the application saw %d", len(large), len(r.seen.Body))
		}
		chunked := call{
			method: http.MethodPost, target: "/upload", header: "Transfer-Encoding: chunked\n",
			body: fmt.Sprintf("%x\r\n%s\r\n5\r\nhello\r\n0\r\n\r\n", len(large), large),
		}
		if r := s.answered(200, chunked); r.seen.Body != large+"hello" {
			t.Errorf("of a body in chunks the application saw %d bytes", len(r.seen.Body))
		}
		for _, method := range []string{"HEAD", "OPTIONS", "DELETE", "PATCH"} {
			s.answered(200, call{method: method, target: "/a/b"})
		}
		// The application's own answers are the client's, those that refuse too.
		for _, status := range []int{204, 302, 400, 401, 403, 404, 429, 500, 502, 503, 504} {
			r := s.answered(status, call{target: "/?status=" + strconv.Itoa(status)})
			if r.header.Get("X-RateLimit-Limit") != "600" || r.header.Get("Retry-After") != "" || status != 204 && r.seen.URI == "" {
				t.Errorf("the application's %d comes as %v %q", status, r.header, r.text)
			}
		}
	})
}

// The limit of all clients together.
func TestEverything(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		admitted := 0
		for {
			r := s.ask(call{from: fmt.Sprintf("127.0.%d.%d", 1+admitted/200, 1+admitted%200)})
			if r.status != 200 {
				if r.status != 429 || r.header.Get("RateLimit-Policy") != `"default";q=600;w=3600` || r.header.Get("Retry-After") == "" {
					t.Errorf("answered %d %v", r.status, r.header)
				}
				break
			}
			if admitted++; admitted > 1200 {
				t.Fatal("no limit holds")
			}
		}
		if n := s.served(); n != admitted || admitted < 600 {
			t.Errorf("%d were admitted, and the application saw %d, want at least 600", admitted, n)
		}
	})
}

// A head that is too long for stint is refused before it is asked: while stint can't answer, the
// examples admit.
func TestLongHeads(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		s.exhaust(login)
		before := s.served()
		for _, bytes := range []int{10_000, 30_000, 50_000, 70_000, 100_000, 300_000} {
			c := login
			for range bytes / 5000 {
				c.header += "X-Long: " + strings.Repeat("x", 5000) + "\n"
			}
			if r := s.ask(c); r.status < 400 || r.status > 499 {
				t.Errorf("a head of %d bytes: %d", bytes, r.status)
			}
		}
		if n := s.served(); n != before {
			t.Errorf("the application saw %d more requests", n-before)
		}
	})
}

// A rule with as many limits as there may be holds, though what is said of them is long.
func TestManyLimits(t *testing.T) {
	var limits []string
	for i := range bounds.MaxLimits {
		name := fmt.Sprintf("%0*d", bounds.MaxNameBytes, i)
		limits = append(limits, fmt.Sprintf(`{"algorithm": "fixed_window", "name": %q, "limit": %d, "window": "1h", "start": "first_request"}`, name, 2+i))
	}
	file := write(t, "rules.json", fmt.Sprintf(`[{"id": "many", "scope": "per_ip", "limits": [%s]}]`, strings.Join(limits, ",")))
	each(t, func(t *testing.T, example string) {
		s := startWith(t, []string{bin(), "STINT_RULES_FROM=" + file}, example, patiently(t, example))
		for _, status := range []int{200, 200, 429, 429} {
			r := s.answered(status, call{})
			if n := strings.Count(r.header.Get("RateLimit-Policy"), ";q="); n != bounds.MaxLimits {
				t.Errorf("the client is told of %d limits", n)
			}
		}
		if n := s.served(); n != 2 {
			t.Errorf("the application saw %d requests, want 2", n)
		}
	})
}

// A field that stint does not send is none of the client's, and none of the application's: nothing stands in its place.
func TestFieldsThatAreNotSent(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		for setting, absent := range map[string][]string{
			"STINT_HEADERS_IETF=false":        {"RateLimit", "RateLimit-Policy"},
			"STINT_HEADERS_X_RATELIMIT=false": {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"},
		} {
			t.Run(setting, func(t *testing.T) {
				s := startWith(t, []string{bin(), setting}, example, patiently(t, example))
				r := s.answered(200, login)
				for _, name := range absent {
					if r.header.Get(name) != "" {
						t.Errorf("the client gets %s: %s", name, r.header.Get(name))
					}
				}
				for name, values := range r.header {
					if strings.Contains(strings.Join(values, ""), "{") {
						t.Errorf("the client gets %s: %s", name, values)
					}
				}
				for name, values := range r.seen.Header {
					if strings.Contains(name, "Ratelimit") || strings.Contains(strings.Join(values, ""), "{") {
						t.Errorf("the application gets %s: %s", name, values)
					}
				}
				if r.header.Get("RateLimit") == "" && r.header.Get("X-RateLimit-Limit") == "" {
					t.Error("the client gets no field at all")
				}
			})
		}
	})
}

// Without stint the examples admit, whether it is silent or has ended.
func TestStintUnreachable(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		t.Parallel() // it waits
		s := start(t, example, asItStands(example))
		s.exhaust(login)
		s.pause("stint")
		admitted := func() {
			t.Helper()
			if r := s.answered(200, login); r.seen.Body != login.body || r.seen.URI != login.target || r.header.Get("RateLimit") != "" {
				t.Errorf("the application saw %+v, the client %v", r.seen, r.header)
			}
		}
		admitted()
		s.resume("stint")
		s.answered(429, login)
		s.kill("stint")
		admitted()
		if r := s.answered(200, call{target: "/api/orders", header: "X-User-Id: alice\n"}); r.seen.Header.Get("X-User-Id") != "" {
			t.Errorf("the application saw %v", r.seen.Header)
		}
	})
}

// What has to be left out of the configurations so that they refuse without stint, and what
// their answers are then.
func TestStintUnreachableClosed(t *testing.T) {
	for _, test := range []struct {
		example, from, to string
		silent, gone      int
	}{
		{"nginx", "error_page 502 504 =204", ";", 503, 503},
		{"caddy", "handle_errors {", "\n\t}\n", 504, 502},
	} {
		t.Run(test.example, func(t *testing.T) {
			t.Parallel() // as above
			before, rest, found := strings.Cut(read(t, asItStands(test.example)), test.from)
			_, after, ended := strings.Cut(rest, test.to)
			if !found || !ended {
				t.Fatalf("the configuration of %s has no %q", test.example, test.from)
			}
			s := start(t, test.example, write(t, configurations[test.example], before+after))
			s.exhaust(login)
			s.pause("stint")
			s.answered(test.silent, login)
			s.kill("stint")
			s.answered(test.gone, login)
			s.answered(test.gone, call{})
			if n := s.served(); n != 5 {
				t.Errorf("the application saw %d requests, want 5", n)
			}
		})
	}
}

// The application's failures are no reason to ask it again.
func TestApplicationFails(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		s := start(t, example)
		s.kill("app")
		asked := s.failInstead()
		for i := range int64(5) {
			s.answered(502, login)
			if n := asked.Load(); n != i+1 {
				t.Errorf("after %d requests the application has been asked %d times", i+1, n)
			}
		}
		s.answered(429, login)
	})
}

// failInstead takes the place of the application: it reads each request and hangs up.
func (s *stack) failInstead() (asked *atomic.Int64) {
	s.t.Helper()
	listener := s.listenAt(appPort)
	asked = new(atomic.Int64)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				asked.Add(1)
			}
			_ = conn.Close()
		}
	})
	s.t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return asked
}

// listenAt takes the address of a program over, once the last of its threads has let it go.
func (s *stack) listenAt(port string) (listener net.Listener) {
	s.t.Helper()
	s.until("port "+port+" is free", func() (free bool) {
		var err error
		listener, err = new(net.ListenConfig).Listen(s.t.Context(), "tcp", net.JoinHostPort(s.host, port))
		return err == nil
	})
	return listener
}

// The one command builds what it starts, and Ctrl-C ends all of it.
func TestCommand(t *testing.T) {
	each(t, func(t *testing.T, example string) {
		// A shell's background job ignores SIGINT, and so does what it starts, unless somebody asks for it.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
		defer signal.Reset(syscall.SIGINT)
		s := startWith(t, nil, example)
		s.answered(200, login)
		s.stop(syscall.SIGINT)
	})
}
