package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/testtls"
)

const (
	adminsToken = "a-token-of-admins"
	authorised  = "Authorization: Bearer " + adminsToken + "\r\n"
)

// administered is the admin listener of a server, with a token.
type administered struct {
	*testing.T
	server *Server
}

func newAdministered(t *testing.T, change func(*Config)) administered {
	t.Helper()
	config := DefaultConfig()
	config.Store, config.Logger = memstore.New(memstore.Config{}), slog.New(slog.DiscardHandler)
	config.Listen, config.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	config.Admin.Tokens = []AdminToken{{Token: adminsToken, Role: RoleWrite}}
	change(&config)
	s := must.Get(New(config))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Listening()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return administered{t, s}
}

func (c administered) dial() net.Conn {
	c.Helper()
	conn := must.Get(new(net.Dialer).DialContext(c.Context(), "tcp", c.server.AdminAddr().String()))(c)
	c.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	return conn
}

// asks sends a request on a connection of its own, whose answer has that status.
func (c administered) asks(request string, status int) {
	c.Helper()
	conn := c.dial()
	must.Get(io.WriteString(conn, request+"\r\n"))(c)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.Fatalf("no answer: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != status {
		c.Errorf("%s, %v; want %d", response.Status, err, status)
	}
}

// empties waits until the listener has no connection.
func (c administered) empties() {
	c.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		families := must.Get(c.server.Gatherer().Gather())(c)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "rate_limiter_connections" && m.GetLabel()[0].GetValue() == "admin" && m.GetGauge().GetValue() == 0 {
					return
				}
			}
		}
		if time.Now().After(deadline) {
			c.Fatal("the connection is kept")
		}
	}
}

// A client that does not read the admin listener's answers loses the connection, also with a token.
func TestAdminAnswersThatAreNotRead(t *testing.T) {
	t.Parallel()
	const short = 100 * time.Millisecond
	const large = "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n" + authorised + "\r\n"
	issuer := testtls.New(t, "root")
	files := issuer.Files("server")
	flood := func(conn net.Conn) error {
		for {
			if _, err := io.WriteString(conn, large); err != nil {
				return err
			}
		}
	}
	for name, test := range map[string]struct {
		files    TLS
		protocol string
		abuse    func(net.Conn) error
	}{
		"plain": {abuse: flood},
		"TLS":   {files: files, protocol: "http/1.1", abuse: flood},
		"HTTP/2": {files: files, protocol: "h2", abuse: func(conn net.Conn) error {
			// The preface, SETTINGS with a window of 0 bytes, and the HEADERS of one stream (RFC 9113, 3.4 and 6).
			text := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x06\x04\x00\x00\x00\x00\x00" + "\x00\x04\x00\x00\x00\x00" +
				"\x00\x00\x14\x01\x05\x00\x00\x00\x01" + "\x82\x87\x04\x05/nope\x01\x09localhost"
			if _, err := io.WriteString(conn, text); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, conn)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newAdministered(t, func(c *Config) { c.HTTP.WriteTimeout, c.HTTP.IdleTimeout, c.AdminTLS = short, short, test.files })
			conn := c.dial()
			if test.protocol != "" {
				config := issuer.Client("")
				config.NextProtos = []string{test.protocol}
				conn = tls.Client(conn, config)
			}
			if err := test.abuse(conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is kept")
			}
			c.empties()
		})
	}
}

// A profile takes the time that an authorised caller gave it.
func TestProfileTakesItsTime(t *testing.T) {
	t.Parallel()
	c := newAdministered(t, func(c *Config) { c.HTTP.WriteTimeout = 50 * time.Millisecond })
	c.asks("GET /debug/pprof/trace?seconds=0.3 HTTP/1.1\r\nHost: localhost\r\n"+authorised, http.StatusOK)
}
