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
	"github.com/stint-go/stint/internal/testtable"
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
	texts := strings.NewReplacer("$ADMITTED", admitted, "$DENIED", denied, "$LONG", strings.Repeat("x", 70_000))
	patient := restOf(t, "http://"+listener.Addr().String(), "", time.Minute)
	silent := restOf(t, "http://"+listener.Addr().String(), "", 20*time.Millisecond)
	for _, row := range testtable.Rows[struct{ Want, Text string }](t, "testdata/answers.txt") {
		text := texts.Replace(row.Text)
		answer.Store(&text)
		ask := patient
		if row.Want == "i/o timeout" {
			ask = silent
		}
		a, err := ask(t.Context(), "k")
		said := fmt.Sprint(int64(a.At), a.Allowed, a.Degraded)
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, row.Want) {
			t.Errorf("%.200q is %s, want %s", text, said, row.Want)
		}
	}
	_ = listener.Close()
	if _, err := restOf(t, "http://"+listener.Addr().String(), "", time.Minute)(t.Context(), "k"); err == nil {
		t.Error("nobody listens, and no error")
	}
}
