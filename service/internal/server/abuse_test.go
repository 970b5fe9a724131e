package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server"
)

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

// others asks the service as a well-behaved client would until stop is called, which
// fails the test unless every request was answered.
func (r *running) others() (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	transport := &http.Transport{}
	client := &http.Client{Transport: transport, Timeout: patience}
	asked := make(chan struct{}, 1)
	fresh := func() {
		r.t.Helper()
		select {
		case <-asked:
		case <-time.After(patience):
			r.t.Error("other clients wait")
		}
	}
	var answering sync.WaitGroup
	answering.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet,
				fmt.Sprintf("http://%s%s?key=other-%d", r.server.Addr(), check, i), nil)
			if err != nil {
				r.t.Error(err)
				return
			}
			response, err := client.Do(request)
			if err != nil {
				r.t.Errorf("another client is not answered: %v", err)
				return
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK {
				r.t.Errorf("another client: %s", response.Status)
			}
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	})
	fresh()
	return func() {
		fresh() // perhaps from before
		fresh()
		cancel()
		answering.Wait()
		transport.CloseIdleConnections()
	}
}

// connect opens a connection on which nothing takes longer than the test's patience.
func (r *running) connect() *net.TCPConn {
	r.t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(r.t.Context(), "tcp", r.server.Addr().String()))(r.t)
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// trickle writes text again and again, a byte every millisecond, until the
// connection is gone.
func trickle(text string) func(net.Conn) {
	return func(conn net.Conn) {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
				return
			}
			<-ticker.C
		}
	}
}

// flood writes text again and again, as fast as it is taken, until the connection is
// gone.
func flood(text string) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
		}
	}
}

// reset ends a connection without a farewell.
func reset(conn *net.TCPConn) error { return errors.Join(conn.SetLinger(0), conn.Close()) }

const (
	getHead  = "GET " + check + "?key=abuse&algorithm=FIXED_WINDOW HTTP/1.1\r\nHost: localhost\r\n"
	postHead = "POST " + check + " HTTP/1.1\r\nHost: h\r\n"
	chunked  = "Transfer-Encoding: chunked\r\n\r\n"
	ok       = "HTTP/1.1 200 OK\r\n"
	bad      = "HTTP/1.1 400 Bad Request"
)

// Whatever clients send, the service takes their connection away with the answer that is due, and goes on answering the others.
func TestAbuse(t *testing.T) {
	small := func(c *server.Config) { c.HTTP.MaxBodyBytes = 1999 }
	for name, test := range map[string]struct {
		bound   func(*server.Config)
		sends   string
		ends    func(*net.TCPConn) error // how it ends the sending
		answers string                   // how the answer begins; "" is none
	}{
		"a head above the limit": {sends: getHead + strings.Repeat("Name: value\r\n", 6000), answers: "HTTP/1.1 431 "},
		"a line above the limit": {sends: "GET /" + strings.Repeat("a", 70_000), answers: "HTTP/1.1 431 "},

		"a chunk's extension without end":       {sends: postHead + chunked + "1;" + strings.Repeat("a", 70_000), answers: bad},
		"a body above the limit":                {bound: small, sends: postHead + "Content-Length: 2000\r\n\r\n" + strings.Repeat(" ", 2000), answers: "HTTP/1.1 413 "},
		"a body of eight exabytes":              {sends: postHead + "Content-Length: 9223372036854775807\r\n\r\n{}", answers: "HTTP/1.1 413 "},
		"a body of a length beyond all numbers": {sends: postHead + "Content-Length: 92233720368547758070\r\n\r\n{}", answers: bad},
		"a body of a negative length":           {sends: postHead + "Content-Length: -1\r\n\r\n{}", answers: bad},
		"a body of two lengths":                 {sends: postHead + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", answers: bad},

		"garbage":                  {sends: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", answers: bad},
		"garbage behind a request": {sends: getHead + "\r\n\x00\xff{}\r\n\r\n" + getHead + "\r\n", answers: ok},
		"HTTP/1.0":                 {sends: "GET " + check + " HTTP/1.0\r\n\r\n", answers: "HTTP/1.0 200 OK\r\n"},
		"HTTP/0.9":                 {sends: "GET " + check + "\r\n\r\n", answers: bad},
		"HTTP/1.1 without a host":  {sends: "GET " + check + " HTTP/1.1\r\n\r\n", answers: bad},

		"nothing, half closed":     {ends: (*net.TCPConn).CloseWrite},
		"half a head, half closed": {sends: getHead, ends: (*net.TCPConn).CloseWrite, answers: bad},
		"half a body, half closed": {sends: postHead + "Content-Length: 9\r\n\r\n{", ends: (*net.TCPConn).CloseWrite, answers: bad},
		"a request, half closed":   {sends: postHead + "Content-Length: 2\r\n\r\n{}", ends: (*net.TCPConn).CloseWrite, answers: "HTTP/1.1 "},
		"half a head, reset":       {sends: getHead, ends: reset},
		"a request, reset":         {sends: getHead + "\r\n", ends: reset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, test.bound)
			stop := r.others()
			const clients = 5
			var abusing sync.WaitGroup
			for range clients {
				conn := r.connect()
				abusing.Go(func() {
					if _, err := io.WriteString(conn, test.sends); err != nil {
						t.Error(err)
					}
					if test.ends != nil {
						_ = test.ends(conn)
					}
					answer, err := io.ReadAll(conn) // until the server has closed it, or dropped it
					_ = conn.Close()
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("the connection is kept")
					}
					if !strings.HasPrefix(string(answer), test.answers) || test.answers == "" && len(answer) > 0 {
						t.Errorf("answer %.120q, want it to begin with %q", answer, test.answers)
					}
				})
			}
			abusing.Wait()
			stop()
			if strings.Contains(r.log.String(), "panic") || r.log.lines() > 3 {
				t.Errorf("abuse fills the log:\n%.2000s", r.log)
			}
		})
	}
}

