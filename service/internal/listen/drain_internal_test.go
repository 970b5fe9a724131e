package listen

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/testtls"
)

// drained are listeners that serve until stop, with clients that keep one connection each.
type drained struct {
	*testing.T
	addr, admin net.Addr
	ended       chan error
	stop        context.CancelFunc
}

func newDrained(t *testing.T, change func(*config.Config), with ...func(*Listeners)) *drained {
	t.Helper()
	l := openListeners(t, change, slog.New(slog.DiscardHandler))
	for _, with := range with {
		with(l)
	}
	ctx, stop := context.WithCancel(t.Context())
	d := &drained{T: t, ended: make(chan error, 1), stop: stop}
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	var err error
	if d.addr, err = l.HTTP(ctx, answer); err == nil && l.config.AdminListen != "" {
		d.admin, err = l.Admin(ctx, handled(answer))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	go func() {
		d.ended <- errors.Join(l.Wait(ctx), l.Stop(context.Background(), func(context.Context) {}))
	}()
	return d
}

// ends waits until the service has ended.
func (d *drained) ends() {
	d.Helper()
	if err := <-d.ended; err != nil {
		d.Error(err)
	}
}

// refuses waits until an address accepts no connections.
func (d *drained) refuses(addr net.Addr) {
	d.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		conn, err := new(net.Dialer).DialContext(d.Context(), "tcp", addr.String())
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = conn.Close()
		}
		if time.Now().After(deadline) {
			d.Fatal("the server goes on accepting connections")
		}
	}
}

// Connections of both listeners that are kept alive have their next request answered, over HTTP/1.1 and
// HTTP/2, and end then.
func TestKeptConnectionsHaveOneMoreAnswer(t *testing.T) {
	t.Parallel()
	const each = 10
	i := testtls.New(t, "root")
	files := i.Files("server")
	d := newDrained(t, func(c *config.Config) {
		c.TLS, c.AdminTLS, c.Drain.KeepAlive, c.Drain.Timeout = files, files, time.Hour, time.Hour
	})
	type client struct {
		transport *http.Transport
		addr      net.Addr
		path      string
		version   string
	}
	var clients []client
	for range each {
		for path, addr := range map[string]net.Addr{"/actuator/info": d.addr, "/openapi.yaml": d.admin} {
			for version, set := range map[string]func(*http.Protocols){
				"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/2.0": func(p *http.Protocols) { p.SetHTTP2(true) },
			} {
				protocols := new(http.Protocols)
				set(protocols)
				c := client{&http.Transport{TLSClientConfig: i.Client("client"), Protocols: protocols}, addr, path, version}
				defer c.transport.CloseIdleConnections()
				clients = append(clients, c)
			}
		}
	}
	ask := func(c client) (*http.Response, error) {
		r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.addr.String()+c.path, nil))(t)
		response, err := c.transport.RoundTrip(r)
		if err == nil {
			defer func() { _ = response.Body.Close() }()
			_, err = io.Copy(io.Discard, response.Body)
		}
		return response, err
	}
	for _, c := range clients {
		if response, err := ask(c); err != nil || response.Proto != c.version || response.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %v, %v", c.version, c.path, response, err)
		}
	}
	d.stop()
	d.refuses(d.addr)
	d.refuses(d.admin)
	lost := 0
	for _, c := range clients {
		response, err := ask(c)
		switch {
		case err != nil:
			lost++
			t.Logf("%s %s: %v", c.version, c.path, err)
		case response.StatusCode != http.StatusOK, c.version == "HTTP/1.1" && !response.Close:
			t.Errorf("%s %s: %s, Close %t", c.version, c.path, response.Status, response.Close)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d requests are lost", lost, len(clients))
	}
	d.ends() // long before the connections' time is over
}

// Connections on which no request comes are closed in the end, and the drain's timeout bounds all of it.
func TestIdleConnectionsAreClosedLast(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config.Config){
		"after their time":   func(c *config.Config) { c.Drain.KeepAlive, c.Drain.Timeout = time.Millisecond, time.Hour },
		"at once":            func(c *config.Config) { c.Drain.KeepAlive, c.Drain.Timeout = 0, time.Hour },
		"at the drain's end": func(c *config.Config) { c.Drain.KeepAlive, c.Drain.Timeout = time.Hour, time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrained(t, change)
			conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", d.addr.String()))(t)
			defer func() { _ = conn.Close() }()
			must.Get(conn.Write([]byte("GET /actuator/info HTTP/1.1\r\nHost: h\r\n\r\n")))(t)
			must.Get(conn.Read(make([]byte, 1<<10)))(t)
			d.stop()
			if err := <-d.ended; err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Minute))
			if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%d bytes, %v: the connection is not closed", n, err)
			}
		})
	}
}
