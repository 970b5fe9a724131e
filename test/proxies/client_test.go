//go:build linux

package proxies

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// The ports of an example.
const (
	appPort   = "8000"
	stintPort = "8080"
	proxyPort = "8088"
)

// A call is a request as it is written, whatever may be wrong with it.
type call struct {
	from   string // the client's address; "" for 127.0.0.2
	method string // "" for GET
	target string // "" for /
	host   string // "" for example.com
	header string // further lines, each ended by \n
	body   string
}

// A reply is an answer, and what the application saw of the request if it was asked.
type reply struct {
	status int
	header http.Header
	text   string
	seen   struct {
		Served            int
		Method, URI, Host string
		Header            http.Header
		Body              string
	}
}

// ask sends a request to the proxy.
func (s *stack) ask(c call) reply {
	s.t.Helper()
	return s.askAt(proxyPort, c)
}

// askAt sends a request to one of the programs.
func (s *stack) askAt(port string, c call) (r reply) {
	s.t.Helper()
	c.from, c.method = cmp.Or(c.from, "127.0.0.2"), cmp.Or(c.method, http.MethodGet)
	c.target, c.host = cmp.Or(c.target, "/"), cmp.Or(c.host, "example.com")
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.from)}, Timeout: patience}
	conn := must.Get(dialer.DialContext(s.t.Context(), "tcp", net.JoinHostPort(s.host, port)))(s.t)
	defer func() { _ = conn.Close() }()
	must.Do(s.t, conn.SetDeadline(time.Now().Add(patience)))
	header := "Host: " + c.host + "\n" + c.header
	if !strings.Contains(header, "Transfer-Encoding") {
		header += fmt.Sprintf("Content-Length: %d\n", len(c.body))
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\n%s\n", c.method, c.target, header)
	must.Get(io.WriteString(conn, strings.ReplaceAll(head, "\n", "\r\n")+c.body))(s.t)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.method})
	if err != nil {
		s.t.Fatalf("%s %s: %v", c.method, c.target, err)
	}
	text := must.Get(io.ReadAll(response.Body))(s.t)
	r.status, r.header, r.text = response.StatusCode, response.Header, string(text)
	if strings.HasPrefix(r.header.Get("Content-Type"), "application/json") && len(text) > 0 {
		must.Do(s.t, json.Unmarshal(text, &r.seen))
	}
	return r
}

// answered sends a request and expects a status.
func (s *stack) answered(status int, c call) reply {
	s.t.Helper()
	r := s.ask(c)
	if r.status != status {
		s.t.Errorf("%s %s %q: %d %v %.300s, want %d", c.method, c.target, c.header, r.status, r.header, r.text, status)
	}
	return r
}

// listens reports whether a program takes connections at the port.
func (s *stack) listens(port string) bool {
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(s.t.Context(), "tcp", net.JoinHostPort(s.host, port))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// served is how many requests have come to the application, besides those of served itself.
func (s *stack) served() int {
	s.t.Helper()
	asked := s.askAt(appPort, call{}).seen.Served
	if asked == 0 {
		s.t.Fatal("the application does not answer")
	}
	s.own++
	return asked - s.own
}