// A pipeListener has connections in memory, whose deadlines go by a bubble's time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipeListener() *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// A pipeConn has addresses of this machine.
type pipeConn struct{ net.Conn }

func (pipeConn) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (pipeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

func (l *pipeListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- pipeConn{server}:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.close(); return nil }
func (l *pipeListener) Addr() net.Addr { return pipeConn{}.LocalAddr() }

// However slow clients are, the service takes their connection away in time, with the answer that is due, and goes on
// answering the others.
func TestSlowClients(t *testing.T) {
	const short = 300 * time.Millisecond
	slowHead := func(c *server.Config) { c.HTTP.ReadHeaderTimeout = short }
	slowBody := func(c *server.Config) { c.HTTP.BodyTimeout = short }
	idle := func(c *server.Config) { c.HTTP.IdleTimeout = short }
	slowAnswer := func(c *server.Config) { c.HTTP.WriteTimeout = short }
	small := func(c *server.Config) { c.HTTP.MaxBodyBytes, c.HTTP.BodyTimeout = 1999, short }
	for name, test := range map[string]struct {
		bound   func(*server.Config)
		sends   string         // at first
		then    func(net.Conn) // and until the connection is gone
		answers string         // how the answer begins; "" is none
		deaf    bool           // nothing is read until the connection is gone
	}{
		"silence":                  {bound: slowHead},
		"half a head, and silence": {bound: slowHead, sends: getHead},
		"a request, and silence":   {bound: idle, sends: getHead + "\r\n", answers: ok},
		"a request and a half":     {bound: idle, sends: getHead + "\r\n" + getHead, answers: ok},
		"a body of another method": {
			bound: slowBody, sends: "POST " + apipath.Remaining + " HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n",
			answers: "HTTP/1.1 405 ",
		},
		"a head, a byte at a time":         {bound: slowHead, sends: "GET ", then: trickle("/")},
		"a header line, a byte at a time":  {bound: slowHead, sends: getHead, then: trickle("A: b\r\n")},
		"a second head, a byte at a time":  {bound: idle, sends: getHead + "\r\n", then: trickle("/"), answers: ok},
		"a body, a byte at a time":         {bound: slowBody, sends: postHead + "Content-Length: 1000000\r\n\r\n", then: trickle(" "), answers: bad},
		"a chunked body, a byte at a time": {bound: slowBody, sends: postHead + chunked, then: trickle("1\r\n \r\n"), answers: bad},
		"a body that nobody wants":         {bound: slowBody, sends: "POST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", then: trickle(" "), answers: "HTTP/1.1 404 "},
		"another expectation":              {bound: slowAnswer, sends: postHead + "Content-Length: 9\r\nExpect: 200-ok\r\n\r\n", answers: "HTTP/1.1 417 "},
		"a chunked body above the limit":   {bound: small, sends: postHead + chunked + strings.Repeat("400\r\n"+strings.Repeat(" ", 1024)+"\r\n", 2), answers: "HTTP/1.1 413 "},
		"a body that is promised": {
			bound: slowBody, sends: postHead + "Content-Length: 9\r\nExpect: 100-continue\r\n\r\n",
			answers: "HTTP/1.1 100 Continue\r\n\r\n" + bad,
		},
		"answers that are not read": {
			bound: slowAnswer, then: flood("GET " + apipath.OpenAPI + " HTTP/1.1\r\nHost: h\r\n\r\n"), deaf: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipeListener()
				r := runOn(t, ln, func(c *server.Config) {
					c.HTTP.MaxOperations = 2048 // whatever the machine: large bodies are read 8 at a time
					test.bound(c)
				})
				const clients = 10
				begun := time.Now()
				var abusing sync.WaitGroup
				for range clients {
					conn := must.Get(ln.dial())(t)
					abusing.Go(func() {
						if _, err := io.WriteString(conn, test.sends); err != nil {
							t.Error(err)
						}
						var sending sync.WaitGroup
						if test.then != nil {
							sending.Go(func() { test.then(conn) })
						}
						if test.deaf {
							sending.Wait()
						}
						answer, _ := io.ReadAll(conn) // until the server has closed it
						_ = conn.Close()
						sending.Wait()
						if !strings.HasPrefix(string(answer), test.answers) || test.answers == "" && len(answer) > 0 && !test.deaf {
							t.Errorf("answer %.120q, want it to begin with %q", answer, test.answers)
						}
					})
				}
				gone := make(chan struct{})
				go func() {
					abusing.Wait()
					close(gone)
				}()
				for i := 0; ; i++ { // others are answered meanwhile
					if got := r.get(fmt.Sprintf("%s?key=other-%d", check, i)); got.status != http.StatusOK {
						t.Fatalf("another client: %d %s", got.status, got.body)
					}
					select {
					case <-gone:
						if took := time.Since(begun); took > 5*short {
							t.Errorf("the connections are kept for %s", took)
						}
						if strings.Contains(r.log.String(), "panic") || r.log.lines() > 3 {
							t.Errorf("abuse fills the log:\n%.2000s", r.log)
						}
						return
					case <-time.After(short / 10):
					}
				}
			})
		})
	}
}

