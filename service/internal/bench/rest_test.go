package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
)

// restOf asks a server.
func restOf(t *testing.T, server, token string, timeout time.Duration) Target {
	t.Helper()
	base := must.Get(url.Parse(server))(t)
	ask, closing := REST(base, token, "api", 2, timeout)
	t.Cleanup(closing)
	return ask
}

// A request has all that the API needs, behind a path of the base's, and connections are kept.
func TestRESTAsks(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked api.Request
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked != (api.Request{Key: `a "<key>"`, Policy: "api", Permits: 2}) ||
			r.Method != http.MethodPost || r.URL.Path != "/behind/api/v1/rate-limit/check" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %+v, %v", r.Method, r.URL, asked, err)
		}
		switch user, password, _ := r.BasicAuth(); {
		case r.Header.Get("Authorization") == "Bearer t":
		case user != "u" || password != "p":
			t.Errorf("authorized by %q", r.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, `{"allowed": true, "at": 7, "degraded": true, "more": [1]}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	for _, ask := range []Target{restOf(t, server.URL+"/behind/", "t", time.Minute), restOf(t, strings.Replace(server.URL, "//", "//u:p@", 1)+"/behind", "", time.Minute)} {
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for range 50 {
					if a, err := ask(t.Context(), `a "<key>"`); err != nil || a != (Answer{7, true, true}) {
						t.Errorf("%+v, error %v", a, err)
					}
				}
			})
		}
		callers.Wait()
	}
	if n := connections.Load(); n > 100 { // and more than one for each caller only if the machine stood still for a second
		t.Errorf("%d connections for 300 requests", n)
	}
}

// A request for rules has the key where it is to be, and an address of the key's own.
func TestRuleAsks(t *testing.T) {
	var asked atomic.Pointer[api.EvaluateRequest]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		described := new(api.EvaluateRequest)
		if err := json.NewDecoder(r.Body).Decode(described); err != nil || r.Method != http.MethodPost || r.URL.Path != apipath.Evaluate {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		asked.Store(described)
		_, _ = fmt.Fprintf(w, `{"allowed": true, "at": 7, "key": %q, "rule": "r", "matched": ["r"]}`, described.IP)
	}))
	defer server.Close()
	base := must.Get(url.Parse(server.URL))(t)
	ask, closing := Rule(base, "", "r", api.EvaluateRequest{Path: "/a/{key}", Attributes: map[string]string{"userId": "{key}", "plan": "<free>"}}, time.Minute)
	t.Cleanup(closing)
	addresses := map[string]string{}
	for _, prefix := range []string{"a", "b"} {
		for i := range 300 {
			key := fmt.Sprintf("%s-%d", prefix, i)
			if a, err := ask(t.Context(), key); err != nil || a != (Answer{7, true, false}) {
				t.Fatalf("%+v, error %v", a, err)
			}
			r := asked.Load()
			if r.Path != "/a/"+key || r.Attributes["userId"] != key || r.Attributes["plan"] != "<free>" || r.Wait == nil || *r.Wait {
				t.Fatalf("%s: %+v", key, r)
			}
			address, err := netip.ParseAddr(r.IP)
			network, _ := address.Prefix(64)
			if other, known := addresses[network.String()]; err != nil || known || !netip.MustParsePrefix("2001:db8::/32").Contains(address) {
				t.Fatalf("%s has %s, as %q has (%v)", key, r.IP, other, err)
			}
			addresses[network.String()] = key
		}
	}
}

// Answers of every form that HTTP/1.1 has, and some that are none.
func TestRESTReads(t *testing.T) {
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	var answer atomic.Pointer[string]
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for reader := bufio.NewReader(conn); ; {
					request, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, request.Body)
					text := *answer.Load()
					if _, _ = io.WriteString(conn, text); !strings.Contains(text, "keep") {
						return
					}
				}
			}()
		}
	}()
	const admitted, denied = `{"allowed":true,"at":7}`, `{"allowed":false,"at":8}`
	patient := restOf(t, "http://"+listener.Addr().String(), "", time.Minute)
	silent := restOf(t, "http://"+listener.Addr().String(), "", 20*time.Millisecond)
	for text, want := range map[string]string{
		"200 OK\r\nX: keep\r\nContent-Length: 23\r\n\r\n" + admitted:                                         "7 true false",
		"200 OK\r\nX: keep\r\nTransfer-Encoding: chunked\r\n\r\n17\r\n" + admitted + "\r\n0\r\nA: b\r\n\r\n": "7 true false",
		"200 OK\r\n\r\n" + admitted: "7 true false",
		"200 OK\r\nConnection: close\r\nContent-Length: 23\r\n\r\n" + admitted:                    "7 true false",
		"103 Early Hints\r\n\r\nHTTP/1.1 429 X\r\nX: keep\r\nContent-Length: 24\r\n\r\n" + denied: "8 false false",
		"401 X\r\nX: keep\r\nContent-Length: 24\r\n\r\n" + denied:                                 "8 false false",
		"200 OK\r\nX: keep\r\nContent-Length: 23\r\n\r\n" + admitted + "more":                     "7 true false",
		"200 OK\r\nX: keep\r\nContent-Length: 24\r\n\r\n" + denied:                                "not answer like stint: status 200",
		"429 X\r\nX: keep\r\nContent-Length: 23\r\n\r\n" + admitted:                               "not answer like stint: status 429",
		"302 X\r\nLocation: /\r\nX: keep\r\nContent-Length: 23\r\n\r\n" + admitted:                "not answer like stint: status 302",
		"200 OK\r\nX: keep\r\nContent-Length: 2\r\n\r\nhi":                                        "not answer like stint: status 200",
		"200 OK\r\nX: keep\r\nContent-Length: 16\r\n\r\n" + `{"allowed":true}`:                    "not answer like stint: status 200",
		"200 OK\r\nContent-Length: 99\r\n\r\n" + admitted:                                         "no answer: unexpected EOF",
		"200 OK\r\nX: " + strings.Repeat("x", 70_000):                                             "no answer: unexpected EOF",
		"200 OK\r\nX: keep\r\n": "i/o timeout",
		"":                      "no answer: ",
		"400 X\r\nX: keep\r\nContent-Length: 54\r\n\r\n" + `{"title":"Bad Request","status":400,"detail":"key is"}` + "  ": "400 Bad Request: key is",
	} {
		if text != "" {
			text = "HTTP/1.1 " + text
		}
		answer.Store(&text)
		ask := patient
		if want == "i/o timeout" {
			ask = silent
		}
		a, err := ask(t.Context(), "k")
		said := fmt.Sprint(int64(a.At), a.Allowed, a.Degraded)
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, want) {
			t.Errorf("%.200q is %s, want %s", text, said, want)
		}
	}
	_ = listener.Close()
	if _, err := restOf(t, "http://"+listener.Addr().String(), "", time.Minute)(t.Context(), "k"); err == nil {
		t.Error("nobody listens, and no error")
	}
}