// A client that sends too much reads the reason, and then the end of the connection rather than a reset.
func TestTooLongHeadIsAnswered(t *testing.T) {
	t.Parallel()
	r := run(t, func(c *server.Config) { c.AdminListen = "127.0.0.1:0" })
	for _, addr := range []net.Addr{r.server.Addr(), r.server.AdminAddr()} {
		conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", addr.String()))(t)
		_ = conn.SetDeadline(time.Now().Add(patience))
		var sending sync.WaitGroup
		sending.Go(func() { _, _ = io.WriteString(conn, getHead+"Long: "+strings.Repeat("a", 100<<10)) })
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
			t.Errorf("%.40q, %v", answer, err)
		}
		_ = conn.Close()
		sending.Wait()
	}
}

// perConnection is what an idle connection may use, on both of its ends: net/http
// keeps two buffers of 4 KiB and a goroutine.
const perConnection = 48 << 10

// memory is what the heap's objects and the stacks use, without what is in pools.
func memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// As many connections as the test's process can have, up to 2,000, wait for nothing;
// the service answers others meanwhile, and them when they are used after all.
func TestIdleConnections(t *testing.T) {
	n := min(2_000, idleConnections(t))
	r := run(t, func(c *server.Config) { c.HTTP.IdleTimeout = time.Hour })
	stop := r.others()
	conns, before := make([]net.Conn, n), memory()
	ask := func(conn net.Conn) {
		t.Helper()
		_ = conn.SetDeadline(time.Now().Add(patience))
		must.Get(io.WriteString(conn, "GET "+apipath.Liveness+" HTTP/1.1\r\nHost: h\r\n\r\n"))(t)
		response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
		_, _ = io.Copy(io.Discard, response.Body)
		if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
	}
	for i := range conns {
		conns[i] = r.connect()
		ask(conns[i])
	}
	each := (memory() - before) / int64(n)
	t.Logf("%d connections, %d bytes each", n, each)
	if each > perConnection {
		t.Errorf("an idle connection uses %d bytes; allowed: %d", each, perConnection)
	}
	for i := 0; i < n; i += 100 {
		ask(conns[i])
	}
	stop()
	open := fmt.Sprintf("rate_limiter_connections{service=\"http\"} %d\n", n+1)
	eventually(t, func() bool { return strings.Contains(r.get(apipath.Metrics).body, open) })
}
